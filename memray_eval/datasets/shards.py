"""Shard and Entry: a stretch of a dataset's source that one task reads, and one raw entry of it. A
source is cut into shards while it is scanned, by rows and bytes or by context; and a `limit` takes
as many entries of each task as of any other, and within a task as many of each scenario.

An entry's rank depends on the entries before it alone: how many of its task and scenario there
were, then its scenario, then its task, as they first appear. The lowest ranks are taken, so that a
smaller limit is a part of a larger one."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field

from memray_eval.datasets.parsing import InvalidSample, invalid
from memray_eval.types import Frozen

T = TypeVar("T")
Kind = Literal["folder", "json", "jsonl", "csv", "parquet", "arrow", "document", "eval", "text"]

WRITTEN_FROM = "_from"  # of a row that was written again: the path and the place where it was
SHARD_BYTES = 16 << 20  # a shard is cut here too, so that long contexts do not pile up in one block
# Sooner where samples share contexts: a shard's tokens go to the engine in one batch
CONTEXT_SHARD_BYTES = 4 << 20
# Of several engines one computes a shard, so a context in several shards is computed by several: it
# stays in one up to so many times the rows, and SHARD_BYTES, where each engine has so many of them
CONTEXT_ROWS_FACTOR, SHARDS_AN_ENGINE = 8, 4


class Shard(Frozen):
    """A stretch of a source that one task reads: positions `start` to `stop` (bytes of a JSONL or
    CSV, rows, items of a JSON, `names` of a folder, or questions of a `published` file, which draw
    on the files `beside`) without those in `skip`; or those in `take`, in that order (for a JSON:
    in the file's).

    `rows` and `size` (bytes) say how much that is. Items that lack what `header` holds inherit it.
    Lines and rows are numbered from `first_number` on, those in `take` by `numbers`; `label` tells
    the sources of one dataset apart. `encoding` is "" for UTF-8. Items that
    have another value in a field of `only` are not read."""

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
    only: dict[str, str] = Field(default_factory=dict)

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


class Outline(NamedTuple):
    """An entry's task, scenario, id, and who answered, if anyone did, before it is checked."""

    task: str
    scenario: str
    sample_id: str
    answered_by: str


class RowSharder:
    """Cuts shards of neighbouring entries: up to `rows_per_shard` valid ones and SHARD_BYTES."""

    def __init__(self, source: Shard, rows_per_shard: int) -> None:
        self.source, self.rows_per_shard = source, rows_per_shard
        self.done: list[Shard] = []
        self._start_shard()

    def _start_shard(self) -> None:
        self.start: int | None = None
        self.rows = self.size = self.end = self.first_number = 0
        self.skip: list[int] = []

    def add(self, entry: Entry, is_good: bool, context: str | None) -> None:
        if self.start is None:
            self.start, self.first_number = entry.position, entry.number
        self.end = entry.end
        self.size += entry.size
        self.rows += is_good
        if not is_good:
            self.skip.append(entry.position)
        is_full = self.rows >= self.rows_per_shard or self.size >= SHARD_BYTES
        # What can only be read from its start is one shard, whose rows are spread after the reading
        if is_full and not self.source.is_read_from_start:
            self._end_shard()

    def finish(self) -> list[Shard]:
        self._end_shard()
        return self.done

    def _end_shard(self) -> None:
        if self.start is not None and self.rows:
            cut = {
                "start": self.start,
                "stop": self.end,
                "names": self.source.names[self.start : self.end],
                "skip": tuple(self.skip),
                "first_number": self.first_number,
                "rows": self.rows,
                "size": self.size,
            }
            self.done.append(self.source.model_copy(update=cut))
        self._start_shard()


class ContextSharder:
    """Cuts shards in which entries on one context are side by side, in the order in which contexts
    first appear, so that an engine computes it once. For several `engines` (a fraction: of part of
    a source), all entries on a context stay in one shard unless too few came of it."""

    def __init__(self, source: Shard, rows_per_shard: int, engines: float = 1) -> None:
        self.source, self.rows_per_shard, self.engines = source, rows_per_shard, engines
        self.groups: dict[bytes, list[Entry]] = {}

    def add(self, entry: Entry, is_good: bool, context: str | None) -> None:
        if is_good:
            text = context if context is not None else f"{entry.position}"
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            self.groups.setdefault(digest, []).append(entry._replace(raw=None, place=""))

    def finish(self) -> list[Shard]:
        shards: list[list[Entry]] = [[]]
        most_rows = self.rows_per_shard  # on one context in one shard
        if self.engines != 1:
            n_entries = sum(map(len, self.groups.values()))
            most = int(n_entries / (self.engines * SHARDS_AN_ENGINE))
            most_rows = min(most, most_rows * CONTEXT_ROWS_FACTOR)
        for group in self.groups.values():
            if self.rows_per_shard < len(group) <= most_rows and _total_bytes(group) <= SHARD_BYTES:
                shards += [group, []]
                continue
            shards += [] if self._fits(shards[-1], group) else [[]]
            for entry in group:
                shards += [] if self._fits(shards[-1], [entry]) else [[]]
                shards[-1].append(entry)
        return [self._take(places) for places in shards if places]

    def _fits(self, shard: list[Entry], more: list[Entry]) -> bool:
        """Whether a shard has room for more entries, as an empty one always has."""
        size = _total_bytes(shard) + _total_bytes(more)
        n_rows = len(shard) + len(more)
        return not shard or (n_rows <= self.rows_per_shard and size <= CONTEXT_SHARD_BYTES)

    def _take(self, places: Sequence[Entry]) -> Shard:
        """A shard of some entries, in their order."""
        source, what = self.source, {"rows": len(places), "size": _total_bytes(places)}
        positions = tuple(entry.position for entry in places)
        if source.kind == "folder":
            return source.model_copy(
                update={**what, "names": tuple(source.names[at] for at in positions)}
            )
        is_text = source.kind in ("jsonl", "csv")  # whose positions are bytes
        numbers = tuple(entry.number for entry in places) if is_text else source.numbers
        return source.model_copy(update={**what, "take": positions, "numbers": numbers})


def _total_bytes(places: Sequence[Entry]) -> int:
    return sum(entry.size for entry in places)


def coalesce(shards: Sequence[Shard], rows: int) -> list[Shard]:
    """Joins neighbouring shards of one source, up to `rows` rows and SHARD_BYTES: few blocks for a
    large dataset, many for a small one. Shards by context stay as they are."""
    out: list[Shard] = []
    for shard in shards:
        last = out[-1] if out else shard
        n_rows, size = last.rows + shard.rows, last.size + shard.size
        is_next = bool(out) and last.path == shard.path and not shard.take
        if not is_next or n_rows > rows or size > SHARD_BYTES:
            out.append(shard)
            continue
        names, skip = last.names + shard.names, last.skip + shard.skip
        joined = {"stop": shard.stop, "names": names, "skip": skip, "rows": n_rows, "size": size}
        out[-1] = last.model_copy(update=joined)
    return out


# Whether it has no task though the suite's are known, how many of its stratum came before, its
# scenario, its task, and its candidate: the answers of all to one sample follow each other
Rank: TypeAlias = tuple[bool, int, int, int, int]


class Spread(Generic[T]):
    """Keeps the entries of a stream with the `limit` lowest ranks, and no more. `tasks` are all
    that can come, if known. With `pairs` several candidates may answer one sample."""

    def __init__(self, limit: int, tasks: Collection[str] = (), pairs: bool = False) -> None:
        self._limit, self._tasks, self._pairs = limit, frozenset(tasks), pairs
        self._kept: list[tuple[tuple[int, ...], int, T]] = []  # a heap with the highest rank on top
        self._n_taken = 0
        self._numbers: dict[str, int] = {}  # of tasks
        self._scenarios: dict[str, dict[str, int]] = {}  # their numbers within a task
        self._candidates: dict[str, int] = {}
        self._counts: Counter[tuple[str, str]] = Counter()  # samples taken of a task and scenario
        # Of samples taken, for the other answers to them
        self._places: dict[tuple[str, str, str], int] = {}

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= self._limit

    def rank(self, outline: Outline) -> Rank | None:
        """The rank of the next entry of the stream. None if it is too high to be taken; then so are
        all later entries of a task or scenario that this entry is the first of."""
        task, scenario = self._stratum(outline)
        scenarios, key = self._scenarios.get(task, {}), (task, scenario, outline.sample_id)
        nth = self._places.get(key, self._counts[task, scenario])
        of_scenario = scenarios.get(scenario, len(scenarios))
        of_task = self._numbers.get(task, len(self._numbers))
        who = self._candidates.setdefault(outline.answered_by, len(self._candidates))
        rank = (bool(self._tasks) and not task, nth, of_scenario, of_task, who)
        if self.is_full and rank >= self._highest():
            return None
        self._numbers[task] = of_task
        self._scenarios.setdefault(task, {})[scenario] = of_scenario
        return rank

    def take(self, outline: Outline, rank: Rank, entry: T) -> None:
        """Takes a valid entry. Once the limit is reached, the entry of the highest rank goes."""
        task, scenario = self._stratum(outline)
        if rank[1] == self._counts[task, scenario]:
            self._counts[task, scenario] += 1
        if self._pairs:
            self._places[task, scenario, outline.sample_id] = rank[1]
        self._n_taken += 1
        held = (tuple(-part for part in rank), self._n_taken, entry)
        (heapq.heapreplace if self.is_full else heapq.heappush)(self._kept, held)

    def is_settled(self) -> bool:
        """Whether no later entry can be taken any more: every known task has had its share."""
        if not self._tasks or self._pairs or not self.is_full:
            return False
        highest = self._highest()
        return all(
            task in self._numbers
            and (False, self._counts[task, ""], 0, self._numbers[task], 0) >= highest
            for task in self._tasks
        )

    def taken(self) -> list[T]:
        """The entries taken, in the order in which they came."""
        return [entry for _, _, entry in sorted(self._kept, key=lambda held: held[1])]

    def _stratum(self, outline: Outline) -> tuple[str, str]:
        """The task and scenario that an entry counts for; known tasks are their own scenarios."""
        return outline.task, "" if self._tasks else outline.scenario

    def _highest(self) -> tuple[int, ...]:
        return tuple(-part for part in self._kept[0][0])
