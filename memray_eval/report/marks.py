"""Marks for figures that are not, or not wholly, the verdict of a judge."""

from __future__ import annotations

from collections.abc import Mapping

from memray_eval.types import FALLBACKS, MetricSummary

ESTIMATE = "estimate"
_REPLACED = "by fallback"


def mark(n_scored: int, estimates: int, fallbacks: int | Mapping[str, int] = 0) -> str:
    """The mark of a figure over `n_scored` units: "estimate" if rules alone scored it, how many if
    they scored some, and how many a rule scored in place of a judge that failed (`fallbacks`, by
    name or in all). "" if all are verdicts."""
    parts = []
    if estimates:
        share = "" if estimates == n_scored else f" for {estimates} of {n_scored}"
        parts.append(f"{ESTIMATE}{share}")
    counts = {"": fallbacks} if isinstance(fallbacks, int) else fallbacks
    for way, count in counts.items():
        if count:
            parts.append(f"{count} of {n_scored} {FALLBACKS.get(way, _REPLACED)}")
    return ", ".join(parts)


def metric_mark(metric: MetricSummary) -> str:
    """The mark of a metric's figures."""
    return mark(metric.n_scored, metric.n_estimated, fallbacks_of(metric))


def fallbacks_of(metric: MetricSummary) -> dict[str, int]:
    """How many units each fallback scored."""
    return {judge: count for judge, count in metric.judges.items() if judge in FALLBACKS}


def append_mark(figure: str, mark: str) -> str:
    """Appends a mark to a figure, if there is one."""
    return f"{figure} {mark}" if mark else figure
