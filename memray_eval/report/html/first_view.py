"""What the head of a page says below its answer: how sure that is, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from memray_eval.analysis.comparing.models import Comparison
from memray_eval.analysis.marks import name_figure
from memray_eval.report.answer import is_mostly_estimated
from memray_eval.report.html.places import Places
from memray_eval.report.html.prompts import ScoreMeaning
from memray_eval.report.html.view_model import label
from memray_eval.report.html.why import Why
from memray_eval.report.sections import count_span
from memray_eval.types import MetricSummary, Summary

FEW = 30  # answers a figure: below, intervals are wide


class Link(NamedTuple):
    """A part of the page, or rows of its list, at `address`."""

    text: str
    address: str


def doubts(summary: Summary, meanings: Mapping[str, ScoreMeaning]) -> Iterator[str]:
    """How much was scored and by what, and how far the headline's judge agrees with people."""
    measured = [metric for metric in summary.metrics if metric.coverage is not None]
    scored = [metric for metric in measured if metric.n_scored]
    if not scored:
        return
    least = min(measured, key=lambda metric: metric.coverage or 0.0)
    yield _describe_coverage(least, len(summary.candidates) > 1)
    if min(metric.n_scored for metric in scored) < FEW:
        yield f"few answers: n {count_span([metric.n_scored for metric in scored], ',')} a figure"
    estimated = [name_figure(metric) for metric in scored if is_mostly_estimated(metric)]
    if estimated:
        yield f"estimates, not verdicts: {', '.join(dict.fromkeys(estimated))}"
    if replaced := sum(metric.n_fallbacks for metric in scored):
        yield f"{replaced:,} verdict{'s' * (replaced > 1)} by rules, since the judge failed"
    if meaning := meanings.get(summary.headline):
        yield f"judge of {summary.headline} against people: {meaning.agreement[0]}"


def doubts_of_comparison(comparison: Comparison) -> Iterator[str]:
    """How many units the differences are of, which are of estimates, and the correction."""
    if not (rows := [row for row in comparison.metrics if row.paired.difference is not None]):
        return
    counts = [row.paired.n for row in rows]
    few = "few units: " * (min(counts) < FEW)
    yield f"{few}{count_span(counts, ',')} paired units a difference"
    if estimated := dict.fromkeys(name_figure(row) for row in rows if row.mark):
        yield f"not all verdicts of a judge: {', '.join(estimated)}"
    yield "corrected for the number of differences (Holm)"


def _describe_coverage(least: MetricSummary, has_several: bool) -> str:
    of_candidate = f" of {least.candidate}" if has_several else ""
    applicable = least.n - least.n_not_applicable
    if least.n_scored == applicable:
        return "every answer is scored"
    return f"{least.metric}{of_candidate} has {least.n_scored:,} of {applicable:,} answers scored"


def list_links(summary: Summary, places: Places | None, why: Why | None) -> Iterator[Link]:
    """Lists what failed, the rows behind the answer, the first group, and what has no value."""
    if n := summary.n_failed_units:
        address = "#failures" if summary.causes else "#samples?status=error"
        yield Link(f"{n:,} failed", address)
    if why and why.rows:
        yield Link(why.says[:1].lower() + why.says[1:], "#why")
    if places and places.panels:
        split = places.panels[0].split
        yield Link(f"{label(split.metric)} by {label(split.by)}", "#where")
    for status, n in (
        ("abstained", sum(metric.n_abstained for metric in summary.metrics)),
        ("no_answer", sum(metric.n_no_answer for metric in summary.metrics)),
    ):
        if n:
            yield Link(f"{n:,} without a score ({label(status)})", f"#samples?status={status}")
