"""Reads entries out of Parquet and Arrow files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from memray_eval.datasets.json_files import first_line
from memray_eval.datasets.parsing import Fault, InvalidSample, parse_json
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.paths import locate

BATCH_BYTES = 16 << 20  # decoded at once
# Columns of a Parquet file that may hold JSON text.
_JSON_COLUMNS = ("memory", "history", "traits", "emotion", "metadata")


def read_parquet(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source, pq.ParquetFile(source) as file:
            yield from _read_taken_rows(file, shard) if shard.take else _read_row_range(file, shard)
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: text that is no UTF-8
        fault = Fault(message=f"not a readable Parquet file: {first_line(error)}")
        yield Entry(shard.start, shard.start + 1, shard.path, "", InvalidSample([fault]), 0)


def _read_row_range(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Reads rows `start` to `stop`, a batch at a time, out of the row groups that hold them."""
    groups: list[int] = []
    first = position = 0
    for index in range(file.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        if position + rows > shard.start and (shard.stop is None or position < shard.stop):
            if not groups:
                first = position
            groups.append(index)
        position += rows
    if not groups:
        return
    position = first
    for batch in file.iter_batches(_rows_at_once(file, groups[0]), row_groups=groups):
        size = batch.nbytes // max(1, batch.num_rows)
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            if shard.stop is not None and position >= shard.stop:
                return
            if position >= shard.start:
                place, number = f"row {position + 1}", position + 1
                yield shard.entry(position, number, place, _parse_row(row), size, number)
            position += 1


def _rows_at_once(file: pq.ParquetFile, group: int) -> int:
    """How many rows make a batch of about BATCH_BYTES: few where contexts are long."""
    meta = file.metadata.row_group(group)
    return max(1, min(256, BATCH_BYTES * int(meta.num_rows) // max(1, int(meta.total_byte_size))))


def _read_taken_rows(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Reads the rows in `take`, in that order. Each row group that holds any of them is read once,
    and only those rows are kept."""
    wanted, found, first = sorted(shard.take), dict[int, Entry](), 0
    for index in range(file.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        here = wanted[bisect_left(wanted, first) : bisect_left(wanted, first + rows)]
        position = first
        for batch in (
            file.iter_batches(_rows_at_once(file, index), row_groups=[index]) if here else ()
        ):
            mine = [row for row in here if position <= row < position + batch.num_rows]
            taken = batch.take(pa.array([row - position for row in mine], pa.int64()))
            size = taken.nbytes // max(1, taken.num_rows)
            for row, raw in zip(mine, taken.to_pylist(maps_as_pydicts="lossy"), strict=True):
                place = f"row {row + 1}"
                found[row] = shard.entry(row, row + 1, place, _parse_row(raw), size, row + 1)
            position += batch.num_rows
        first += rows
    return (found[row] for row in shard.take)


def read_arrow(shard: Shard) -> Iterator[Entry]:
    """Reads the rows of an Arrow stream or file, as Hugging Face saves datasets."""
    filesystem, inner = locate(shard.path)
    wanted, position, kept = frozenset(shard.take), 0, dict[int, Entry]()
    try:
        for batch in _read_arrow_batches(filesystem, inner):
            size = batch.nbytes // max(1, batch.num_rows)
            for offset in range(batch.num_rows):
                row = position + offset
                if (
                    row in wanted
                    if wanted
                    else row >= shard.start and (shard.stop is None or row < shard.stop)
                ):
                    raw = _parse_row(batch.slice(offset, 1).to_pylist(maps_as_pydicts="lossy")[0])
                    entry = shard.entry(row, row + 1, f"row {row + 1}", raw, size, row + 1)
                    if wanted:
                        kept[row] = entry
                    else:
                        yield entry
            position += batch.num_rows
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: text that is no UTF-8
        fault = Fault(message=f"not a readable Arrow file: {first_line(error)}")
        yield Entry(shard.start, shard.start + 1, shard.path, "", InvalidSample([fault]), 0)
    yield from (kept[row] for row in shard.take if row in kept)


def _read_arrow_batches(filesystem: fs.FileSystem, inner: str) -> Iterator[pa.RecordBatch]:
    with filesystem.open_input_file(inner) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
        else:
            yield from (file.get_batch(index) for index in range(file.num_record_batches))


def _drop_binary(value: Any) -> Any:
    """Drops what JSON cannot hold (recordings, pictures), and the null fields of objects."""
    if isinstance(value, dict):
        found = {key: _drop_binary(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not None}
    if isinstance(value, list):
        return [_drop_binary(inner) for inner in value]
    return None if isinstance(value, bytes) else value


def _parse_row(row: dict[str, Any]) -> dict[str, Any] | InvalidSample:
    """A row as JSON would have it: JSON text is parsed, and keys that Arrow filled with null are
    dropped."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, str) and name in _JSON_COLUMNS:
            try:
                out[name] = parse_json(value.encode())
            except InvalidSample as error:
                return InvalidSample(
                    [Fault(field=name, message=fault.message) for fault in error.faults],
                    str(row.get("id") or ""),
                )
        elif (plain := _drop_binary(value)) is not None:
            out[name] = plain
    return out
