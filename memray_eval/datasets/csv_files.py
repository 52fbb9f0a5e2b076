"""Reads entries out of CSV and TSV files."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, cast

from memray_eval.datasets.parsing import Fault, InvalidSample
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.paths import DamagedFile, locate, open_reader

DELIMITERS = ",;\t|"


def read_csv(shard: Shard) -> Iterator[Entry]:
    """Reads the rows of a table whose first row names its columns; a cell is text, an empty one is
    left out. A quoted cell may run over several lines, so a file can only be read from its start.

    The delimiter is the one of DELIMITERS that the first row has most often, outside quotes."""
    filesystem, inner = locate(shard.path)
    wanted, position = frozenset(shard.take), 0
    csv.field_size_limit(sys.maxsize)  # of the process: a cell may be a long context
    try:
        with open_reader(filesystem, inner) as file:
            text = io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8-sig", newline="")
            first = text.readline()
            unquoted = "".join(first.split('"')[::2])
            delimiter = max(DELIMITERS, key=unquoted.count)
            rows = csv.reader(chain([first], text), delimiter=delimiter)
            names = [name.strip() for name in next(rows, [])]
            if fault := _find_wrong_header(names):
                yield Entry(0, 1, shard.path, "line 1", InvalidSample([fault]), 0)
                return
            for cells in rows:
                if not any(cells):
                    continue
                is_wanted = (
                    position in wanted
                    if wanted
                    else shard.start <= position and (shard.stop is None or position < shard.stop)
                )
                if is_wanted:
                    raw, size = _to_row(names, cells), sum(map(len, cells))
                    place = f"line {rows.line_num}"
                    yield shard.entry(position, position + 1, place, raw, size, position + 1)
                position += 1
                if shard.stop is not None and not wanted and position >= shard.stop:
                    return
    except UnicodeDecodeError:
        yield _unreadable(shard, position, "not UTF-8 after it; save the file as UTF-8")
    except csv.Error as error:
        yield _unreadable(shard, position, f"broken CSV after it: {error}")
    except DamagedFile as error:
        yield _unreadable(shard, position, f"nothing after it can be read: {error}")


def _find_wrong_header(names: list[str]) -> Fault | None:
    if not any(names):
        return Fault(message="holds no table: its first line names the columns")
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        return Fault(field=twice[0], message="two columns have this name; rename one of them")
    return None


def _to_row(names: list[str], cells: list[str]) -> dict[str, Any] | InvalidSample:
    if len(cells) > len(names) and any(cells[len(names) :]):
        return InvalidSample(
            [
                Fault(
                    message=f"has {len(cells)} cells, and the header names {len(names)} columns; "
                    "quote cells that hold the delimiter"
                )
            ]
        )
    return {
        name or f"column_{number}": cell
        for number, (name, cell) in enumerate(zip(names, cells, strict=False), 1)
        if cell != ""
    }


def _unreadable(shard: Shard, position: int, what: str) -> Entry:
    fault = Fault(message=f"row {position} is the last that can be read: {what}")
    return Entry(position, position + 1, shard.path, "", InvalidSample([fault]), 0)
