"""Puts adjusted differences beside those of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memray_eval.report.adjusted.estimators import (
    Verdicts,
    estimates_difference,
    rogan_gladen_difference,
)
from memray_eval.report.adjusted.labelled_verdicts import Calibrations
from memray_eval.report.adjusted.summaries import (
    Correction,
    JudgedSide,
    Refusal,
    check_metrics,
    estimate,
    find_correction,
    read_side,
)
from memray_eval.report.comparing.aligned_units import AlignedUnits, align_units
from memray_eval.report.comparing.models import AdjustedDifference, Comparison, Side
from memray_eval.report.comparing.open_runs import ComparedRun
from memray_eval.report.reading import readable

Scales = Mapping[str, tuple[float, float]]


def adjust_comparison(
    comparison: Comparison,
    sides: Sequence[Side],
    opened: Sequence[ComparedRun],
    calibrations: Calibrations,
    scales: Scales,
) -> Comparison:
    """The comparison with an adjusted difference, or why there is none, for each metric that the
    calibrations are of. Raises ConfigError where they are of none that was compared."""
    if not calibrations:
        return comparison
    check_metrics(calibrations, list(dict.fromkeys(one.metric for one in comparison.metrics)))
    numbers: dict[str, int] = {}
    judged = [_read(side, run, numbers) for side, run in zip(sides, opened, strict=True)]
    found = [
        made
        for common, side, of_side in zip(comparison.common, sides[1:], judged[1:], strict=True)
        for units in [align_units(sides[0], side, common.letter, comparison.cluster)]
        for row in comparison.metrics
        if row.other == side.name and row.metric in scales
        for made in _adjust(row.metric, units, judged[0], of_side, calibrations, scales)
    ]
    return comparison.model_copy(update={"adjusted": tuple(found)})


def _read(side: Side, run: ComparedRun, numbers: dict[str, int]) -> JudgedSide:
    with readable(run.folder.path):
        return read_side(
            run.folder.records(), side.candidate, run.folder.run_id, side.manifest, numbers,
            side.scores,
        )  # fmt: skip


def _adjust(
    metric: str,
    units: AlignedUnits,
    a: JudgedSide,
    b: JudgedSide,
    calibrations: Calibrations,
    scales: Scales,
) -> Iterator[AdjustedDifference]:
    """Yields the metric's adjusted difference; nothing if no calibration is of it."""
    scale, letter, other = scales[metric], units.common.letter, units.other.name
    found = [find_correction(calibrations, side, metric, scale) for side in (a, b)]
    refused = next((one for one in found if isinstance(one, Refusal)), None)
    named = {"metric": metric, "other": other, "letter": letter}
    if refused is not None:
        yield AdjustedDifference(refused=refused.reason, labelled=refused.labelled, **named)
        return
    of_a, of_b = (one if isinstance(one, Correction) else None for one in found)
    if of_a is None or of_b is None:
        if one := of_a or of_b:
            reason = "only one side has labels: label answers of both"
            yield AdjustedDifference(refused=reason, labelled=one.labelled, **named)
        return
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    values = [
        (side.scores.values[metric][rows] - low) / width
        for side, rows in ((a, units.rows_a), (b, units.rows_b))
    ]
    both = ~np.isnan(values[0]) & ~np.isnan(values[1])
    told = {"n": int(both.sum()), "labelled": of_b.labelled, "n_labels": of_b.labels.people.size}
    if not both.any():
        yield AdjustedDifference(refused="no unit is scored on both sides", **told, **named)
        return
    sides = [
        Verdicts(shares[both], side.clusters[rows[both]])
        for shares, side, rows in zip(values, (a, b), (units.rows_a, units.rows_b), strict=True)
    ]
    means = [
        estimate(side.judge, side.clusters, one)
        for side, one in zip(sides, (of_a, of_b), strict=True)
    ]
    if of_a.is_own and of_b.is_own:
        difference, ends = estimates_difference(*means)
        told["n_labels"] = of_a.labels.people.size + of_b.labels.people.size
    elif all(one.sensitivity is not None for one in means):
        difference, ends = rogan_gladen_difference(*sides, of_b.labels)
    else:
        reason = (
            "labels of other answers move both sides alike on this scale; label answers of both "
            "runs"
        )
        yield AdjustedDifference(refused=reason, **told, **named)
        return
    yield AdjustedDifference(
        method="Rogan-Gladen" if means[0].sensitivity is not None else "PPI++",
        mean_a=low + width * means[0].value,
        mean_b=low + width * means[1].value,
        difference=width * difference,
        low=width * ends.low,
        high=width * ends.high,
        **told,
        **named,
    )
