"""Coefficients of agreement between raters. `ratings` has one row per unit and one column per
rater, NaN without a rating. A coefficient is NaN if it is undefined."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from memray_eval.ports import FloatArray

Scale = tuple[float, float]
Values = TypeVar("Values", float, FloatArray)


def rescale(values: Values, from_scale: Scale, to_scale: Scale) -> Values:
    """Maps values linearly from one scale to another."""
    (low, high), (to_low, to_high) = from_scale, to_scale
    return to_low + (values - low) * ((to_high - to_low) / (high - low))


def to_categories(values: FloatArray, scale: Scale) -> FloatArray:
    """Rounds values to whole steps of a scale from its low end, halves up (five for 1-5)."""
    low, high = scale
    return np.floor((values - low) / min(1.0, high - low) + 0.5)


def share_equal(ratings: FloatArray) -> float:
    """The share of units that two columns rate the same."""
    return mean(ratings[:, 0] == ratings[:, 1])


def weighted_kappa(ratings: FloatArray) -> float:
    """Cohen's kappa of two columns with quadratic weights: 1 - E(x - y)² / its value by chance.
    Computed as Lin's concordance, 2 cov / (var x + var y + (mean x - mean y)²), which equals it for
    whole numbers and is defined for others."""
    x, y = ratings[:, 0], ratings[:, 1]
    if not x.size:
        return np.nan
    by_chance = x.var() + y.var() + (x.mean() - y.mean()) ** 2
    return float(1 - ((x - y) ** 2).mean() / by_chance) if by_chance > 0 else np.nan


def spearman(ratings: FloatArray) -> float:
    """Pearson's correlation of midranks."""
    x, y = midranks(ratings[:, 0]), midranks(ratings[:, 1])
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return np.nan
    return float(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))


def alpha_interval(ratings: FloatArray) -> float:
    """Krippendorff's alpha with the difference (x - y)², for any number of raters, with gaps
    (Computing Krippendorff's Alpha-Reliability, 2011), its sums over pairs as sums over values."""
    pairable = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    if not pairable.size:
        return np.nan
    pairable = pairable - np.nanmean(pairable)
    n_ratings = (~np.isnan(pairable)).sum(axis=1)
    n, squares = n_ratings.sum(), np.nansum(pairable**2, axis=1)
    observed = (
        2 * (n_ratings * squares - np.nansum(pairable, axis=1) ** 2) / (n_ratings - 1)
    ).sum() / n
    by_chance = 2 * (n * squares.sum() - np.nansum(pairable) ** 2) / (n * (n - 1))
    return float(1 - observed / by_chance) if by_chance > 0 else np.nan


def alpha_ordinal(ratings: FloatArray) -> float:
    """Krippendorff's alpha with the ordinal difference: of midranks among pairable values."""
    ranked = ratings[(~np.isnan(ratings)).sum(axis=1) > 1].copy()
    is_rated = ~np.isnan(ranked)
    ranked[is_rated] = midranks(ranked[is_rated])
    return alpha_interval(ranked)


def alpha_nominal(ratings: FloatArray) -> float:
    """Krippendorff's alpha with the nominal difference: 0 for equal values, else 1."""
    pairable = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    if not pairable.size:
        return np.nan
    n_ratings = (~np.isnan(pairable)).sum(axis=1)
    by_value = np.stack(
        [(pairable == value).sum(axis=1) for value in np.unique(pairable[~np.isnan(pairable)])]
    )
    n = n_ratings.sum()
    observed = ((n_ratings**2 - (by_value**2).sum(axis=0)) / (n_ratings - 1)).sum() / n
    by_chance = (n**2 - (by_value.sum(axis=1) ** 2).sum()) / (n * (n - 1))
    return float(1 - observed / by_chance) if by_chance > 0 else np.nan


def midranks(values: FloatArray) -> FloatArray:
    """Ranks values from 1; equal values share the mean of their ranks."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    return ranks


def mean_over_pairs(statistic: Callable[[FloatArray], float], ratings: FloatArray) -> float:
    """Averages a statistic over all pairs of columns, each on the rows that have both."""
    values = []
    for first, other in combinations(range(ratings.shape[1]), 2):
        both = ratings[:, [first, other]]
        values.append(statistic(both[~np.isnan(both).any(axis=1)]))
    return mean(np.array([value for value in values if not np.isnan(value)]))


def mean(values: npt.NDArray[np.floating | np.bool_]) -> float:
    """The mean, NaN for no values."""
    return float(values.mean()) if values.size else np.nan
