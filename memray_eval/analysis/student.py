"""Quantiles of Student's t distribution without scipy, accurate to eight digits of scipy's."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

_SERIES_UP_TO = 200  # degrees of freedom; above, the expansion is as exact as a double shows
_NORMAL = NormalDist()


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: int) -> float:
    """The t below which `share` (0-1, ends excluded) of Student's distribution lies, for 1 or more
    whole degrees of freedom."""
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    if freedom > _SERIES_UP_TO:
        return _t_from_normal(_NORMAL.inv_cdf(share), freedom)
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _central_share(middle, freedom) < 2 * share - 1 else (low, middle)
        )
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _central_share(angle: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) tan(angle)): Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even
    degrees of freedom)."""
    sine, square = math.sin(angle), math.cos(angle) ** 2
    if freedom % 2 == 0:
        above = np.arange(1, freedom - 2, 2)
        return sine * (1.0 + float(np.cumprod(above / (above + 1) * square).sum()))
    if freedom == 1:
        return 2 * angle / math.pi
    above = np.arange(2, freedom - 2, 2)
    series = 1.0 + float(np.cumprod(above / (above + 1) * square).sum())
    return 2 / math.pi * (angle + sine * math.cos(angle) * series)


def _t_from_normal(z: float, freedom: int) -> float:
    """Student's quantile from the normal one, for many degrees of freedom: Abramowitz and Stegun
    26.7.5."""
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
