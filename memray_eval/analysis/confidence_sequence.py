"""Confidence sequences: intervals of a mean that hold at all looks together, so that one may stop
at any.

They are the empirical-Bernstein sequences of Howard, Ramdas, McAuliffe and Sekhon (2021), theorem
4: for values in 0-1 and predictions from earlier ones, sum(value - conditional mean) stays below
u(V) at all times with a chance of 1 - alpha, where V = sum((value - prediction)^2). u is the
boundary of a mixture over a grid of lambda (their section 3.3, with sums for integrals): exactly
valid for any grid. Predictions come from the value's own stratum, so that a stratified order
narrows the interval; conditional means may change from unit to unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from memray_eval.analysis.statistics import Interval
from memray_eval.ports import FloatArray

# The best one is about sqrt(2 log(1 / alpha) / V): these serve a V of 5 to 100,000
LAMBDAS = np.geomspace(0.008, 0.95, 20)
_PSI = -np.log1p(-LAMBDAS) - LAMBDAS  # of the exponential distribution, for values of range 1
_NEWTON_STEPS = 6


def boundary(variance: FloatArray, alpha: float) -> FloatArray:
    """Computes u(V) for each V: with a chance of 1 - alpha the sum of deviations is below it at all
    times. Newton's steps from above: too few make the boundary wider, never wrong."""
    v = np.asarray(variance, np.float64)[..., None]
    needed = math.log(1 / alpha) + math.log(LAMBDAS.size)
    u = ((needed + _PSI * v) / LAMBDAS).min(axis=-1)
    for _ in range(_NEWTON_STEPS):
        terms = LAMBDAS * u[..., None] - _PSI * v
        top = terms.max(axis=-1)
        shares = np.exp(terms - top[..., None])
        total = shares.sum(axis=-1)
        u = u - (top + np.log(total) - needed) / ((shares * LAMBDAS).sum(axis=-1) / total)
    return np.asarray(u, np.float64)


@dataclass
class ConfidenceSequence:
    """The mean of values in 0-1 that come in groups (of one where units are independent), up to
    `largest` units each, whose means it takes to be alike within a stratum, though nothing depends
    on that but the width. `level` holds for all looks together."""

    level: float = 0.95
    largest: int = 1
    n: int = 0
    total: float = 0.0
    variance: float = 0.0
    _strata: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, total: float, n: int, stratum: int = 0) -> None:
        """Adds a group of n units whose values sum to `total`."""
        seen, summed = self._strata.get(stratum, (0, 0.0))
        overall = (self.total + 0.5) / (self.n + 1)
        expected = (summed + overall) / (seen + 1)
        self.variance += ((total - n * expected) / self.largest) ** 2
        self._strata[stratum] = seen + n, summed + total
        self.n, self.total = self.n + n, self.total + total

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else math.nan

    @property
    def half_width(self) -> float:
        """Half of the interval's width, uncut by the scale; infinite at first."""
        if not self.n:
            return math.inf
        reach = float(boundary(np.array(self.variance), (1 - self.level) / 2))
        return self.largest * reach / self.n

    @property
    def interval(self) -> Interval:
        if not self.n:
            return Interval(0.0, 1.0)
        half = self.half_width
        return Interval(max(0.0, self.mean - half), min(1.0, self.mean + half))
