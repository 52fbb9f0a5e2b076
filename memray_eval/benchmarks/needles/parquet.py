"""Writes samples to a file: Parquet in row groups of bounded size, or JSON lines."""

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from memray_eval.errors import ConfigError, reason_of
from memray_eval.storage.paths import locate, whole_file
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
    """The amount that was written; `context_bytes` as UTF-8."""

    samples: int
    context_bytes: int


def check_writable(path: str, force: bool, suffix: str = ".parquet", option: str = "--out") -> None:
    """Raises ConfigError if the file that the option names may not be written."""
    if not path.endswith(suffix):
        raise ConfigError(f"{option} {path}: must end in {suffix}")
    filesystem, inner = locate(path)
    kind = filesystem.get_file_info(inner).type
    if kind == fs.FileType.Directory:
        raise ConfigError(f"{option} {path} is a folder; name a file in it")
    if kind != fs.FileType.NotFound and not force:
        raise ConfigError(f"{option} {path} exists; --force overwrites it")


def write(samples: Iterable[Sample], path: str) -> WriteSummary:
    """Writes samples (.jsonl: as JSON lines), the file whole or not at all. Raises ConfigError."""
    filesystem, inner = locate(path)
    write_all = _write_lines if path.endswith(".jsonl") else _write_rows
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(os.path.dirname(inner))
        with whole_file(filesystem, inner) as stream:
            return write_all(samples, stream)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {reason_of(error)}") from None


def _write_lines(samples: Iterable[Sample], stream: Any) -> WriteSummary:
    lines = (f"{sample.model_dump_json(exclude_defaults=True)}\n" for sample in samples)
    n = sum(1 for line in lines if stream.write(line.encode()))
    return WriteSummary(samples=n, context_bytes=0)


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
            n += 1
            held_bytes += size
            context_bytes += len(row["context"])
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
    return WriteSummary(samples=n, context_bytes=context_bytes)


def _row(sample: Sample) -> dict[str, Any]:
    row = {name: getattr(sample, name) for name in SCHEMA.names}
    context = (sample.context or "").encode()
    return {**row, "context": context, "metadata": dumps(sample.metadata)}
