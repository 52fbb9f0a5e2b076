"""Rows that no file holds, written as one: those of a reader that a user brings, and of tables in
memory. Every worker reads them there, and a resumed run again."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memray_eval.errors import ConfigError, DataError, EvalError, describe_error
from memray_eval.extensions import find_own_object
from memray_eval.own_code import own_code
from memray_eval.storage.paths import is_object_store, locate, whole_file

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
        if hasattr(data, "to_pylist"):  # Arrow
            rows = data.to_pylist()
        elif hasattr(data, "to_dicts"):  # polars
            rows = data.to_dicts()
        elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
            rows = data.astype(object).where(data.notna(), None).to_dict("records")
        elif hasattr(data, "to_list") and hasattr(data, "__len__"):  # a Hugging Face dataset
            rows = data.to_list()
        else:
            rows = data
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
