"""The order in which units are labelled and by whom, how probable it was that each came in, and the
answers that a rater may give.

Units are drawn by priority sampling (Duffield, Lund, Thorup: Priority Sampling for Estimation of
Arbitrary Subset Sums, JACM 54, 2007). A unit of size p has the priority p / r, where r in (0, 1] is
its own number, drawn by its id; the highest priorities come first. Whenever the labelling ends
after the first n units, the (n + 1)th priority t is the threshold, and

    inclusion probability = min(1, p / t),  weight = 1 / that

give unbiased sums over all units (the paper's theorem 1), whatever n is.

The size is the predicted standard deviation of people's label around the verdict, Neyman's
allocation (JRSS 97, 1934): sqrt(e) of a verdict that is wrong with chance e, its doubt between SURE
and that of a coin. No unit is drawn more than 2.3 times as often as another, so that doubts which
tell nothing cost few labels (tests/bench/active_labels.py)."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memray_eval.metric import DISAGREEMENT, EVIDENCE, UNVERIFIED
from memray_eval.metrics._shared.pairs import FIRST, VALUES
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

SURE, COIN = 0.1, 0.5  # the chances that the least and the most doubtful verdict is wrong
EVEN_SHARE = 0.5  # of the sizes before there were events of the queue: even, the rest by doubt
ANYONE = ""  # who labels the units of a queue that names no raters
_WHOLE = float(1 << 64)
Places = npt.NDArray[np.intp]
Ids = npt.NDArray[np.uint64]


class UnitColumns:
    """Units as they are read, 24 bytes each: a digest of the id, the number of the part and the row
    of the record, and how uncertain the verdict is. Of units with one id the last counts."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.ids, self.parts, self.rows = array("Q"), array("i"), array("i")
        self.doubts = array("d")

    def add(self, unit_id: str, part: int, row: int, doubt: float) -> None:
        self.ids.append(_digest(self.seed, unit_id))
        self.parts.append(part)
        self.rows.append(row)
        self.doubts.append(doubt)


class Queue:
    """The units, the first to label first, as columns. With `raters` each unit is one's, or two's
    at the chance `overlap`; `limit` ends the queue. The same units give the same queue."""

    def __init__(
        self,
        units: UnitColumns,
        raters: Collection[str] = (),
        overlap: float = 1.0,
        limit: int | None = None,
        is_by_doubt: bool = False,
    ) -> None:
        ids = np.array(units.ids, np.uint64)
        _, last = np.unique(ids[::-1], return_index=True)
        kept = np.sort(ids.size - 1 - last)
        ids, doubts = ids[kept], np.array(units.doubts, np.float64)[kept]
        sizes = _sizes_by_doubt(doubts) if is_by_doubt else np.sqrt(np.clip(doubts, SURE, COIN))
        priorities = sizes / ((ids.astype(np.float64) + 1) / _WHOLE)
        order = np.argsort(-priorities, kind="stable")
        self._seed, self.limit = units.seed, min(limit or order.size, order.size)
        self._ids, self._sizes, self._priorities = ids[order], sizes[order], priorities[order]
        self._parts = np.array(units.parts, np.int32)[kept][order]
        self._rows = np.array(units.rows, np.int32)[kept][order]
        self._sorted = np.argsort(self._ids)
        self.raters = tuple(sorted(raters))
        self._teams = _assign(self._ids, self.raters, overlap)
        self.assigned = cache(self._assigned)

    def __len__(self) -> int:
        return int(self._ids.size)

    def rank(self, unit_id: str) -> int | None:
        """The rank of a unit, None if it is none of this queue."""
        digest = np.uint64(_digest(self._seed, unit_id))
        at = int(np.searchsorted(self._ids, digest, sorter=self._sorted))
        if at < len(self) and self._ids[self._sorted[at]] == digest:
            return int(self._sorted[at])
        return None

    def locate(self, rank: int) -> tuple[int, int]:
        """The number of the part and the row of the record at a rank."""
        return int(self._parts[rank]), int(self._rows[rank])

    def _assigned(self, rater: str) -> Places:
        """The ranks that are a rater's, up to the limit; all, if the queue names no raters."""
        if not self.raters:
            return np.arange(self.limit)
        number = self.raters.index(rater)
        return np.flatnonzero((self._teams[: self.limit] == number).any(axis=1))

    def weights(self, labels: Collection[tuple[str, int]]) -> dict[int, float]:
        """1 / the inclusion probability of the unit at each rank, which comes with its rater. A
        rater's threshold is the priority of their next unit; units of two have the lower one."""
        teams = {rank: self._teams[rank] for _, rank in labels}
        by_rank = {
            rank: tuple(self.raters[number] for number in team if number >= 0) or (ANYONE,)
            for rank, team in teams.items()
        }
        reached: dict[str, int] = {}
        for rater, rank in labels:
            # Labels of a rater who has left the queue are taken over
            name = rater if rater in by_rank[rank] else by_rank[rank][0]
            reached[name] = max(rank, reached.get(name, 0))
        thresholds = {name: self._next_priority(name, rank) for name, rank in reached.items()}
        lowest = {
            rank: min(thresholds[name] for name in team if name in thresholds)
            for rank, team in by_rank.items()
        }
        return {rank: max(1.0, least / self._sizes[rank]) for rank, least in lowest.items()}

    def _next_priority(self, rater: str, rank: int) -> float:
        """The priority of a rater's unit after a rank, 0 after the last."""
        assigned = self.assigned(rater)
        after = int(np.searchsorted(assigned, rank, "right"))
        rank = max(rank + 1, int(assigned[after]) if after < assigned.size else self.limit)
        return float(self._priorities[rank]) if rank < len(self) else 0.0


