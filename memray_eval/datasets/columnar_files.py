"""Reads entries out of Parquet and Arrow files."""

from __future__ import annotations

import csv
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader
from itertools import chain, islice, zip_longest
from typing import IO, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from memray_eval.datasets.fields import NAMES, NULLABLE, plain_name
from memray_eval.datasets.json_files import first_line
from memray_eval.datasets.parsing import InvalidSample, invalid, parse_json
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.paths import DamagedFile, locate, open_reader
from memray_eval.types.samples import SAMPLE_JSON

BATCH_BYTES = 16 << 20  # decoded at once
_MOST_ROWS = 2048
# ValueError: text that is no UTF-8
_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError)
_Batch: TypeAlias = tuple[int, pa.RecordBatch]  # with the number of its first row
# Of so many rows from a row on, those that are wanted
_RowsWithin: TypeAlias = Callable[[int, int], Sequence[int]]
_ReadBatches: TypeAlias = Callable[[IO[bytes], _RowsWithin], Iterator[_Batch]]


def _read_rows(name: str, read: _ReadBatches, shard: Shard) -> Iterator[Entry]:
    """The rows from `start` to `stop`, a batch at a time, or those in `take`, in that order."""
    taken, kept = sorted(shard.take), dict[int, Entry]()
    stop = sys.maxsize if shard.stop is None else shard.stop

    def rows_within(first: int, n_rows: int) -> Sequence[int]:
        end = first + n_rows
        if taken:
            return taken[bisect_left(taken, first) : bisect_left(taken, end)]
        return range(max(first, shard.start), min(end, stop))

    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source:
            for first, batch in read(source, rows_within):
                if not (rows := rows_within(first, batch.num_rows)):
                    continue
                if taken:
                    batch = batch.take(pa.array([row - first for row in rows], pa.int64()))
                size = batch.nbytes // batch.num_rows
                wanted = batch if taken else batch.slice(rows[0] - first, len(rows))
                for row, raw in zip(rows, _parse_rows(wanted), strict=True):
                    entry = shard.entry(row, row + 1, f"row {row + 1}", raw, size, row + 1)
                    if taken:
                        kept[row] = entry
                    else:
                        yield entry
    except _UNREADABLE as error:
        text = f"not a readable {name} file: {first_line(error)}"
        yield shard.broken_entry(shard.start, text)
    yield from (kept[row] for row in shard.take if row in kept)


def _parquet_batches(source: IO[bytes], rows_within: _RowsWithin) -> Iterator[_Batch]:
    first = 0
    with pq.ParquetFile(source) as file:
        for index in range(file.num_row_groups):
            group = file.metadata.row_group(index)
            begin, first = first, first + group.num_rows
            if rows_within(begin, group.num_rows):
                fitting = BATCH_BYTES * int(group.num_rows) // max(1, int(group.total_byte_size))
                n_rows = max(1, min(_MOST_ROWS, fitting))  # few where contexts are long
                for batch in file.iter_batches(n_rows, row_groups=[index]):
                    yield begin, batch
                    begin += batch.num_rows


def _arrow_batches(source: IO[bytes], rows_within: _RowsWithin) -> Iterator[_Batch]:
    first = 0
    try:
        file = pa.ipc.open_file(source)
        batches = map(file.get_batch, range(file.num_record_batches))
    except pa.ArrowInvalid:
        source.seek(0)
        batches = iter(pa.ipc.open_stream(source))
    for batch in batches:
        yield first, batch
        first += batch.num_rows


# A row group without any of the shard's rows is passed over
read_parquet = partial(_read_rows, "Parquet", _parquet_batches)
# A stream or a file, as Hugging Face saves datasets
read_arrow = partial(_read_rows, "Arrow", _arrow_batches)


