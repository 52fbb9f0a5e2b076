"""Shard and Entry: a stretch of a dataset's source that one task reads, and one raw entry of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import Field

from memray_eval.datasets.parsing import InvalidSample, invalid
from memray_eval.types import Frozen

Kind = Literal["folder", "json", "jsonl", "csv", "parquet", "arrow", "document", "eval", "text"]

WRITTEN_FROM = "_from"  # of a row that was written again: the path and the place where it was


class Shard(Frozen):
    """A stretch of a source that one task reads: positions `start` to `stop` (bytes of a JSONL or
    CSV, rows, items of a JSON, `names` of a folder, or questions of a `published` file, which draw
    on the files `beside`) without those in `skip`; or those in `take`, in that order (for a JSON:
    in the file's).

    `rows` and `size` (bytes) say how much that is. Items that lack what `header` holds inherit it.
    Lines and rows are numbered from `first_number` on, those in `take` by `numbers`; `label` tells
    the sources of one dataset apart. `encoding` is "" for UTF-8."""

    kind: Kind
    path: str
    start: int = 0
    stop: int | None = None
    names: tuple[str, ...] = ()
    skip: tuple[int, ...] = ()
    take: tuple[int, ...] = ()
    rows: int = 0
    size: int = 0
    header: dict[str, str] = Field(default_factory=dict)
    first_number: int = 1
    numbers: tuple[int, ...] = ()
    label: str = ""
    published: bool = False
    beside: tuple[str, ...] = ()
    encoding: str = ""

    @property
    def is_read_from_start(self) -> bool:
        """Whether nobody can begin in the middle of it: one task reads it all."""
        return self.kind in ("json", "document", "text") or (self.kind == "csv" and self.published)

    def picker(self) -> Callable[[int], bool]:
        """Tells of a position whether it is in `take`, or from `start` to `stop`."""
        taken, start, stop = frozenset(self.take), self.start, self.stop
        if taken:
            return taken.__contains__
        return lambda position: start <= position and (stop is None or position < stop)

    def entry(self, position: int, end: int, label: str, raw: Any, size: int, number: int) -> Entry:
        """An entry of this file."""
        return Entry(position, end, self.path, label, raw, size, number, self.label)

    def broken_entry(self, position: int, message: str) -> Entry:
        """The entry that stands for what cannot be read of this file from a position on."""
        return Entry(position, position + 1, self.path, "", invalid(message), 0)


class Entry(NamedTuple):
    """One raw entry of a source, from `position` to `end` of the file at `path`; `place` is that in
    words ("line 3"), `raw` the parsed object, or why it could not be read, `size` in bytes, and
    `number` that of its row, from 1 on, in the source that is called `label`."""

    position: int
    end: int
    path: str
    place: str
    raw: Any | InvalidSample
    size: int
    number: int = 0
    label: str = ""

    @property
    def origin(self) -> tuple[str, str]:
        """The path and the place of the row, before it was written again."""
        own = self.raw.get(WRITTEN_FROM) if type(self.raw) is dict else None
        if isinstance(own, list) and len(own) == 2:
            return str(own[0]), str(own[1])
        return self.path, self.place

    @property
    def row_id(self) -> str:
        """What an entry without an id is called."""
        return f"{self.label}:{self.number}" if self.label else f"{self.number}"
