"""Samples to a Parquet file, as `memray-eval run` reads them, in row groups of bounded size."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from memray_eval.errors import ConfigError
from memray_eval.storage.paths import locate
from memray_eval.types import Frozen, Sample, dumps

ROW_GROUP_BYTES = 64 * 2**20  # of text
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "task", "query", "context")),
        ("answers", pa.list_(pa.string())),
        ("language", pa.string()),
        ("metadata", pa.string()),  # JSON
    ]
)
REPEATED = ["task", "language"]  # the columns worth a dictionary


class WriteSummary(Frozen):
    """How much was written; `context_bytes` as UTF-8."""

    samples: int
    context_bytes: int


def check_writable(path: str, force: bool) -> None:
    """Raises ConfigError if the file may not be written."""
    if not path.endswith(".parquet"):
        raise ConfigError(f"--out {path}: must end in .parquet")
    filesystem, inner = locate(path)
    found = filesystem.get_file_info(inner).type
    if found == fs.FileType.Directory:
        raise ConfigError(f"--out {path} is a folder; name a file in it")
    if found != fs.FileType.NotFound and not force:
        raise ConfigError(f"--out {path} exists; --force overwrites it")


def write(samples: Iterable[Sample], path: str) -> WriteSummary:
    """Writes samples so that the file appears whole or not at all. Holds no more than a row group's
    worth of them."""
    filesystem, inner = locate(path)
    pending = f"{inner}.pending-{os.getpid()}"
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(os.path.dirname(inner))
        try:
            with filesystem.open_output_stream(pending) as stream:
                written = _write_rows(samples, stream)
            filesystem.move(pending, inner)
        except BaseException:
            if filesystem.get_file_info(pending).type == fs.FileType.File:
                filesystem.delete_file(pending)
            raise
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error}") from None
    return written


def _write_rows(samples: Iterable[Sample], stream: Any) -> WriteSummary:
    n = context_bytes = held_bytes = 0
    rows: list[dict[str, Any]] = []
    options = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": REPEATED,
        "write_statistics": ["id", *REPEATED],
    }
    with pq.ParquetWriter(stream, SCHEMA, **options) as writer:
        for sample in samples:
            row = _row(sample)
            size = len(row["context"]) + len(row["metadata"]) + sum(map(len, row["answers"]))
            if rows and held_bytes + size > ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
                rows, held_bytes = [], 0
            rows.append(row)
            n, context_bytes, held_bytes = (
                n + 1,
                context_bytes + len(row["context"]),
                held_bytes + size,
            )
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
    return WriteSummary(samples=n, context_bytes=context_bytes)


def _row(sample: Sample) -> dict[str, Any]:
    return {
        "id": sample.id,
        "task": sample.task,
        "query": sample.query,
        "context": (sample.context or "").encode(),
        "answers": list(sample.answers),
        "language": sample.language,
        "metadata": dumps(sample.metadata),
    }
