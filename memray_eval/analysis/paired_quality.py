"""Measures how the qualities of a run's candidates differ, pair by pair, on the prompts that both
answered. What stays in memory is one number per prompt, candidate and compared metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pyarrow.dataset as pads

from memray_eval.analysis.scores import Scores, find_cluster, read_all_scores
from memray_eval.analysis.statistics import (
    SETTINGS,
    TIE,
    Clusters,
    Settings,
    count_units,
    difference_interval,
    mean_error,
    more_to_show,
)
from memray_eval.analysis.where import clusters_of_units, common_rows
from memray_eval.metric import Metric
from memray_eval.ports import FloatArray
from memray_eval.types import MetricSummary, QualityPair

_POINTS = 100.0


def paired_qualities(
    records: pads.Dataset, headline: Metric, candidates: Sequence[str]
) -> tuple[QualityPair, ...]:
    """Compares every pair of candidates by the headline metric, its scale laid over 0-100. The
    level holds for all intervals together."""
    pairs = list(combinations(candidates, 2))
    if not pairs:
        return ()
    scores = read_all_scores(records, candidates, find_cluster(records), metrics=[headline.name])
    settings = SETTINGS.for_all(len(pairs))
    return tuple(_compare(headline, scores[a], scores[b], (a, b), settings) for a, b in pairs)


def differences_from_best(
    records: pads.Dataset, metrics: Sequence[MetricSummary], by_name: Mapping[str, Metric]
) -> tuple[QualityPair, ...]:
    """Compares, for each metric, every candidate (b) with the one of the highest figure (a). The
    level holds for all pairs of candidates and all metrics together."""
    rated: dict[str, dict[str, float]] = {}
    for metric in metrics:
        if metric.figure.value is not None and metric.metric in by_name:
            rated.setdefault(metric.metric, {})[metric.candidate] = metric.figure.value
    compared = {name: figures for name, figures in rated.items() if len(figures) > 1}
    candidates = sorted({name for figures in compared.values() for name in figures})
    if not compared:
        return ()
    settings = SETTINGS.for_all(len(compared) * math.comb(len(candidates), 2))
    scores = read_all_scores(records, candidates, find_cluster(records), metrics=list(compared))
    return tuple(
        _compare(by_name[name], scores[best], scores[other], (best, other), settings)
        for name, figures in compared.items()
        for best in [max(sorted(figures), key=lambda candidate: figures[candidate])]
        for other in sorted(figures)
        if other != best
    )


def _compare(
    metric: Metric, a: Scores, b: Scores, names: tuple[str, str], settings: Settings
) -> QualityPair:
    """Compares two candidates by one metric, its scale laid over 0-1, on their common prompts."""
    name, nothing = metric.name, np.zeros(0)
    if not (name in a.values and name in b.values):
        return QualityPair(a=names[0], b=names[1], n=0, level=settings.level, metric=name)
    rows_a, rows_b = common_rows(a, b)
    both = ~np.isnan(a.values[name][rows_a]) & ~np.isnan(b.values[name][rows_b])
    low, width = metric.scale[0], (metric.scale[1] - metric.scale[0]) or 1.0
    sides = a.of_figure(name, rows_a[both]), b.of_figure(name, rows_b[both])
    of_a, of_b = (nothing if side is None else (side - low) / width for side in sides)
    if of_a.size != of_b.size:  # one side has nothing to divide by
        of_a = of_b = nothing
    clusters = clusters_of_units(b.units["cluster"].take(rows_b[both])) if of_b.size else None
    pair = pair_of(*names, of_a, of_b, clusters, settings)
    return pair.model_copy(update={"metric": name})


def pair_of(
    a: str,
    b: str,
    of_a: FloatArray,
    of_b: FloatArray,
    clusters: Clusters | None = None,
    settings: Settings = SETTINGS,
) -> QualityPair:
    """Compares two columns of qualities in 0-1, one row per prompt."""
    pair = QualityPair(a=a, b=b, n=of_a.size, level=settings.level)
    if not of_a.size:
        return pair
    difference = float((of_b - of_a).mean())
    error, units = mean_error(of_b - of_a, clusters) or 0.0, count_units(of_a, clusters)
    interval = difference_interval(of_a, of_b, clusters, settings, (0.0, 1.0))
    if interval is not None:
        is_shown = interval.low > 0 or interval.high < 0
    else:  # no spread: only the number of units can tell
        is_shown = abs(difference) > TIE and 2.0 ** (1 - units) < 1 - settings.level
    more = None if is_shown else more_to_show(difference, error, of_a.size, units, settings)
    return pair.model_copy(
        update={
            "difference": _POINTS * difference,
            "low": interval and _POINTS * interval.low,
            "high": interval and _POINTS * interval.high,
            "is_shown": is_shown,
            "more": more,
        }
    )
