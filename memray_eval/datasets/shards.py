"""Shard and Entry: a stretch of a dataset's source that one task reads, and one raw entry of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field

from memray_eval.datasets.parsing import InvalidSample, invalid
from memray_eval.types import Frozen

Kind = Literal["folder", "json", "jsonl", "csv", "parquet", "arrow", "document", "eval", "text"]


class Shard(Frozen):
    """A stretch of a source that one task reads.

    It covers positions `start` to `stop` (bytes of a JSONL or CSV, rows of a Parquet, items of a
    JSON, `names` of a folder) without those in `skip`; or the positions in `take`, in that order
    (for a JSON: in the file's order). `rows` and `size` (bytes) say how much that is. `header`
    holds what a JSON object says of all its items (`read_header`); an item that says nothing itself
    inherits it. Lines of a JSONL and rows of a CSV are numbered from `first_number` on, those in
    `take` by `numbers`; `label` tells the sources of one dataset apart, where it has several. Of a
    `published` file, whose items hold several questions each, positions number the questions; they
    draw on the files `beside`. `encoding` is that of its text, "" for UTF-8 or what its byte order
    mark says."""

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

    def entry(self, position: int, end: int, label: str, raw: Any, size: int, number: int) -> Entry:
        """An entry of this file."""
        return Entry(position, end, self.path, label, raw, size, number, self.label)

    def broken_entry(self, position: int, message: str) -> Entry:
        """The entry that stands for what cannot be read of this file from a position on."""
        return Entry(position, position + 1, self.path, "", invalid(message), 0)


class Entry(NamedTuple):
    """One raw entry of a source.

    It spans `position` to `end` of the file at `path`; `place` says where in words for a message
    ("line 3"). `raw` is the parsed object, or why it could not be read; `size` is in bytes. Its
    row has this `number`, from 1 on, in the source that is called `label` where there are
    several."""

    position: int
    end: int
    path: str
    place: str
    raw: Any | InvalidSample
    size: int
    number: int = 0
    label: str = ""

    @property
    def row_id(self) -> str:
        """What an entry without an id is called."""
        return f"{self.label}:{self.number}" if self.label else f"{self.number}"
