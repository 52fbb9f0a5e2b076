"""Sets each of three or more sides against the best one of each metric, on the units of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc

from memray_eval.analysis.comparing.models import Side, Standing
from memray_eval.analysis.statistics import Clusters, Rows, Settings, holm, mean_interval, paired_p
from memray_eval.analysis.where import clusters_of_units


def stand(
    sides: Sequence[Side], metrics: Sequence[str], cluster: str | None, how: Settings
) -> list[Standing]:
    """Every side's standing on each metric that all sides have (of `metrics`, if these are named).

    The best has the highest figure in the same data, so p-values (Student's, paired) are corrected
    for all pairs of sides before Holm's correction over metrics and sides."""
    rows = _common_rows(sides)
    units = sides[0].scores.units["cluster"].take(rows[0])
    clusters = clusters_of_units(units) if cluster is not None and len(units) else None
    found = [
        standing
        for name in metrics or sides[0].scores.values
        if all(name in side.scores.values for side in sides)
        for standing in _of_metric(sides, name, rows, clusters, how)
    ]
    for_pairs = math.comb(len(sides), 2) / (len(sides) - 1)
    raw = [min(1.0, row.p_holm * for_pairs) for row in found if row.p_holm is not None]
    corrected = iter(holm(raw))
    return [
        row
        if row.p_holm is None
        else row.model_copy(update={"p_holm": (p := next(corrected)), "is_best": p > 1 - how.level})
        for row in found
    ]


def _of_metric(
    sides: Sequence[Side],
    name: str,
    rows: Sequence[Rows],
    clusters: Clusters | None,
    how: Settings,
) -> Iterator[Standing]:
    """Yields the sides' standings on one metric, of p-values before correction; none if no unit is
    scored on all sides, or one of them has nothing to divide by."""
    columns = [side.scores.values[name][of] for side, of in zip(sides, rows, strict=True)]
    is_scored = ~np.isnan(columns).any(axis=0)
    kept = [of[is_scored] for of in rows]
    figures = [
        values
        for side, of in zip(sides, kept, strict=True)
        if of.size and (values := side.scores.of_figure(name, of)) is not None
    ]
    if len(figures) < len(sides):
        return
    groups = None if clusters is None else clusters[is_scored]
    best = max(range(len(sides)), key=lambda at: float(figures[at].mean()))
    for at, (side, values) in enumerate(zip(sides, figures, strict=True)):
        low, high = mean_interval(values, groups, how, side.scales.get(name)) or (None, None)
        yield Standing(
            metric=name,
            average="micro" if name in side.scores.shares else "mean",
            side=side.name,
            n=values.size,
            value=float(values.mean()),
            low=low,
            high=high,
            best="" if at == best else sides[best].name,
            p_holm=None if at == best else paired_p(figures[best], values, groups),
            mark=side.scores.mark_of(name, kept[at]),
        )


def _common_rows(sides: Sequence[Side]) -> list[Rows]:
    """Each side's rows of the units that all sides have, in one order."""
    by_side = [side.scores.units["key"].combine_chunks() for side in sides]
    keys = by_side[0]
    for others in by_side[1:]:
        keys = keys.filter(pc.is_in(keys, value_set=others))
    return [pc.index_in(keys, value_set=own).to_numpy().astype(np.intp) for own in by_side]
