"""Tells adjusted figures in words, for the console and the page."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.analysis.marks import digits_of
from memray_eval.types import AdjustedFigure, MetricSummary, Summary


def adjusted_lines(summary: Summary) -> Iterator[str]:
    """A line or two for each metric that the run's labels are of, the second one indented."""
    for metric, of, told in _adjusted_metrics(summary):
        for number, line in enumerate(told):
            yield f"  {line}" if number else f"{metric}{of}: {line}"


def adjusted_paragraphs(summary: Summary) -> Iterator[str]:
    """The same as one text for each metric, whose name is in words."""
    for metric, of, told in _adjusted_metrics(summary):
        text = f"{metric.replace('_', ' ')}{of}: {' '.join(told)}"
        yield text.replace("± ", "±\N{NO-BREAK SPACE}")


def _adjusted_metrics(summary: Summary) -> Iterator[tuple[str, str, list[str]]]:
    """Each metric that the labels are of, whose it is where there are several, and what is told."""
    several = len(summary.candidates) > 1
    for one in summary.metrics:
        if one.adjusted is not None:
            of = f" ({one.candidate})" if several else ""
            yield one.metric, of, list(describe_adjusted(one, one.adjusted))


def describe_adjusted(one: MetricSummary, found: AdjustedFigure) -> Iterator[str]:
    """Says what was adjusted, to what, by which labels; then what more of them would give."""
    if found.refused:
        yield f"not adjusted by {found.labelled}: {found.refused}."
        return
    digits = digits_of(one.scale)
    own = "of its own answers" if found.is_own else f"of {found.labelled}"
    if found.sensitivity is not None and found.specificity is not None:
        by = f"sensitivity {found.sensitivity:z.2f}, specificity {found.specificity:z.2f}"
    else:
        by = f"lambda {found.tuning or 0.0:z.2f}"
        by += "" if found.is_own else ", if these answers are like the labelled ones"
    yield (
        f"{format_adjusted(one)} adjusted, the mean of the answers {found.raw or 0.0:z.{digits}f} "
        f"raw; by {found.n_labels:,} labels {own} ({found.method}: {by})."
    )
    if found.needed and found.least_half_width is not None:
        more = ", ".join(
            f"{each.more:,} more about ± {each.half_width:z.{digits}f}" for each in found.needed
        )
        yield (
            f"Labels like these would give: {more}; no number of them less than ± "
            f"{found.least_half_width:z.{digits}f} with this many answers."
        )


def format_adjusted(one: MetricSummary) -> str:
    """The adjusted figure with its interval, "" where there is none."""
    found, digits = one.adjusted, digits_of(one.scale)
    if found is None or found.value is None:
        return ""
    between = (
        ""
        if found.low is None or found.high is None
        else f" [{found.low:z.{digits}f}, {found.high:z.{digits}f}]"
    )
    return f"{found.value:z.{digits}f}{between}"
