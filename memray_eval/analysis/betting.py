"""Decides while results come in which of two candidates is better, by betting on their paired
differences.

A capital of 1 is staked in part on each difference before it is seen. If the mean difference is not
above `null`, it reaches 1 / alpha with a chance of at most alpha (Ville 1939), however often one
looks: the hedged capital of Waudby-Smith and Ramdas (2024), for values within bounds. Stakes are
the STaR bets of Voracek and Orabona (2025, arXiv 2505.22422): sqrt(2 log(growth that is left) /
(variance * looks left)). A part of the capital aims at a sixth of the looks, for large
differences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.statistics import Interval
from memray_eval.ports import FloatArray

# Of the capital, by horizon; the second one is so many times as short
SHARES, SHORTER = np.array([0.75, 0.25]), 6
MOST = 0.75  # of its capital a gambler can lose on one difference
_FIRST_SQUARE = 0.25  # what a squared difference is taken to be before the first is seen
_GRID = 33  # odd, so that its middle is one of them


class Capital:
    """The logarithm of capital staked against each of `nulls`: the mean is above it (`sides` 1) or
    below (-1). Differences are in -1 to 1, in `n_looks` groups; `alpha`: of a wrong finding."""

    def __init__(self, nulls: FloatArray, sides: FloatArray, n_looks: int, alpha: float) -> None:
        self._nulls, self._sides = nulls, sides
        self._goal = math.log(1 / alpha)
        self._logs: FloatArray = np.zeros((*nulls.shape, SHARES.size)) + np.log(SHARES)
        self._squares: FloatArray = np.full(nulls.shape, _FIRST_SQUARE)
        self._most: FloatArray = MOST / np.maximum(1 + sides * nulls, 1e-6)[..., None]
        self._n_looks, self._seen = n_looks, 0
        self._ends: list[int] = [
            max(1, n_looks // SHORTER**horizon) for horizon in range(SHARES.size)
        ]

    def add(self, total: FloatArray | float, share: FloatArray | float = 1.0) -> None:
        """Adds a group's differences, `total` in units of the largest group's size, its `share`."""
        left = np.array([self._looks_left(horizon) for horizon in range(SHARES.size)])
        variance = (self._squares / (self._seen + 1))[..., None]
        wanted = np.maximum(0.0, self._goal - self._logs)
        stakes = np.minimum(np.sqrt(2 * wanted / (variance * left)), self._most)
        gains = self._sides * (total - self._nulls * share)
        self._logs = self._logs + np.log1p(stakes * gains[..., None])
        self._squares = self._squares + gains**2
        self._seen += 1

    def _looks_left(self, horizon: int) -> int:
        """Until a horizon's end; one that is past is put off."""
        if self._ends[horizon] <= self._seen:
            self._ends[horizon] = max(self._seen + 1, min(SHORTER * self._seen, self._n_looks))
        return int(self._ends[horizon] - self._seen)

    @property
    def has_won(self) -> npt.NDArray[np.bool_]:
        """Whether capital has reached 1 / alpha by now."""
        top = self._logs.max(axis=-1)
        total = top + np.log(np.exp(self._logs - top[..., None]).sum(axis=-1))
        return np.asarray(total >= self._goal)


@dataclass
class DifferenceBets:
    """Tells the mean of differences in -1 to 1 from 0, at all looks together at `level`. They come
    in groups of up to `largest` units, up to `n_looks` of them. Exact where groups are drawn alike;
    in a stratified order strata that differ make it more careful."""

    level: float
    largest: int
    n_looks: int
    n: int = 0
    total: float = 0.0
    _groups: list[tuple[float, int]] = field(default_factory=list)
    _against_0: Capital = field(init=False)

    def __post_init__(self) -> None:
        self._against_0 = self._capital(np.zeros(2), np.array([1.0, -1.0]))

    def _capital(self, nulls: FloatArray, sides: FloatArray) -> Capital:
        return Capital(nulls, sides, self.n_looks, (1 - self.level) / 2)

    def add(self, total: float, n: int) -> None:
        """Adds a group of n units whose differences sum to `total`."""
        self.n, self.total = self.n + n, self.total + total
        self._groups.append((total, n))
        self._against_0.add(total / self.largest, n / self.largest)

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else math.nan

    @property
    def is_decided(self) -> bool:
        """Whether the mean is told from 0."""
        return bool(self._against_0.has_won.any())

    def interval(self) -> Interval:
        """The means that no bet has been won against so far. It takes a pass over all groups."""
        if not self.n:
            return Interval(-1.0, 1.0)
        return Interval(self._end(1.0), self._end(-1.0))

    def _end(self, side: float) -> float:
        """Bets were won against the means from -side to this one. A second, finer grid lies between
        two points of the first."""
        first, last = -side, min(max(self.mean, -1.0), 1.0)
        edges = [first, 0.0, last] if first * last < 0 else [first, last]  # 0 is on the grid
        for _ in range(2):
            grid = np.interp(np.linspace(0, len(edges) - 1, _GRID), range(len(edges)), edges)
            n_won = int(np.cumprod(self._were_won(grid, side)).sum())
            if n_won in (0, _GRID):
                return float(grid[max(0, n_won - 1)])
            edges = [float(grid[n_won - 1]), float(grid[n_won])]
        return edges[0]

    def _were_won(self, nulls: FloatArray, side: float) -> npt.NDArray[np.bool_]:
        """Whether capital against each of `nulls` reached its goal at any look."""
        capital = self._capital(nulls, np.full(nulls.shape, side))
        were_won = np.zeros(nulls.shape, np.bool_)
        for total, n in self._groups:
            capital.add(total / self.largest, n / self.largest)
            were_won |= capital.has_won
        return were_won
