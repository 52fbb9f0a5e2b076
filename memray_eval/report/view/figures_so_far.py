"""The figures of a run that is not finished, kept up to date part by part: what a part adds is read
once, when the part is new or has grown."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import read_score_tables
from memray_eval.analysis.scores import (
    ESTIMATED,
    REPLACED,
    candidates_of,
    pooled_ratio,
    read_scores,
)
from memray_eval.ports import FloatArray
from memray_eval.results.parts import Part, UnitIndex
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import Figure

Key = tuple[str, str]  # metric and candidate
_ROUNDING = 1e-12  # of a sum of squares


class Moments(NamedTuple):
    """Sums over the scored units of a metric, of part and whole (1 each if the mean stands for
    the metric): what the figure and its standard error are made of."""

    n: int = 0
    n_estimated: int = 0
    n_replaced: int = 0  # scored by a rule because the judge failed
    part: float = 0.0
    whole: float = 0.0
    part_part: float = 0.0
    part_whole: float = 0.0
    whole_whole: float = 0.0

    def plus(self, other: Moments) -> Moments:
        return Moments._make(a + b for a, b in zip(self, other, strict=True))

    def figure(self, metric: str) -> Figure:
        """As summary.json will have it: a mean, or a ratio with its error (linearise_ratio)."""
        ratio = pooled_ratio(metric)
        names = {"average": "micro", "whole": ratio.whole} if ratio else {"average": "mean"}
        if not self.whole:
            return Figure.model_validate(names)
        value, error = self.part / self.whole, None
        if self.n > 1:
            # of part - value * whole, whose mean is 0; what is left of equal ones is rounding
            terms = (self.part_part, -2 * value * self.part_whole, value**2 * self.whole_whole)
            squares = sum(terms) if sum(terms) > _ROUNDING * terms[0] else 0.0
            error = math.sqrt(squares / (self.n - 1) / self.n) / (self.whole / self.n)
        return Figure.model_validate({**names, "value": value, "stderr": error})


class _PartTally(NamedTuple):
    """The share of one part in the figures."""

    moments: Mapping[Key, Moments]
    cost_usd: float


class FiguresSoFar:
    """The counts and figures of a run's records as they are. A unit that a resumed run does again
    counts once among the units, and twice in the figures, until the run ends."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._indexes: dict[Part, UnitIndex] = {}
        self._tallies: dict[Part, _PartTally] = {}
        self.n_done = self.n_failed = 0

    def refresh(self, is_resumed: bool, until: float = math.inf) -> None:
        """Counts the units of new or changed parts, by their footers' indexes, and reads their
        scores until time.monotonic() is `until`. Raises DataError for an unreadable part."""
        with readable(self._folder.path):
            listed = self._folder.list_parts()
            if set(listed) != set(self._indexes):
                fresh = [part for part in listed if part not in self._indexes]
                indexes = dict(zip(fresh, self._folder.read_indexes(fresh), strict=True))
                all_indexes = self._indexes | indexes
                self._indexes = {part: all_indexes[part] for part in listed}
                self._count(is_resumed)
            for gone in self._tallies.keys() - self._indexes.keys():
                del self._tallies[gone]
            for part in listed:
                if part not in self._tallies and time.monotonic() < until:
                    self._tallies[part] = self._read(part)

    def _count(self, is_resumed: bool) -> None:
        indexes = list(self._indexes.values())
        self.n_done = sum(len(index.units) for index in indexes)
        self.n_failed = sum(int(index.is_failed.sum()) for index in indexes)
        if is_resumed:
            whole = UnitIndex.concatenate(indexes)
            first = whole.first_of_each()
            self.n_done, self.n_failed = int(first.sum()), int(whole.is_failed[first].sum())

    @property
    def is_complete(self) -> bool:
        """True if the figures are over all units that are counted."""
        return len(self._tallies) == len(self._indexes)

    @property
    def cost_usd(self) -> float:
        """The cost of the scores that are kept."""
        return sum(tally.cost_usd for tally in self._tallies.values())

    def moments(self) -> dict[Key, Moments]:
        """By metric and candidate; nothing until the figures are complete."""
        total: dict[Key, Moments] = {}
        for tally in self._tallies.values() if self.is_complete else ():
            for key, moments in tally.moments.items():
                total[key] = total.get(key, Moments()).plus(moments)
        return total

    def _read(self, part: Part) -> _PartTally:
        records = self._folder.records([part])
        moments = {
            (metric, candidate): of_metric
            for candidate in candidates_of(records)
            for metric, of_metric in _moments_of(records, candidate)
        }
        tables = read_score_tables(records, (), ("cost_usd",))
        costs = (pc.sum(table.column("cost_usd")).as_py() or 0.0 for table in tables)
        return _PartTally(moments, sum(costs))


def _moments_of(records: pads.Dataset, candidate: str) -> Iterator[tuple[str, Moments]]:
    scores = read_scores(records, candidate)
    for metric, values in scores.values.items():
        rows = np.flatnonzero(~np.isnan(values))
        part: FloatArray = values[rows]
        whole: FloatArray = np.ones(rows.size)
        if metric in scores.shares:
            part, whole = (column[rows] for column in scores.shares[metric])
        kinds = scores.kinds[metric][rows]
        yield (
            metric,
            Moments(
                int(rows.size), int((kinds == ESTIMATED).sum()), int((kinds == REPLACED).sum()),
                float(part.sum()), float(whole.sum()),
                float(part @ part), float(part @ whole), float(whole @ whole),
            ),
        )  # fmt: skip
