"""Rows that no file holds, written as one: those of a reader that a user brings, and of tables in
memory. Every worker reads them there, and a resumed run again."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memray_eval.errors import ConfigError, DataError, describe_error
from memray_eval.extensions import find_own_object
from memray_eval.storage.paths import is_object_store, locate, whole_file

FOLDER = "data"  # below a run's `out`


def read_by(reader: str, dataset: str, out: str) -> str:
    """Reads a dataset by a user's function, `my_reader.py:read`, of its path to mappings, one a
    sample, and returns the path of the JSONL file that holds them. Raises ConfigError where there
    is no such function, DataError with the row where it fails."""
    found = find_own_object(reader)
    if found is None or not found.attribute:
        raise ConfigError(f"reader: {reader!r} is no function; write my_reader.py:FUNCTION")
    read = found.load()
    if not callable(read):
        raise ConfigError(f"reader: {found.attribute} of {found.source.place} is no function")

    def rows() -> Iterator[Any]:
        n_read = 0
        try:
            for row in read(dataset):
                yield row
                n_read += 1
        except Exception as error:
            why = f"failed after {n_read} rows of {dataset}: {describe_error(error)}"
            raise DataError(f"reader: {reader} {why}") from error

    return write_rows(rows(), out)


def write_rows(rows: Iterable[Mapping[str, Any]], out: str) -> str:
    """Writes rows to a JSONL file below `out` that is named by what is in it, and returns its path.
    Raises DataError for a row that is no mapping of fields."""
    digest = hashlib.blake2b(digest_size=6)
    with tempfile.TemporaryFile() as kept:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise DataError(
                    f"row {number} of the data is a {type(row).__name__}, not a mapping of fields"
                )
            # What JSON has no name for: numbers and lists of numpy, dates
            text = json.dumps(
                dict(row),
                ensure_ascii=False,
                default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value),
            )
            line = f"{text}\n".encode("utf-8", "backslashreplace")
            digest.update(line)
            kept.write(line)
        kept.seek(0)
        path = f"{out.rstrip('/')}/{FOLDER}/{digest.hexdigest()}.jsonl"
        filesystem, inner = locate(path)
        if not is_object_store(filesystem):
            filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
        with whole_file(filesystem, inner) as file:
            shutil.copyfileobj(kept, file)
    return path
