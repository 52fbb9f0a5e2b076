"""The head of a page below its answer: how sure that is, what to look at, plots of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.analysis.comparing import Comparison
from memray_eval.analysis.marks import digits_of, name_figure
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import GroupFigure, Split
from memray_eval.report.answer import is_mostly_estimated
from memray_eval.report.html.plots import Axis, forest_axis, forest_row
from memray_eval.report.html.view_model import label
from memray_eval.report.html.why import ScoreMeaning, Why
from memray_eval.report.sections import count_span
from memray_eval.types import Summary

PANELS, GROUPS = 6, 6  # shown at once; the others are folded
LEAST_SPAN = 0.05  # of a scale, to both sides of 0, so that a tiny difference does not look large


class PlaceRow(NamedTuple):
    """A group: its difference in the metric's own scale, and drawn in percent of it."""

    group: str
    n: str
    plot: Markup
    difference: str
    low: str
    high: str
    is_shown: bool


class Panel(NamedTuple):
    """A split with its groups drawn, of which those after GROUPS are folded."""

    split: Split
    rows: tuple[PlaceRow, ...]
    rest: tuple[PlaceRow, ...]


class Places(NamedTuple):
    """`says` tells what the differences are, and `rest` are the panels that are folded."""

    says: str
    axis: Markup
    panels: tuple[Panel, ...]
    rest: tuple[Panel, ...]


def draw_places(splits: Sequence[Split]) -> Places | None:
    """Draws the splits in their order, groups that do not stand out folded; None without any."""
    if not splits:
        return None
    shown = [(split, group) for split in splits[:PANELS] for group in split.groups]
    shares = [abs(group.difference) / _width(split) for split, group in shown]
    span = min(1.0, max(LEAST_SPAN, 1.6 * max(shares)))
    axis = Axis(-span, span, 8, 142)
    drawn = [tuple(_row(split, group, axis) for group in split.groups) for split in splits]
    panels = []
    for split, rows in zip(splits, drawn, strict=True):
        n_shown = min(GROUPS, sum(row.is_shown for row in rows) or GROUPS)
        panels.append(Panel(split, rows[:n_shown], rows[n_shown:]))
    n = min(PANELS, sum(split.is_shown for split in splits))
    of, against = splits[0].of, splits[0].against
    says = "The candidate with the highest figure less the one with the lowest"
    if not against:
        says = f"Each group's figure of {of} less its figure over all answers"
    elif all((split.of, split.against) == (of, against) for split in splits):
        says = f"{of} less {against} on the samples that both answered"
    return Places(says, forest_axis(axis), tuple(panels[:n]), tuple(panels[n:]))


def _width(split: Split) -> float:
    return (split.scale[1] - split.scale[0]) or 1.0


def _row(split: Split, group: GroupFigure, axis: Axis) -> PlaceRow:
    width, digits = _width(split), digits_of(split.scale)
    ends = group.interval and Interval(*(end / width for end in group.interval))
    name = label(group.group) or f"no {label(split.by)}"
    figure = f"{group.difference:+z.{digits}f}"
    low, high = (f"{end:+z.{digits}f}" for end in group.interval) if group.interval else ("", "")
    hint = f"{name}: {figure}" + (f" between {low} and {high}" if low else "")
    plot = forest_row(group.difference / width, ends, axis, group.is_shown, hint)
    return PlaceRow(name, f"{group.n:,}", plot, figure, low, high, group.is_shown)


FEW = 30  # answers per figure: below, intervals are wide


def doubts(summary: Summary, meanings: Mapping[str, ScoreMeaning]) -> Iterator[str]:
    """How much was scored and by what, and how far the headline's judge agrees with people."""
    measured = [metric for metric in summary.metrics if metric.coverage is not None]
    scored = [metric for metric in measured if metric.n_scored]
    if not scored:
        return
    least = min(measured, key=lambda metric: metric.coverage or 0.0)
    n, applicable = least.n_scored, least.n - least.n_not_applicable
    of = f"{least.metric}{f' of {least.candidate}' * (len(summary.candidates) > 1)}"
    partly = f"{of} has {n:,} of {applicable:,} answers scored"
    yield "every answer is scored" if n == applicable else partly
    if min(metric.n_scored for metric in scored) < FEW:
        yield f"few answers: n = {count_span([metric.n_scored for metric in scored], ',')} each"
    estimated = [name_figure(metric) for metric in scored if is_mostly_estimated(metric)]
    if estimated:
        yield f"estimates, not verdicts: {', '.join(dict.fromkeys(estimated))}"
    if replaced := sum(metric.n_fallbacks for metric in scored):
        yield f"{replaced:,} verdict{'s' * (replaced > 1)} by rules, since the judge failed"
    if meaning := meanings.get(summary.headline):
        checked, name = meaning.agreement[0], summary.headline
        unchecked = f"the judge of {name} has not been checked against human labels"
        is_checked = checked != "not measured"
        yield f"judge of {name} against people: {checked}" if is_checked else unchecked


def doubts_of_comparison(comparison: Comparison) -> Iterator[str]:
    """How many units the differences are of, which are of estimates, and the correction."""
    if not (rows := [row for row in comparison.metrics if row.paired.difference is not None]):
        return
    counts = [row.paired.n for row in rows]
    few = "few answers: " * (min(counts) < FEW)
    yield f"{few}n = {count_span(counts, ',')} pairs per difference"
    if estimated := dict.fromkeys(name_figure(row) for row in rows if row.mark):
        yield f"not all verdicts of a judge: {', '.join(estimated)}"
    yield "corrected for the number of differences (Holm)"


def list_links(
    summary: Summary, places: Places | None, why: Why | None
) -> Iterator[tuple[str, str]]:
    """What failed, the rows behind the answer, the first group, and what has no value: texts, each
    with the address in the page."""
    if n := summary.n_failed_units:
        address = "#failures" if summary.causes else "#samples?status=error"
        yield f"{n:,} failed", address
    if why and why.rows:
        yield why.says[:1].lower() + why.says[1:], "#why"
    if places and places.panels:
        split = places.panels[0].split
        yield f"{label(split.metric)} by {label(split.by)}", "#where"
    for status, n in (
        ("abstained", sum(metric.n_abstained for metric in summary.metrics)),
        ("no_answer", sum(metric.n_no_answer for metric in summary.metrics)),
    ):
        if n:
            yield f"{n:,} without a score ({label(status)})", f"#samples?status={status}"
