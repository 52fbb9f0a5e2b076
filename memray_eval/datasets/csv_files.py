"""Reads entries out of CSV and TSV files."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, cast

from memray_eval.datasets.answers import NULLABLE
from memray_eval.datasets.fields import NAMES, plain_name
from memray_eval.datasets.parsing import Fault, InvalidSample, invalid
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.encodings import open_text
from memray_eval.storage.paths import DamagedFile, locate

if TYPE_CHECKING:
    from _csv import Reader as CellReader

DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=(\\t|[^"\r\n])"?[\r\n]*', re.IGNORECASE)
_MOST_TITLES = 8  # lines above the row of names
_NAMES = {name for names in NAMES.values() for name in names}
_MISSING = ("", "NaN", "nan", "<NA>")  # as pandas writes it


class _Lines:
    """The lines of a file from a byte on, as text; `end` is where the last of them ended. Unlike
    io.TextIOWrapper it reads no further, so that the end of a row is known."""

    def __init__(self, file: BinaryIO, start: int = 0) -> None:
        self._file, self.end = file, start
        self._pieces: Iterator[bytes] = iter(())

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces, b"")
        if not piece:
            self._pieces = iter(self._file.readline().splitlines(keepends=True))  # also at "\r"
            piece = next(self._pieces)
        try:
            text = piece.decode("utf-8" if self.end else "utf-8-sig")
        except UnicodeDecodeError as error:
            byte = f"byte {self.end + error.start}: 0x{piece[error.start]:02x}"
            text = f"not UTF-8 ({byte}); save the file so, or say which --encoding"
            raise DamagedFile(text) from None
        self.end += len(piece)
        return text


class _Dialect(NamedTuple):
    """How a table is written. A strict one has as many cells in each row as in its head."""

    delimiter: str
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    is_strict: bool = False

    def read(self, lines: Iterable[str]) -> CellReader:
        return csv.reader(lines, delimiter=self.delimiter, quoting=self.quoting)


_STRICT_TSV = _Dialect("\t", csv.QUOTE_NONE, is_strict=True)


class _Header(NamedTuple):
    names: list[str]
    dialect: _Dialect
    n_lines: int

    def to_entry(
        self, shard: Shard, cells: list[str], position: int, end: int, where: str, number: int
    ) -> Entry:
        size = sum(map(len, cells))
        return shard.entry(position, end, where, self._to_row(cells), size, number)

    def _to_row(self, cells: list[str]) -> dict[str, Any] | InvalidSample:
        n_columns, is_strict = len(self.names), self.dialect.is_strict
        if is_strict and len(cells) != n_columns:
            return invalid(f"not as many fields as the {n_columns} of its head")
        if any(cells[n_columns:]):
            return invalid(
                f"has {len(cells)} cells, and the header names {n_columns} columns; quote cells "
                "that hold the delimiter"
            )
        return {
            name or f"column_{number}": "" if cell in _MISSING and not is_strict else cell
            for number, (name, cell) in enumerate(zip(self.names, cells, strict=False), 1)
            if is_strict or cell not in _MISSING or name in NULLABLE
        }


def read_csv(shard: Shard, is_strict: bool = False) -> Iterator[Entry]:
    """Reads the rows of a table whose first row names its columns; a cell is text, an empty one is
    left out, but for a response's. A shard begins and ends where a row does, which only a reading
    from the start finds. In a strict reading a .tsv has tabs and no quotes, empty cells are kept,
    and a row has as many cells as the first."""
    csv.field_size_limit(sys.maxsize)  # of the process: a cell may be a long context
    position, number = shard.start, shard.first_number - 1
    try:
        with open_text(*locate(shard.path), 0, shard.encoding) as file:
            begin, n_titles = (0, 0) if is_strict else _find_head(file)
            lines = _lines_from(file, begin)
            is_tsv = is_strict and shard.path.lower().endswith(".tsv")
            header = _read_header(lines, _STRICT_TSV if is_tsv else None, is_strict)
            if fault := _find_wrong_header(header.names):
                yield Entry(0, 1, shard.path, "line 1", InvalidSample([fault]), 0)
                return
            for start, taken in zip(shard.take, shard.numbers or shard.take, strict=True):
                position, number = start, taken
                lines = _lines_from(file, start)
                cells = next(header.dialect.read(lines), [])
                yield header.to_entry(shard, cells, start, lines.end, f"row {taken}", taken)
            if shard.take:
                return
            position = max(shard.start, lines.end)
            lines = _lines_from(file, position) if position > lines.end else lines
            rows = header.dialect.read(lines)
            for cells in rows:
                if any(map(str.strip, cells)) or (cells and is_strict):
                    number += 1
                    line = n_titles + header.n_lines + rows.line_num
                    where = f"row {number}" if shard.start else f"line {line}"
                    yield header.to_entry(shard, cells, position, lines.end, where, number)
                position = lines.end
                if shard.stop is not None and position >= shard.stop:
                    return
    except (csv.Error, DamagedFile) as error:
        is_damaged = isinstance(error, DamagedFile)
        why = "nothing after it can be read" if is_damaged else "broken CSV after it"
        last = f"row {number} is the last that can be read"
        yield shard.broken_entry(position, f"{last}: {why}: {error}")


def _find_head(file: IO[bytes]) -> tuple[int, int]:
    """Where the row of names begins, and how many lines are before it: a title in one cell, and
    empty lines, above several names of which one is known."""
    lines, begin = _Lines(cast(BinaryIO, file)), 0
    for at, line in enumerate(islice(lines, _MOST_TITLES)):
        cells = next(_dialect_of(line).read([line]), [])
        names = {plain_name(cell) for cell in cells} - {""}
        if len(names) > 1 or names & _NAMES or _SEPARATOR.fullmatch(line):
            return (begin, at) if names & _NAMES else (0, 0)
        begin = lines.end
    return 0, 0


def _lines_from(file: IO[bytes], start: int) -> _Lines:
    file.seek(start)
    return _Lines(cast(BinaryIO, file), start)


def _read_header(lines: _Lines, dialect: _Dialect | None, is_strict: bool) -> _Header:
    """Reads the first row. Without a dialect the delimiter is the one that it has most often."""
    first, n_before = next(lines, ""), 0
    if dialect is None and (named := _SEPARATOR.fullmatch(first)):  # as Excel writes and reads
        dialect = _Dialect(named[1].replace("\\t", "\t"), is_strict=is_strict)
        first, n_before = next(lines, ""), 1
    elif dialect is None:
        dialect = _dialect_of(first, is_strict)
    rows = dialect.read(chain([first], lines))
    names = [name.strip() for name in next(rows, [])]
    return _Header(names, dialect, rows.line_num + n_before)


def _dialect_of(line: str, is_strict: bool = False) -> _Dialect:
    """With the delimiter that a line has most often."""
    unquoted = "".join(line.split('"')[::2])
    return _Dialect(max(DELIMITERS, key=unquoted.count), is_strict=is_strict)


def _find_wrong_header(names: list[str]) -> Fault | None:
    if not any(names):
        return Fault(message="holds no table: its first line names the columns")
    if twice := sorted(name for name, n in Counter(names).items() if name and n > 1):
        return Fault(field=twice[0], message="two columns have this name; rename one of them")
    return None
