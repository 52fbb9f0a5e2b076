"""SampleReader turns raw entries into samples of a suite, or into records where responses exist.
Rows that are written first: those of a user's reader or table, responses joined to the samples that
they know the ids of, and one for each of several answers to a sample."""

import hashlib
import json
import posixpath
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from memray_eval.datasets.columns import PROBLEM, RESPONSE, ColumnMap, as_row
from memray_eval.datasets.fields import (
    JOIN_IDS,
    NULLABLE,
    candidate_name,
    parse_answer,
    read_gold,
    rename_aliases,
    rename_traits,
)
from memray_eval.datasets.parsing import InvalidSample, invalid, parse_sample
from memray_eval.datasets.shards import WRITTEN_FROM, Entry, Outline
from memray_eval.datasets.sources import entries, prepared, sources_of
from memray_eval.errors import ConfigError, DataError, EvalError, describe_error, reason_of
from memray_eval.extensions import find_own_object
from memray_eval.own_code import own_code
from memray_eval.ports import PublishedFiles, no_adaptation
from memray_eval.storage.paths import is_object_store, locate, open_reader, whole_file
from memray_eval.types import EXISTING, Record, Sample, id_text
from memray_eval.types.json_text import sample_to_json

Adapt: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
CONTEXT_FILE = "context_file"
_CONTEXTS_KEPT = 2  # questions on one context stand together, so few need to be at hand


@dataclass(frozen=True, kw_only=True)
class SampleReader:
    """Turns raw entries into samples, or records of responses (`candidate`'s if they name none).

    `adapt` maps a published record to a sample's fields, `tasks` (of `known_tasks`) and `ids` are
    those wanted (empty: all); `by_context` reads entries on one context together; `columns` and
    `encoding` are those of one's own data, and `files` how a benchmark's published files hold its
    questions. Responses of a dataset that `lacks_query` have right answers and an empty query."""

    suite: str
    adapt: Adapt = no_adaptation
    tasks: frozenset[str] = frozenset()
    known_tasks: tuple[str, ...] = ()
    ids: frozenset[str] = frozenset()
    has_responses: bool = False
    by_context: bool = False
    columns: ColumnMap | None = None
    encoding: str = ""
    files: PublishedFiles | None = None
    candidate: str = EXISTING
    lacks_query: bool = False

    def record(self, entry: Entry) -> Record | None:
        """The record of an entry; None if it is not wanted. Raises InvalidSample: every fault."""
        is_renamed = self.adapt is no_adaptation
        fields = self._read_fields(entry)
        is_chat = self.columns is not None and self.columns.form is not None
        has_answer = {*NULLABLE, "error", "answer"}.intersection
        if is_chat and isinstance(fields, dict) and "query" in fields and not has_answer(fields):
            text = "the conversation ends with the user: a sample to answer, and no response"
            raise invalid(text, "response", str(fields.get("id") or ""))
        if isinstance(fields, dict) and isinstance(fields.get("response"), list):
            text = "is a list; give each answer a row, with a number in `epoch`"
            raise invalid(text, "response", str(fields.get("id") or ""))
        checks_spelling = self.columns is None
        record = parse_answer(
            fields, self.suite, checks_spelling, is_renamed, self.candidate, self.lacks_query
        )
        return record if self._is_wanted(record.sample) else None

    def sample(self, entry: Entry) -> Sample | None:
        """The sample of an entry; None if it is not wanted. Raises InvalidSample: every fault."""
        fields = self._read_fields(entry)
        if isinstance(fields, dict):
            empty = [name for name in NULLABLE & fields.keys() if fields[name] in (None, "")]
            fields = {name: fields[name] for name in fields if name not in empty}
        sample = parse_sample(fields, self.suite, self.columns is None)
        return sample if self._is_wanted(sample) else None

    def outline(self, entry: Entry) -> Outline | None:
        """What an entry says of itself; None if it is not wanted. Raises InvalidSample."""
        fields = self._adapt_entry(entry)
        if not isinstance(fields, Mapping):
            raise invalid("must be a JSON object")
        task, scenario, prompt_type, first_id, second_id = (
            value if isinstance(value := fields.get(name), str) else ""
            for name in ("task", "scenario", "prompt_type", "sample_id", "id")
        )
        if self.tasks and task not in self.tasks:
            return None
        if self.ids and (first_id or second_id) not in self.ids:
            return None
        who = candidate_name(fields, self.candidate) if self.has_responses else ""
        return Outline(task, scenario or prompt_type, first_id or second_id, who)

    def _is_wanted(self, sample: Sample) -> bool:
        is_of_task = not self.tasks or sample.task in self.tasks
        return is_of_task and (not self.ids or sample.id in self.ids)

    def _adapt_entry(self, entry: Entry) -> Any:
        if isinstance(entry.raw, InvalidSample):
            raise entry.raw
        row = entry.raw if self.columns is None else as_row(entry.raw)
        if not isinstance(row, dict):
            return row
        own = row if self.columns is None else self.columns.apply(row)
        raw = rename_aliases(own) if self.has_responses else rename_traits(own)
        if self.lacks_query:
            raw = {"query": "", **raw}
        if isinstance(raw.get("answers"), Mapping) and self.adapt is no_adaptation:
            raw = {**raw, "answers": read_gold(raw["answers"], "answers")}
        try:
            fields = dict(self.adapt(raw, entry.path))
        except InvalidSample:
            raise
        except Exception as error:
            # A suite raises ValueError to say what is missing; else it is an odd record
            is_explained = isinstance(error, ValueError)
            why = f"cannot be read as the suite's: {describe_error(error)}"
            text = str(error) if is_explained else why
            raise invalid(text, sample_id=str(raw.get("id") or raw.get("_id") or "")) from None
        if fields.get("id") is None and fields.get("sample_id") is None:
            fields["id"] = entry.row_id
        elif "id" in fields:
            fields["id"] = id_text(fields["id"])
        return fields

    def _read_fields(self, entry: Entry) -> Any:
        fields = self._adapt_entry(entry)
        if isinstance(fields, dict) and CONTEXT_FILE in fields and "context" not in fields:
            fields["context"] = _read_context(entry.path, fields.pop(CONTEXT_FILE))
        return fields


