"""Reads entries out of CSV and TSV files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

from memray_eval.datasets.answers import NULLABLE
from memray_eval.datasets.parsing import Fault, InvalidSample, invalid
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.paths import DamagedFile, locate, open_reader

DELIMITERS = ",;\t|"


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
        text = piece.decode("utf-8" if self.end else "utf-8-sig")
        self.end += len(piece)
        return text


class _Header(NamedTuple):
    names: list[str]
    delimiter: str
    n_lines: int


def read_csv(shard: Shard) -> Iterator[Entry]:
    """Reads the rows of a table whose first row names its columns; a cell is text, an empty one is
    left out, but for a response's. A quoted cell may run over several lines, so only a reading from
    the start finds where rows begin; a shard begins and ends where one does.

    The delimiter is the one of DELIMITERS that the first row has most often, outside quotes."""
    filesystem, inner = locate(shard.path)
    csv.field_size_limit(sys.maxsize)  # of the process: a cell may be a long context
    position, number = shard.start, shard.first_number - 1
    try:
        with open_reader(filesystem, inner) as file:
            lines = _Lines(cast(BinaryIO, file))
            header = _read_header(lines)
            if fault := _find_wrong_header(header.names):
                yield Entry(0, 1, shard.path, "line 1", InvalidSample([fault]), 0)
                return
            if shard.take:
                for place, taken in zip(shard.take, shard.numbers or shard.take, strict=True):
                    position, number = place, taken
                    file.seek(place)
                    lines = _Lines(cast(BinaryIO, file), place)
                    cells = next(csv.reader(lines, delimiter=header.delimiter), [])
                    yield _to_entry(shard, header, cells, place, lines.end, f"row {taken}", taken)
                return
            position = max(shard.start, lines.end)
            if position > lines.end:
                file.seek(position)
                lines = _Lines(cast(BinaryIO, file), position)
            is_whole, n_lines = shard.start == 0, header.n_lines
            rows = csv.reader(lines, delimiter=header.delimiter)
            for cells in rows:
                if any(cells):
                    number += 1
                    where = f"line {n_lines + rows.line_num}" if is_whole else f"row {number}"
                    yield _to_entry(shard, header, cells, position, lines.end, where, number)
                position = lines.end
                if shard.stop is not None and position >= shard.stop:
                    return
    except UnicodeDecodeError:
        yield _unreadable(shard, position, number, "not UTF-8 after it; save the file as UTF-8")
    except csv.Error as error:
        yield _unreadable(shard, position, number, f"broken CSV after it: {error}")
    except DamagedFile as error:
        yield _unreadable(shard, position, number, f"nothing after it can be read: {error}")


def _read_header(lines: _Lines) -> _Header:
    first = next(lines, "")
    unquoted = "".join(first.split('"')[::2])
    delimiter = max(DELIMITERS, key=unquoted.count)
    rows = csv.reader(chain([first], lines), delimiter=delimiter)
    names = [name.strip() for name in next(rows, [])]
    return _Header(names, delimiter, rows.line_num)


def _find_wrong_header(names: list[str]) -> Fault | None:
    if not any(names):
        return Fault(message="holds no table: its first line names the columns")
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        return Fault(field=twice[0], message="two columns have this name; rename one of them")
    return None


def _to_entry(
    shard: Shard,
    header: _Header,
    cells: list[str],
    position: int,
    end: int,
    place: str,
    number: int,
) -> Entry:
    raw, size = _to_row(header.names, cells), sum(map(len, cells))
    return shard.entry(position, end, place, raw, size, number)


def _to_row(names: list[str], cells: list[str]) -> dict[str, Any] | InvalidSample:
    if len(cells) > len(names) and any(cells[len(names) :]):
        return invalid(
            f"has {len(cells)} cells, and the header names {len(names)} columns; quote cells that "
            "hold the delimiter"
        )
    return {
        name or f"column_{number}": cell
        for number, (name, cell) in enumerate(zip(names, cells, strict=False), 1)
        if cell != "" or name in NULLABLE
    }


def _unreadable(shard: Shard, position: int, number: int, what: str) -> Entry:
    return shard.broken_entry(position, f"row {number} is the last that can be read: {what}")
