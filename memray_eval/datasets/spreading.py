"""Decides which entries a `limit` takes: as many of each task as of any other, and within a task as
many of each scenario.

An entry's rank depends on the entries before it alone: how many of its task and scenario there
were, then its scenario, then its task, as they first appear. The lowest ranks are taken, so that a
smaller limit is a part of a larger one."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from memray_eval.datasets.reading import Outline

T = TypeVar("T")


class Rank(NamedTuple):
    """An entry's rank; lower ranks are taken first. Entries without a task come last if the suite's
    tasks are known; the answers of all candidates to one sample follow each other."""

    untasked: bool
    nth: int
    scenario: int
    task: int
    candidate: int


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
        rank = Rank(
            untasked=bool(self._tasks) and not task,
            nth=self._places.get(key, self._counts[task, scenario]),
            scenario=scenarios.get(scenario, len(scenarios)),
            task=self._numbers.get(task, len(self._numbers)),
            candidate=self._candidates.setdefault(outline.answered_by, len(self._candidates)),
        )
        if self.is_full and rank >= self._highest():
            return None
        self._numbers[task] = rank.task
        self._scenarios.setdefault(task, {})[scenario] = rank.scenario
        return rank

    def take(self, outline: Outline, rank: Rank, entry: T) -> None:
        """Takes a valid entry. Once the limit is reached, the entry of the highest rank goes."""
        task, scenario = self._stratum(outline)
        if rank.nth == self._counts[task, scenario]:
            self._counts[task, scenario] += 1
        if self._pairs:
            self._places[task, scenario, outline.sample_id] = rank.nth
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
            and Rank(False, self._counts[task, ""], 0, self._numbers[task], 0) >= highest
            for task in self._tasks
        )

    def taken(self) -> list[T]:
        """The entries taken, in the order in which they came."""
        return [entry for _, _, entry in sorted(self._kept, key=lambda held: held[1])]

    def _stratum(self, outline: Outline) -> tuple[str, str]:
        """The task and scenario that an entry counts for; known tasks are their own scenarios."""
        return outline.task, "" if self._tasks else outline.scenario

    def _highest(self) -> Rank:
        untasked, *others = (-part for part in self._kept[0][0])
        return Rank(bool(untasked), *others)
