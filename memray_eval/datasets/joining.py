"""Joins responses that know their sample's id alone to the dataset that has the samples."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memray_eval.datasets.answers import rename_aliases
from memray_eval.datasets.columns import PROBLEM, ColumnMap, as_row
from memray_eval.datasets.own_rows import write_rows
from memray_eval.datasets.parsing import InvalidSample, id_text
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.shards import Entry
from memray_eval.datasets.sources import entries, prepared, read_questions, sources_of
from memray_eval.types.json_text import sample_to_json

_SHOWN = 5  # ids in a note


class Samples:
    """The samples of a dataset by their ids, in a file that is gone when this is."""

    def __init__(self, path: str, reader: SampleReader) -> None:
        self.name = path.rstrip("/").rpartition("/")[2]
        self.problems: list[str] = []
        self._table = sqlite3.connect("")
        self._table.execute("CREATE TABLE samples (id BLOB PRIMARY KEY, json BLOB, used INTEGER)")
        for entry in _entries_of(path, reader):
            try:
                sample = reader.sample(entry)
            except InvalidSample as error:
                self.problems.append(f"{entry.path}, {entry.place}: {error}")
                continue
            if sample is not None:
                row = (_to_bytes(sample.id), _to_bytes(sample_to_json(sample)))
                self._table.execute("INSERT OR IGNORE INTO samples VALUES (?, ?, 0)", row)

    def find(self, id_: str) -> dict[str, Any] | None:
        """The fields of the sample with this id."""
        query = "UPDATE samples SET used = 1 WHERE id = ? RETURNING json"
        found = self._table.execute(query, (_to_bytes(id_),)).fetchone()
        if found is None:
            return None
        fields: dict[str, Any] = json.loads(found[0])
        return {name: value for name, value in fields.items() if name != "suite"}

    def notes(self) -> Iterator[str]:
        """What is left over, in lines."""
        n_all, n_used = self._table.execute("SELECT count(*), sum(used) FROM samples").fetchone()
        if n_left := n_all - (n_used or 0):
            query = "SELECT id FROM samples WHERE used = 0 ORDER BY rowid LIMIT ?"
            ids = [
                row[0].decode("utf-8", "replace") for row in self._table.execute(query, (_SHOWN,))
            ]
            more = ", ..." if n_left > _SHOWN else ""
            yield (
                f"{n_left} of the {n_all} samples of {self.name} have no response: "
                f"{', '.join(ids)}{more}."
            )
        if self.problems:
            n_bad = len(self.problems)
            yield f"{n_bad} samples of {self.name} cannot be read; the first: {self.problems[0]}."


def join_responses(
    path: str,
    columns: ColumnMap | None,
    encoding: str,
    samples: Samples,
    out: str,
    say: Callable[[str], None],
) -> str:
    """Writes the rows of a file of responses with the fields of their samples to a JSONL below
    `out`, and returns its path. A row that has no sample, or cannot be read, says so there, and is
    a problem when it is read. Raises DataError."""
    sources = [prepared(source, encoding) for source in sources_of(path, None)]
    rows = (_joined(entry, columns, samples) for source in sources for entry in entries(source))
    joined = write_rows(rows, out)
    for note in samples.notes():
        say(note)
    return joined


def _joined(entry: Entry, columns: ColumnMap | None, samples: Samples) -> dict[str, Any]:
    where = f"{entry.path.rpartition('/')[2]}, {entry.place or f'row {entry.number}'}"
    try:
        if isinstance(entry.raw, InvalidSample):
            raise entry.raw
        row = as_row(entry.raw)
        if not isinstance(row, Mapping):
            return {PROBLEM: f"{where}: must be a JSON object"}
        fields = rename_aliases(row if columns is None else columns.apply(row))
    except InvalidSample as error:
        return {"id": error.sample_id, PROBLEM: f"{where}: {error}"}
    id_ = id_text(fields.pop("sample_id", None) or fields.get("id"))
    if not isinstance(id_, str) or not id_:
        return {PROBLEM: f"{where}: no id, by which it is joined to {samples.name}"}
    if (sample := samples.find(id_)) is None:
        return {"id": id_, PROBLEM: f"{where}: no sample of {samples.name} has the id {id_!r}"}
    metadata = {**_as_dict(fields.pop("metadata", None)), **sample.pop("metadata", {})}
    return {**fields, **sample, **({"metadata": metadata} if metadata else {})}


def _entries_of(path: str, reader: SampleReader) -> Iterator[Entry]:
    for source in sources_of(path, reader.files):
        if source.published and reader.files is not None:
            yield from read_questions(source, reader.files)
        else:
            yield from entries(prepared(source, reader.encoding))


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