def count_rows(path: str) -> int:
    """The rows of a Parquet file by its footer; 0 where it has none that can be read."""
    filesystem, inner = locate(path)
    try:
        return int(pq.read_metadata(inner, filesystem=filesystem).num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return 0


def _drop_binary(value: Any) -> Any:
    """Drops what JSON cannot hold (recordings, pictures), and the null fields of objects."""
    if isinstance(value, dict):
        plain = {key: _drop_binary(inner) for key, inner in value.items()}
        return {key: inner for key, inner in plain.items() if inner is not None}
    if isinstance(value, list):
        return [_drop_binary(inner) for inner in value]
    return None if isinstance(value, bytes) else value


def _parse_rows(batch: pa.RecordBatch) -> list[dict[str, Any] | InvalidSample]:
    """Rows as JSON would have them; null is absent, but for a response, which is no answer then."""
    names = batch.schema.names
    columns = [_plain_values(column) for column in batch.columns]
    drops = {
        name
        for name, column in zip(names, columns, strict=True)
        if name not in NULLABLE and None in column
    }
    of_json = [name for name in names if name in SAMPLE_JSON]
    rows: list[dict[str, Any] | InvalidSample] = []
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        if drops:
            row = {name: row[name] for name in row if row[name] is not None or name not in drops}
        for name in of_json:
            try:
                if isinstance(text := row.get(name), str):
                    row[name] = parse_json(text.encode())
            except InvalidSample as error:
                rows.append(error.renamed(name, str(row.get("id") or "")))
                break
        else:
            rows.append(row)
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


DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=(\\t|[^"\r\n])"?[\r\n]*', re.IGNORECASE)
_MOST_TITLES = 20  # lines above the row of names
_NAMES = tuple({field, *names} for field, names in NAMES.items())
_MISSING = ("", "NaN", "nan", "<NA>")  # as pandas writes it


class _Lines:
    """The lines of a file from a byte on, as text; `end` is where the last of them ended. Unlike
    io.TextIOWrapper it reads no further, so that the end of a row is known; `is_over` once a
    line was asked for behind the last."""

    def __init__(self, file: BufferedReader, start: int = 0) -> None:
        file.seek(start)
        self._file, self.end = file, start
        self._pieces: Iterator[bytes] = iter(())
        self.is_over = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces, b"")
        if not piece:
            self._pieces = iter(self._file.readline().splitlines(keepends=True))  # also at "\r"
            piece = next(self._pieces, b"")
            if not piece:
                self.is_over = True
                raise StopIteration
        try:
            text = piece.decode("utf-8" if self.end else "utf-8-sig")
        except UnicodeDecodeError as error:
            byte = f"byte {self.end + error.start}: 0x{piece[error.start]:02x}"
            text = f"not UTF-8 ({byte}); save the file so, or say which --encoding, such as cp1252"
            raise DamagedFile(text) from None
        self.end += len(piece)
        return text


class _Header(NamedTuple):
    names: list[str]
    delimiter: str
    n_lines: int

    def fault(self) -> InvalidSample | None:
        counts = Counter(filter(None, self.names))
        if twice := sorted(name for name, n in counts.items() if n > 1):
            return invalid("two columns have this name; rename one of them", twice[0])
        return None if counts else invalid("holds no table: its first line names the columns")

    def to_row(self, cells: list[str], keeps_empty: bool) -> dict[str, Any] | InvalidSample:
        if any(cells[(n_columns := len(self.names)) :]):
            return invalid(
                f"has {len(cells)} cells, and the header names {n_columns} columns; quote cells "
                "that hold the delimiter"
            )
        return {
            name or f"column_{number}": "" if cell in _MISSING else cell
            for number, (name, cell) in enumerate(
                zip_longest(self.names, cells[:n_columns], fillvalue=""), 1
            )
            if keeps_empty or cell not in _MISSING or name in NULLABLE
        }


def read_csv(shard: Shard, keeps_empty: bool = False) -> Iterator[Entry]:
    """Reads the rows of a table whose first row names its columns; a cell is text, an empty one is
    left out, but for a response's, unless they are kept. A shard begins and ends where a row does,
    which only a reading from the start finds."""
    csv.field_size_limit(sys.maxsize)  # of the process: a cell may be a long context
    position, number = shard.start, shard.first_number - 1
    try:
        with open_reader(*locate(shard.path), 0, shard.encoding) as file:
            begin, n_titles = _find_head(file)
            lines = _Lines(file, begin)
            header = _read_header(lines)
            if fault := header.fault():
                yield Entry(0, 1, shard.path, "line 1", fault, 0)
                return
            for start, taken in zip(shard.take, shard.numbers or shard.take, strict=True):
                position, number = start, taken
                lines = _Lines(file, start)
                cells = next(csv.reader(lines, delimiter=header.delimiter), [])
                row, size = header.to_row(cells, keeps_empty), sum(map(len, cells))
                yield shard.entry(start, lines.end, f"row {taken}", row, size, taken)
            if shard.take:
                return
            position = max(shard.start, lines.end)
            lines = _Lines(file, position) if position > lines.end else lines
            rows = csv.reader(lines, delimiter=header.delimiter)
            for cells in rows:
                if any(map(str.strip, cells)):
                    number += 1
                    line = n_titles + header.n_lines + rows.line_num
                    if lines.is_over:  # in the midst of a row: it ends with its line
                        how = "is never closed, and takes all after it; double a quote in a cell"
                        yield shard.broken_entry(position, f"row {number}: its last quote {how}")
                        return
                    where = f"row {number}" if shard.start else f"line {line}"
                    row, size = header.to_row(cells, keeps_empty), sum(map(len, cells))
                    yield shard.entry(position, lines.end, where, row, size, number)
                position = lines.end
                if shard.stop is not None and position >= shard.stop:
                    return
    except (csv.Error, DamagedFile) as error:
        is_damaged = isinstance(error, DamagedFile)
        why = "nothing after it can be read" if is_damaged else "broken CSV after it"
        last = f"row {number} is the last that can be read"
        yield shard.broken_entry(position, f"{last}: {why}: {error}")


def _find_head(file: BufferedReader) -> tuple[int, int]:
    """Where the row of names begins, and how many lines (titles, empty ones) are before it: the
    first that names two fields and more columns than each before it; else the first with a known
    name, or of several below a title in as many cells."""
    other, n_most, has_title = None, 0, False
    for begin, at, cells in _first_rows(file):
        names = {plain_name(cell) for cell in cells} - {""}
        if len(names) > n_most and sum(map(bool, map(names.intersection, _NAMES))) > 1:
            return begin, at
        is_known = not names.isdisjoint(chain(*_NAMES))
        if other is None and (len(names) > 1 or is_known):
            other = (begin, at) if is_known or has_title else (0, 0)
        n_most = max(n_most, len(names))
        has_title = has_title or (cells[0] != "" and len(names) == 1 and len(cells) > 2)
    return other or (0, 0)


def _first_rows(file: BufferedReader) -> Iterator[tuple[int, int, list[str]]]:
    """The first rows: where each begins, how many lines are before it, its cells."""
    lines, at = _Lines(file), 0
    while at < _MOST_TITLES:
        begin, first = lines.end, _next_row(lines)
        text = "".join(first)
        if not first or _SEPARATOR.fullmatch(text):
            return
        cells = next(csv.reader(first, delimiter=_delimiter_of(text)), [])
        if any(map(str.strip, cells)):
            yield begin, at, cells
        at += len(first)


def _next_row(lines: Iterator[str]) -> list[str]:
    """The next line, and those that a name in quotes goes on in."""
    first = [*islice(lines, 1)]
    while first and len(first) < _MOST_TITLES:
        rows = csv.reader([*first, ""], delimiter=_delimiter_of("".join(first)))
        next(rows, None)
        if rows.line_num <= len(first) or not (more := next(lines, "")):
            break
        first.append(more)
    return first


def _read_header(lines: _Lines) -> _Header:
    """Reads the first row, in the delimiter that a line above it names, else its own."""
    first, n_before, delimiter = _next_row(lines), 0, ""
    if named := _SEPARATOR.fullmatch("".join(first)):  # as Excel writes and reads
        first, n_before, delimiter = _next_row(lines), 1, named[1].replace("\\t", "\t")
    delimiter = delimiter or _delimiter_of("".join(first))
    rows = csv.reader(chain(first, lines), delimiter=delimiter)
    names = [name.strip() for name in next(rows, [])]
    return _Header(names, delimiter, rows.line_num + n_before)


def _delimiter_of(line: str) -> str:
    """The delimiter that a line has most often."""
    unquoted = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=unquoted.count)