def context_file_of(entry: Entry) -> tuple[str, ...]:
    """The file that an entry names for its context, if it names one."""
    if not isinstance(entry.raw, dict) or "context" in entry.raw:
        return ()
    name = entry.raw.get(CONTEXT_FILE)
    return (f"{posixpath.dirname(entry.path)}/{name}",) if isinstance(name, str) else ()


def read_ids(path: str) -> frozenset[str]:
    """The ids in a file of one a line. Raises ConfigError if it cannot be read or has none."""
    try:
        lines = _read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"ids: cannot read {path}: {reason_of(error)}") from None
    if not (ids := frozenset(filter(None, map(str.strip, lines)))):
        raise ConfigError(f"ids: {path} has none; write the samples' ids, one a line")
    return ids


def _read_context(beside: str, name: Any) -> str:
    """Reads a context that several samples share, from a file below the dataset's folder."""
    if not isinstance(name, str) or posixpath.isabs(name) or ".." in name.split("/"):
        raise invalid(f"must be a path below the dataset's folder, not {name!r}", CONTEXT_FILE)
    try:
        return _read_text(f"{posixpath.dirname(beside)}/{name}")
    except (OSError, UnicodeDecodeError) as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = f"cannot be read: {reason_of(error)}" if is_text else "not UTF-8"
        raise invalid(f"{name}: {reason}", CONTEXT_FILE) from None


@lru_cache(_CONTEXTS_KEPT)
def _read_text(path: str) -> str:
    filesystem, inner = locate(path)
    with open_reader(filesystem, inner) as file:
        text: str = file.read().decode("utf-8")
    return text


FOLDER = "data"  # below a run's `out`


def read_by(reader: str, dataset: str, out: str) -> str:
    """Reads a dataset by a user's function, `my_reader.py:read`, of its path to mappings. Returns
    the JSONL file that holds them. Raises ConfigError without one, DataError if it fails."""
    own = find_own_object(reader)
    if own is None or not own.attribute:
        raise ConfigError(f"reader: {reader!r} is no function; write my_reader.py:FUNCTION")
    read = own.load()
    if not callable(read):
        raise ConfigError(f"reader: {own.attribute} of {own.source.place} is no function")

    def rows() -> Iterator[Any]:
        with own_code():
            yield from read(dataset)

    return write_rows(_stream(rows(), f"reader: {reader}", f" of {dataset}"), out)


