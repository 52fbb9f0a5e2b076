"""Adjusted figures in words, for the console and the page."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.analysis.marks import digits_of
from memray_eval.report.sections import bounded
from memray_eval.types import AdjustedFigure, MetricSummary, Summary


def adjusted_lines(summary: Summary) -> Iterator[str]:
    """A line or two for each metric that the run's labels are of, the second one indented."""
    several = len(summary.candidates) > 1
    for metric in summary.metrics:
        if metric.adjusted is not None:
            of = f" ({metric.candidate})" if several else ""
            for number, line in enumerate(describe_adjusted(metric, metric.adjusted)):
                yield f"  {line}" if number else f"{metric.metric}{of}: {line}"


def describe_adjusted(metric: MetricSummary, adjusted: AdjustedFigure) -> Iterator[str]:
    """The adjustment and its labels; then the precision that more of them would give."""
    if adjusted.refused:
        yield f"not adjusted by {adjusted.labelled}: {adjusted.refused}."
        return
    digits = digits_of(metric.scale)
    own = "of its own answers" if adjusted.is_own else f"of {adjusted.labelled}"
    if adjusted.sensitivity is not None and adjusted.specificity is not None:
        by = f"sensitivity {adjusted.sensitivity:z.2f}, specificity {adjusted.specificity:z.2f}"
    else:
        by = f"lambda {adjusted.tuning or 0.0:z.2f}"
        by += "" if adjusted.is_own else ", if these answers are like the labelled ones"
    yield (
        f"{format_adjusted(metric)} adjusted, the mean of the answers "
        f"{adjusted.raw or 0.0:z.{digits}f} raw; by {adjusted.n_labels:,} labels {own} "
        f"({adjusted.method}: {by})."
    )
    if adjusted.needed and adjusted.least_half_width is not None:
        more = ", ".join(
            f"{step.more:,} more about ± {step.half_width:z.{digits}f}" for step in adjusted.needed
        )
        yield (
            f"Labels like these would give: {more}; no number of them less than ± "
            f"{adjusted.least_half_width:z.{digits}f} with this many answers."
        )


def format_adjusted(metric: MetricSummary) -> str:
    """The adjusted figure with its interval, "" if there is none."""
    adjusted, digits = metric.adjusted, digits_of(metric.scale)
    if adjusted is None or adjusted.value is None:
        return ""
    return bounded(adjusted.value, adjusted.low, adjusted.high, f"z.{digits}f")
