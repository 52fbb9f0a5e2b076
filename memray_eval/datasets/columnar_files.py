"""Reads entries out of Parquet and Arrow files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from memray_eval.datasets.answers import NULLABLE
from memray_eval.datasets.json_files import first_line
from memray_eval.datasets.parsing import InvalidSample, parse_json
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.paths import locate

BATCH_BYTES = 16 << 20  # decoded at once
_MOST_ROWS = 2048
# ValueError: text that is no UTF-8
_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError)
# Columns of a Parquet file that may hold JSON text.
_JSON_COLUMNS = ("memory", "history", "traits", "emotion", "metadata")


def read_parquet(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source, pq.ParquetFile(source) as file:
            yield from _read_taken_rows(file, shard) if shard.take else _read_row_range(file, shard)
    except _UNREADABLE as error:
        text = f"not a readable Parquet file: {first_line(error)}"
        yield shard.broken_entry(shard.start, text)


def count_rows(path: str) -> int:
    """The rows of a Parquet file by its footer; 0 where it has none that can be read."""
    filesystem, inner = locate(path)
    try:
        with filesystem.open_input_file(inner) as source, pq.ParquetFile(source) as file:
            return int(file.metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return 0


def _read_row_range(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Reads rows `start` to `stop`, a batch at a time, out of the row groups that hold them."""
    position = 0
    for index in range(file.num_row_groups):
        begin, position = position, position + file.metadata.row_group(index).num_rows
        if position <= shard.start or (shard.stop is not None and begin >= shard.stop):
            continue
        for batch in file.iter_batches(_rows_at_once(file, index), row_groups=[index]):
            yield from _read_stretch(batch, shard, begin)
            begin += batch.num_rows


def _read_stretch(batch: pa.RecordBatch, shard: Shard, first: int) -> Iterator[Entry]:
    """The rows of a batch, which begins at row `first`, that a shard from `start` to `stop` has."""
    begin = max(0, shard.start - first)
    end = batch.num_rows if shard.stop is None else min(batch.num_rows, shard.stop - first)
    if begin >= end:
        return
    size = batch.nbytes // batch.num_rows
    rows = _parse_rows(batch.slice(begin, end - begin))
    for number, row in enumerate(rows, first + begin + 1):
        yield shard.entry(number - 1, number, f"row {number}", row, size, number)


def _take_rows(
    batch: pa.RecordBatch, shard: Shard, first: int, wanted: list[int]
) -> dict[int, Entry]:
    """The rows of a batch, which begins at row `first`, that are among the sorted `wanted`."""
    rows = wanted[bisect_left(wanted, first) : bisect_left(wanted, first + batch.num_rows)]
    if not rows:
        return {}
    taken = batch.take(pa.array([row - first for row in rows], pa.int64()))
    size = taken.nbytes // taken.num_rows
    return {
        row: shard.entry(row, row + 1, f"row {row + 1}", raw, size, row + 1)
        for row, raw in zip(rows, _parse_rows(taken), strict=True)
    }


def _rows_at_once(file: pq.ParquetFile, group: int) -> int:
    """How many rows make a batch of about BATCH_BYTES: few where contexts are long."""
    meta = file.metadata.row_group(group)
    fitting = BATCH_BYTES * int(meta.num_rows) // max(1, int(meta.total_byte_size))
    return max(1, min(_MOST_ROWS, fitting))


def _read_taken_rows(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Reads the rows in `take`, in that order. Each row group that holds any of them is read once,
    and only those rows are kept."""
    wanted, entries, first = sorted(shard.take), dict[int, Entry](), 0
    for index in range(file.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        wanted_here = wanted[bisect_left(wanted, first) : bisect_left(wanted, first + rows)]
        position = first
        for batch in (
            file.iter_batches(_rows_at_once(file, index), row_groups=[index]) if wanted_here else ()
        ):
            entries |= _take_rows(batch, shard, position, wanted_here)
            position += batch.num_rows
        first += rows
    return (entries[row] for row in shard.take)


def read_arrow(shard: Shard) -> Iterator[Entry]:
    """Reads the rows of an Arrow stream or file, as Hugging Face saves datasets."""
    filesystem, inner = locate(shard.path)
    wanted, position, kept = sorted(shard.take), 0, dict[int, Entry]()
    try:
        for batch in _read_arrow_batches(filesystem, inner):
            if wanted:
                kept |= _take_rows(batch, shard, position, wanted)
            else:
                yield from _read_stretch(batch, shard, position)
            position += batch.num_rows
    except _UNREADABLE as error:
        text = f"not a readable Arrow file: {first_line(error)}"
        yield shard.broken_entry(shard.start, text)
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
        plain = {key: _drop_binary(inner) for key, inner in value.items()}
        return {key: inner for key, inner in plain.items() if inner is not None}
    if isinstance(value, list):
        return [_drop_binary(inner) for inner in value]
    return None if isinstance(value, bytes) else value


def _parse_rows(batch: pa.RecordBatch) -> list[dict[str, Any] | InvalidSample]:
    """Rows as JSON would have them: JSON text is parsed, and keys that Arrow filled with null are
    dropped, but for those of a response, which is no answer then."""
    names = batch.schema.names
    columns = [_plain_values(column) for column in batch.columns]
    broken: dict[int, InvalidSample] = {}
    for index, name in enumerate(names):
        if name in _JSON_COLUMNS:
            columns[index] = _parse_texts(name, columns[index], broken)
    drops = {
        name
        for name, column in zip(names, columns, strict=True)
        if name not in NULLABLE and None in column
    }
    rows: list[dict[str, Any] | InvalidSample] = []
    for number, values in enumerate(zip(*columns, strict=True)):
        row = dict(zip(names, values, strict=True))
        if drops:
            row = {name: row[name] for name in row if row[name] is not None or name not in drops}
        if error := broken.get(number):
            error.sample_id = str(row.get("id") or "")
        rows.append(error or row)
    return rows


def _plain_values(column: pa.Array) -> list[Any]:
    """The values of a column, without what JSON cannot hold."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return texts
    values = column.to_pylist(maps_as_pydicts="lossy")
    kind = column.type.value_type if pa.types.is_list(column.type) else column.type
    is_plain = pa.types.is_primitive(kind) or pa.types.is_string(kind)
    return values if is_plain else [_drop_binary(value) for value in values]


def _parse_texts(name: str, values: list[Any], broken: dict[int, InvalidSample]) -> list[Any]:
    """A column's texts as the JSON that they are; those that are none join `broken`, by row, unless
    a column before was broken there."""
    parsed: list[Any] = []
    for number, value in enumerate(values):
        try:
            parsed.append(parse_json(value.encode()) if isinstance(value, str) else value)
        except InvalidSample as error:
            parsed.append(None)
            broken.setdefault(number, error.renamed(name))
    return parsed