def to_rows(data: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, whoever's it is, by its methods; a stream stays one. Raises ConfigError
    for what is no table, DataError for two columns of one name and for what fails."""
    kind = type(data).__name__
    if isinstance(data, Mapping) and hasattr(data, "column_names"):  # a DatasetDict
        raise ConfigError(f"data is a {kind} with the splits {', '.join(data)}; give one of them")
    try:
        if hasattr(data, "collect") and not hasattr(data, "to_dicts"):  # a lazy frame of polars
            data = data.collect()
        columns = getattr(data, "column_names", None)
        columns = getattr(data, "columns", None) if columns is None else columns
        names = Counter(map(str, columns)) if isinstance(columns, Iterable) else Counter()
        if twice := [name for name, times in names.items() if times > 1]:
            raise DataError(f"two columns of the data are called {twice[0]}; rename one of them")
        rows = data
        if hasattr(data, "to_pylist") or hasattr(data, "to_dicts"):  # Arrow, polars
            rows = data.to_pylist() if hasattr(data, "to_pylist") else data.to_dicts()
        elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
            rows = data.astype(object).where(data.notna(), None).to_dict("records")
        elif hasattr(data, "to_list") and hasattr(data, "__len__"):  # a Hugging Face dataset
            rows = data.to_list()
    except EvalError:
        raise
    except Exception as error:  # a value that Python has no type for, a lazy frame that fails
        why = f"that cannot be made rows of: {describe_error(error)}"
        raise DataError(f"data is a {kind} {why}") from error
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"data is a {kind}; give a path, a list of mappings, or a table of pandas, polars, "
            "Arrow or Hugging Face"
        )
    return _stream(rows, "the data")


def write_rows(rows: Iterable[Mapping[str, Any]], out: str, name: str = "") -> str:
    """Writes rows to a JSONL file below `out`, named `name` and by what is in it; returns its path.
    Raises DataError without a row, for one that is no mapping, and for what JSON cannot hold."""
    digest = hashlib.blake2b(digest_size=6)
    number = 0
    with tempfile.TemporaryFile() as kept:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                what = f"is a {type(row).__name__}, not a mapping of fields"
                raise DataError(f"row {number} of the data {what}")
            try:
                line = f"{_to_json(dict(row))}\n".encode("utf-8", "backslashreplace")
            except Exception as error:  # keys of odd types, no end, a value's own __str__
                why = f"cannot be written as JSON: {describe_error(error)}"
                raise DataError(f"row {number} of the data {why}") from error
            digest.update(line)
            kept.write(line)
        if number == 0:
            raise DataError("the data hold no rows")
        kept.seek(0)
        path = f"{out.rstrip('/')}/{FOLDER}/{name}{digest.hexdigest()}.jsonl"
        filesystem, inner = locate(path)
        if not is_object_store(filesystem):
            filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
        with whole_file(filesystem, inner) as file:
            shutil.copyfileobj(kept, file)
    return path


def _stream(rows: Iterable[Any], whose: str, of: str = "") -> Iterator[Any]:
    """The rows; what the code behind them raises becomes a DataError that says how far it came."""
    n_read = 0
    try:
        for row in rows:
            yield row
            n_read += 1
    except EvalError:
        raise
    except Exception as error:
        why = f"failed after {n_read} rows{of}: {describe_error(error)}"
        raise DataError(f"{whose} {why}") from error


def _to_json(row: dict[str, Any]) -> str:
    """A row as JSON. Dates and other values that JSON lacks become text; what a table calls
    missing (NaN, NA, NaT) is null, and so are bytes, as in Parquet files."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_to_plain)
    except ValueError:  # NaN or infinity somewhere
        text = json.dumps(row, ensure_ascii=False, default=_to_plain)
        plain = json.loads(text, parse_constant=lambda name: None if name == "NaN" else name)
        return json.dumps(plain, ensure_ascii=False)


def _to_plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numbers and lists of numpy
        return value.tolist()
    is_missing = type(value).__name__ in ("NAType", "NaTType")  # of pandas
    return None if is_missing or isinstance(value, bytes | bytearray) else str(value)


_SHOWN = 5  # ids in a note
# Two samples of one id are none, unless they are equal
_KEEP = (
    "INSERT INTO samples VALUES (?, ?, 0) "
    "ON CONFLICT (id) DO UPDATE SET json = nullif(json, nullif(json, excluded.json))"
)


class Samples:
    """The samples of a dataset by their ids, in a file that is gone when this is. Raises DataError
    for a row without an id: its number is no name that a response could know."""

    def __init__(self, path: str, reader: SampleReader) -> None:
        self.name = path.rstrip("/").rpartition("/")[2]
        self.problems: list[str] = []
        self._table = sqlite3.connect("")
        self._table.execute("CREATE TABLE samples (id BLOB PRIMARY KEY, json BLOB, used INTEGER)")
        for source in sources_of(path, reader.files):
            for entry in entries(prepared(source, reader.encoding), reader.files):
                unnamed = entry._replace(label="\0")  # no id is like its number
                try:
                    sample = reader.sample(unnamed)
                except InvalidSample as error:
                    self.problems.append(f"{entry.path}, {entry.place}: {error}")
                    continue
                if sample is None:
                    continue
                names = (sample.metadata.get(name) for name in JOIN_IDS)
                named = next((id_text(name) for name in names if name is not None), "")
                id_ = str(named if sample.id == unnamed.row_id else sample.id)
                if not id_:
                    where = f"{entry.path}, {entry.place}"
                    how = "give each row an `id` that the responses name"
                    raise DataError(f"{where}: no id, by which responses are joined to it; {how}")
                if sample.id != id_:
                    sample = sample.model_copy(update={"id": id_})
                row = (_to_bytes(id_), _to_bytes(sample_to_json(sample)))
                self._table.execute(_KEEP, row)

    def find(self, id_: Any) -> dict[str, Any]:
        """The fields of the sample with this id, blanks and ".0" aside. Raises InvalidSample."""
        if not isinstance(id_, str) or not id_:
            raise invalid(f"no id, by which it is joined to {self.name}")
        query = "UPDATE samples SET used = 1 WHERE id = ? RETURNING json"
        for name in dict.fromkeys((id_, id_.strip(), id_.strip().removesuffix(".0"))):
            if row := self._table.execute(query, (_to_bytes(name),)).fetchone():
                if row[0] is None:
                    raise invalid(f"several samples of {self.name} have the id {name!r}")
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
