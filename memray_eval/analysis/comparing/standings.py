"""Sets each of three or more sides against the best one of each metric, on the units of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc

from memray_eval.analysis.comparing.models import MetricComparison, Side, Standing
from memray_eval.analysis.marks import why_undecided
from memray_eval.analysis.statistics import Clusters, Rows, Settings, holm, mean_interval, paired_p
from memray_eval.analysis.where import clusters_of_units


def find_standings(
    sides: Sequence[Side],
    metrics: Sequence[str],
    cluster: str | None,
    how: Settings,
    against_first: Sequence[MetricComparison],
) -> list[Standing]:
    """Every side's standing on each metric that all sides have (of `metrics`, if these are named)
    and that enough answers and verdicts count in.

    The best has the highest figure in the same data, so p-values (Student's, paired) are corrected
    for all pairs of sides before Holm's correction over metrics and sides. Of pairs with the first
    side the comparisons `against_first` decide, as their own sentences say what they show."""
    rows = _common_rows(sides)
    units = sides[0].scores.units["cluster"].take(rows[0])
    clusters = clusters_of_units(units) if cluster is not None and len(units) else None
    found = [
        standing
        for name in metrics or sides[0].scores.values
        if all(name in side.scores.values for side in sides)
        and not any(
            why_undecided(*side.scores.count_left_out(name, of))
            for side, of in zip(sides, rows, strict=True)
        )
        for standing in _of_metric(sides, name, rows, clusters, how)
    ]
    for_pairs = math.comb(len(sides), 2) / (len(sides) - 1)
    corrected = holm([min(1.0, p * for_pairs) for _, p in found])
    first = sides[0].name
    below = {
        (row.metric, row.other if (row.paired.difference or 0.0) < 0 else first)
        for row in against_first
        if row.is_found(how.level)
    }
    return [
        row.model_copy(
            update={
                "p_holm": p if row.best else None,
                "is_best": (row.metric, row.side) not in below
                and (first in (row.side, row.best) or p > 1 - how.level),
            }
        )
        for (row, _), p in zip(found, corrected, strict=True)
    ]


def _of_metric(
    sides: Sequence[Side], name: str, rows: Sequence[Rows], clusters: Clusters | None,
    how: Settings,
) -> Iterator[tuple[Standing, float]]:  # fmt: skip
    """Yields the sides' standings on one metric, with p-values before correction; none if no unit
    is scored on all sides, or one of them has nothing to divide by."""
    columns = [side.scores.values[name][of] for side, of in zip(sides, rows, strict=True)]
    is_scored = ~np.isnan(columns).any(axis=0)
    figures = [
        values
        for side, of in zip(sides, rows, strict=True)
        if is_scored.any() and (values := side.scores.of_figure(name, of[is_scored])) is not None
    ]
    if len(figures) < len(sides):
        return
    groups = None if clusters is None else clusters[is_scored]
    means = [float(values.mean()) for values in figures]
    best = means.index(max(means))
    for at, (side, values) in enumerate(zip(sides, figures, strict=True)):
        low, high = mean_interval(values, groups, how, side.scales.get(name)) or (None, None)
        yield (
            Standing(
                metric=name, side=side.name, n=values.size, value=means[at], low=low, high=high,
                best="" if at == best else sides[best].name,
            ),
            1.0 if at == best else paired_p(figures[best], values, groups),
        )  # fmt: skip


def _common_rows(sides: Sequence[Side]) -> list[Rows]:
    """Each side's rows of the units that all sides have, in one order."""
    by_side = [side.scores.units["key"].combine_chunks() for side in sides]
    keys = by_side[0]
    for others in by_side[1:]:
        keys = keys.filter(pc.is_in(keys, value_set=others))
    return [pc.index_in(keys, value_set=own).to_numpy().astype(np.intp) for own in by_side]
