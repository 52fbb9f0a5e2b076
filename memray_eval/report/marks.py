"""What stands beside a figure that is not, or not wholly, the verdict of a judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memray_eval.types import FALLBACKS, MetricSummary

ESTIMATE = "estimate"
_REPLACED = "by fallback"


def mark(n_scored: int, estimates: int, fallbacks: int | Mapping[str, int] = 0) -> str:
    """What a figure over `n_scored` units is to be marked with: "estimate" where rules alone scored
    it, how many where they scored some, and how many a rule scored in place of a judge that failed
    (by its name, where they are told apart). "" for verdicts alone."""
    return ", ".join(_parts(n_scored, estimates, fallbacks))


def metric_mark(metric: MetricSummary) -> str:
    """The mark of a metric's figures."""
    return mark(metric.n_scored, metric.n_estimated, fallbacks_of(metric))


def fallbacks_of(metric: MetricSummary) -> dict[str, int]:
    """How many units each fallback scored."""
    return {judge: count for judge, count in metric.judges.items() if judge in FALLBACKS}


def append_mark(figure: str, told: str) -> str:
    """A figure with its mark behind it."""
    return f"{figure} {told}" if told else figure


def _parts(n_scored: int, estimates: int, fallbacks: int | Mapping[str, int]) -> Iterator[str]:
    if estimates:
        yield ESTIMATE if estimates == n_scored else f"{ESTIMATE} for {estimates} of {n_scored}"
    counts = {"": fallbacks} if isinstance(fallbacks, int) else fallbacks
    for way, count in counts.items():
        if count:
            yield f"{count} of {n_scored} {FALLBACKS.get(way, _REPLACED)}"
