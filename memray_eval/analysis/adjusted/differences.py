"""Puts adjusted differences beside those of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memray_eval.analysis.adjusted.estimators import (
    Verdicts,
    estimates_difference,
    rogan_gladen_difference,
)
from memray_eval.analysis.adjusted.labelled_verdicts import Calibrations
from memray_eval.analysis.adjusted.summaries import (
    Correction,
    JudgedSide,
    Refusal,
    check_metrics,
    estimate,
    find_correction,
    read_side,
)
from memray_eval.analysis.comparing.models import (
    AdjustedDifference,
    AlignedUnits,
    Comparison,
    Side,
    align_units,
)
from memray_eval.analysis.comparing.open_runs import ComparedRun
from memray_eval.storage.paths import readable

_MOVES_BOTH = (
    "labels of other answers move both sides alike on this scale; label answers of both runs"
)


def adjust_comparison(
    comparison: Comparison,
    sides: Sequence[Side],
    opened: Sequence[ComparedRun],
    calibrations: Calibrations,
) -> Comparison:
    """The comparison with an adjusted difference, or why there is none, for each metric that the
    calibrations are of. Raises ConfigError where they are of none that was compared."""
    if not calibrations:
        return comparison
    check_metrics(calibrations, list(dict.fromkeys(row.metric for row in comparison.metrics)))
    numbers: dict[str, int] = {}
    judged = [_read(side, run, numbers) for side, run in zip(sides, opened, strict=True)]
    adjusted = [
        difference
        for common, side, of_side in zip(comparison.common, sides[1:], judged[1:], strict=True)
        for units in [align_units(sides[0], side, common.letter, comparison.cluster)]
        for row in comparison.rows_of(side.name)
        if (scale := comparison.scales.get(row.metric)) is not None
        for difference in [_adjust(row.metric, units, judged[0], of_side, calibrations, scale)]
        if difference is not None
    ]
    return comparison.model_copy(update={"adjusted": tuple(adjusted)})


def _read(side: Side, run: ComparedRun, numbers: dict[str, int]) -> JudgedSide:
    of_run = side.candidate, run.folder.run_id, side.manifest
    with readable(run.folder.path):
        return read_side(run.folder.records(), *of_run, numbers, side.scores)


def _adjust(
    metric: str,
    units: AlignedUnits,
    a: JudgedSide,
    b: JudgedSide,
    calibrations: Calibrations,
    scale: tuple[float, float],
) -> AdjustedDifference | None:
    """The metric's adjusted difference, or why there is none; None if no calibration is of it."""
    named = AdjustedDifference(metric=metric, other=units.other.name, letter=units.common.letter)
    of_a, of_b = (find_correction(calibrations, side, metric, scale) for side in (a, b))
    for correction in (of_a, of_b):
        if isinstance(correction, Refusal):
            refused = {"refused": correction.reason, "labelled": correction.labelled}
            return named.model_copy(update=refused)
    if not isinstance(of_a, Correction) or not isinstance(of_b, Correction):
        return None
    sides = ((a, units.rows_a), (b, units.rows_b))
    width = (scale[1] - scale[0]) or 1.0
    shares = [(side.scores.values[metric][rows] - scale[0]) / width for side, rows in sides]
    both = ~np.isnan(shares).any(axis=0)
    first, second = (
        Verdicts(share[both], side.clusters[rows[both]])
        for share, (side, rows) in zip(shares, sides, strict=True)
    )
    return named.model_copy(update=_measure((first, second), (of_a, of_b), scale))


def _measure(
    sides: tuple[Verdicts, Verdicts],
    corrections: tuple[Correction, Correction],
    scale: tuple[float, float],
) -> dict[str, Any]:
    """The fields of an adjusted difference of the same units on both sides."""
    (a, b), (of_a, of_b), low = sides, corrections, scale[0]
    width, is_own = (scale[1] - scale[0]) or 1.0, of_a.is_own and of_b.is_own
    n_labels = of_b.labels.people.size + (of_a.labels.people.size if is_own else 0)
    fields: dict[str, Any] = {"n": a.judge.size, "labelled": of_b.labelled, "n_labels": n_labels}
    if not a.judge.size:
        return fields | {"refused": "no unit is scored on both sides"}
    mean_a, mean_b = estimate(*a, of_a), estimate(*b, of_b)
    if is_own:
        difference, ends = estimates_difference(mean_a, mean_b)
    elif mean_a.sensitivity is not None and mean_b.sensitivity is not None:
        difference, ends = rogan_gladen_difference(a, b, of_b.labels)
    else:
        return fields | {"refused": _MOVES_BOTH}
    return fields | {
        "method": "PPI++" if is_own else "Rogan-Gladen",
        "mean_a": low + width * mean_a.value,
        "mean_b": low + width * mean_b.value,
        "difference": width * difference,
        "low": width * ends.low,
        "high": width * ends.high,
    }
