"""Responses written again as rows of their own: joined to the samples that they know the ids of,
and one for each of several answers to a sample."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memray_eval.datasets.answers import rename_aliases
from memray_eval.datasets.columns import PROBLEM, RESPONSE, ColumnMap, as_row
from memray_eval.datasets.fields import JOIN_IDS
from memray_eval.datasets.parsing import InvalidSample, id_text, invalid
from memray_eval.datasets.reading import SampleReader, write_rows
from memray_eval.datasets.shards import WRITTEN_FROM, Entry
from memray_eval.datasets.sources import entries, prepared, sources_of
from memray_eval.types.json_text import sample_to_json

_SHOWN = 5  # ids in a note


class Samples:
    """The samples of a dataset by their ids, in a file that is gone when this is."""

    def __init__(self, path: str, reader: SampleReader) -> None:
        self.name = path.rstrip("/").rpartition("/")[2]
        self.problems: list[str] = []
        self._table = sqlite3.connect("")
        self._table.execute("CREATE TABLE samples (id BLOB PRIMARY KEY, json BLOB, used INTEGER)")
        for source in sources_of(path, reader.files):
            for entry in entries(prepared(source, reader.encoding), reader.files):
                try:
                    sample = reader.sample(entry)
                except InvalidSample as error:
                    self.problems.append(f"{entry.path}, {entry.place}: {error}")
                    continue
                if sample is None:
                    continue
                names = (sample.metadata.get(name) for name in JOIN_IDS)
                named = next((id_text(name) for name in names if name is not None), "")
                id_ = str(named if named and sample.id == entry.row_id else sample.id)
                row = (_to_bytes(id_), _to_bytes(sample_to_json(sample)))
                self._table.execute("INSERT OR IGNORE INTO samples VALUES (?, ?, 0)", row)

    def find(self, id_: Any) -> dict[str, Any]:
        """The fields of the sample with this id, blanks and ".0" aside. Raises InvalidSample."""
        if not isinstance(id_, str) or not id_:
            raise invalid(f"no id, by which it is joined to {self.name}")
        query = "UPDATE samples SET used = 1 WHERE id = ? RETURNING json"
        for name in dict.fromkeys((id_, id_.strip(), id_.strip().removesuffix(".0"))):
            if row := self._table.execute(query, (_to_bytes(name),)).fetchone():
                fields: dict[str, Any] = json.loads(row[0])
                return {**{key: fields[key] for key in fields if key != "suite"}, "id": name}
        raise invalid(f"no sample of {self.name} has the id {id_!r}")

    def notes(self) -> Iterator[str]:
        """What is left over, in lines."""
        n_all, n_used = self._table.execute("SELECT count(*), sum(used) FROM samples").fetchone()
        if n_left := n_all - (n_used or 0):
            query = "SELECT id FROM samples WHERE used = 0 ORDER BY rowid LIMIT ?"
            rows = self._table.execute(query, (_SHOWN,))
            ids = ", ".join(row[0].decode("utf-8", "replace") for row in rows)
            more = ", ..." if n_left > _SHOWN else ""
            yield f"{n_left} of the {n_all} samples of {self.name} have no response: {ids}{more}."
        if self.problems:
            n_bad = len(self.problems)
            yield f"{n_bad} samples of {self.name} cannot be read; the first: {self.problems[0]}."


def rewrite_responses(
    path: str,
    columns: ColumnMap | None,
    encoding: str,
    samples: Samples | None,
    out: str,
    say: Callable[[str], None],
) -> str:
    """Writes the rows of a file of responses to a JSONL below `out`, with the fields of their
    `samples` if these are elsewhere, each of several responses in a row of its own, and returns its
    path. A row without a sample, or that cannot be read, says so there. Raises DataError."""
    rows = (
        row
        for source in sources_of(path)
        for entry in entries(prepared(source, encoding))
        for row in _rows_of(_read(entry, columns, samples))
    )
    stem = path.rstrip("/").rpartition("/")[2].partition(".")[0]
    rewritten = write_rows(rows, out, f"{stem}-")
    for note in samples.notes() if samples is not None else ():
        say(note)
    return rewritten


def _rows_of(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each of its responses, as epochs."""
    answers = fields.get(RESPONSE)
    if not isinstance(answers, list) or fields.get("epoch") is not None:
        return [fields]
    return [{**fields, RESPONSE: text, "epoch": epoch} for epoch, text in enumerate(answers, 1)]


def _read(entry: Entry, columns: ColumnMap | None, samples: Samples | None) -> dict[str, Any]:
    origin = {WRITTEN_FROM: [entry.path, entry.place or f"row {entry.number}"]}
    try:
        if isinstance(entry.raw, InvalidSample):
            raise entry.raw
        row = as_row(entry.raw)
        if not isinstance(row, Mapping):
            raise invalid("must be a JSON object")
        fields = rename_aliases(row if columns is None else columns.apply(row))
        id_ = id_text(fields.pop("sample_id", None) or fields.get("id"))
        if samples is None:
            return {**fields, "id": entry.row_id if id_ is None else id_, **origin}
        sample = samples.find(id_)
    except InvalidSample as error:
        return {"id": error.sample_id, PROBLEM: str(error), **origin}
    own = fields.pop("metadata", None)
    metadata = {**(own if isinstance(own, dict) else {}), **sample.pop("metadata", {})}
    return {**fields, **sample, **({"metadata": metadata} if metadata else {}), **origin}


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