def _digest(seed: str, text: str) -> int:
    name = f"{seed}\x1f{text}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())


def _sizes_by_doubt(doubts: FloatArray) -> FloatArray:
    """Half of the sum evenly, half by doubt: the sizes of labels that precede events of queues."""
    sizes = np.full(doubts.size, 1 / max(1, doubts.size))
    total = float(doubts.sum())
    return EVEN_SHARE * sizes + (1 - EVEN_SHARE) * doubts / total if total else sizes


def _assign(ids: Ids, raters: Sequence[str], overlap: float) -> npt.NDArray[np.int8]:
    """The numbers of each unit's raters, of shape (units, 2), -1 if one is enough: the highest of
    drawn numbers (rendezvous hashing: Thaler, Ravishankar 1998): who joins moves no others."""
    teams = np.full((ids.size, 2), -1, np.int8)
    best = np.zeros((ids.size, 2), np.uint64)
    for number, rater in enumerate(raters):
        drawn = _mix(ids ^ np.uint64(_digest("rater", rater)))
        first, second = drawn > best[:, 0], drawn > best[:, 1]
        teams[:, 1] = np.where(first, teams[:, 0], np.where(second, number, teams[:, 1]))
        best[:, 1] = np.where(first, best[:, 0], np.where(second, drawn, best[:, 1]))
        teams[first, 0], best[first, 0] = number, drawn[first]
    is_shared = _mix(ids ^ np.uint64(_digest("overlap", ""))) < overlap * _WHOLE
    teams[~is_shared, 1] = -1
    teams.sort(axis=1)  # two raters are a team, whoever drew higher
    return teams


def _mix(ids: Ids) -> Ids:
    """Digests drawn again (the finaliser of SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        ids = (ids ^ (ids >> np.uint64(shift))) * np.uint64(factor)
    return ids ^ (ids >> np.uint64(31))


def doubt_of(score: Mapping[str, Any], scale: tuple[float, float], is_older: bool = False) -> float:
    """The doubt of a verdict, 0 to 1, from a row of the records: 1 if the judge gave
    none; else the largest of 1 - its confidence, the share of its evidence that was not found, and
    the square of how far a jury was apart, which is a variance. `is_older`: for labels that precede
    events of queues, how far itself, and how near a graded value is to the middle of its scale."""
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    value = score.get("value")
    if value is None or not math.isfinite(value):
        return 1.0
    parts = dict(score.get("parts") or ())
    apart = (parts.get(DISAGREEMENT) or 0.0) / width
    doubts = [apart if is_older else apart**2]
    if is_older:
        share = min(1.0, max(0.0, (float(value) - low) / width))
        doubts.append(1 - abs(2 * share - 1))
    if parts.get(EVIDENCE):
        doubts.append((parts.get(UNVERIFIED) or 0.0) / parts[EVIDENCE])
    try:
        confidence = json.loads(score.get("judgment") or "{}").get("confidence")
    except (ValueError, AttributeError):
        confidence = None
    if isinstance(confidence, int | float) and 0 <= confidence <= 1:
        doubts.append(1 - confidence)
    return float(min(1.0, max(doubts)))


MOST_KEYS = 10
_STEPS = 5  # of a scale that is not whole numbers
_KEYS = "1234567890"


class Choice(Frozen):
    """An answer: the key that gives it, its value on the metric's scale, and how it is shown."""

    key: str
    value: float
    label: str


def choices_for(
    scale: tuple[float, float],
    is_integer: bool,
    seen: Collection[float],
    parts: Collection[str] = (),
) -> tuple[Choice, ...]:
    """The choices of a metric: the better of a pair; no and yes, if a judge `seen` said only 0 and
    1; each whole number of up to ten; else five even steps. 0 has its own key."""
    low, high = scale
    options: list[tuple[float, str]]
    is_own_key = False  # 3 is the key of 3
    if FIRST in parts:
        names = {"first": "the first", "tie": "neither", "second": "the second"}
        options = [(value, names[name]) for name, value in VALUES.items()]
    elif scale == (0, 1) and seen and set(seen) <= {0.0, 1.0}:
        options, is_own_key = [(0, "no"), (1, "yes")], True
    elif is_integer and high - low < MOST_KEYS:
        options = [(value, str(value)) for value in range(int(low), int(high) + 1)]
        is_own_key = low >= 0 and high <= 9
    else:
        width = (high - low) / (_STEPS - 1)
        values = (low + number * width for number in range(_STEPS))
        options = [(value, f"{value:g}") for value in values]
    return tuple(
        Choice(key=f"{value:g}" if is_own_key else key, value=value, label=label)
        for key, (value, label) in zip(_KEYS, options, strict=False)
    )
