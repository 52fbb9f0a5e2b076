"""The table of a run's figures: metrics as rows, candidates as columns, every interval on one
axis. Each cell names its metric and candidate and holds its figures as they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.analysis.intervals import Intervals
from memray_eval.analysis.marks import NOTHING, format_figure, metric_mark, name_figure
from memray_eval.report.answer import (
    compared_differences,
    estimates_in_words,
    no_answer_lines,
)
from memray_eval.report.html.plots import OnScale, scale_axis, scale_row
from memray_eval.report.sections import metric_ends
from memray_eval.types import WITHOUT_CALL, MetricSummary, Summary

_PLAIN = Intervals()


class FigureCell(NamedTuple):
    """A metric's figure of one candidate, as text; "" without an interval. `mark` says which scores
    are no verdicts; `is_below`: told from the best."""

    metric: str
    candidate: str
    figure: str = NOTHING
    low: str = ""
    high: str = ""
    n: str = ""
    mark: str = ""
    is_estimate: bool = False
    is_below: bool = False


class FigureRow(NamedTuple):
    """One metric: its cells in the order of the table's candidates, and their plot."""

    metric: str
    name: str
    title: str
    scale: str
    plot: Markup
    cells: tuple[FigureCell, ...]
    judges: tuple[str, ...]


class FigureTable(NamedTuple):
    """`notes` explain the signs of the table. `judge` scored every row alone; "" if none did."""

    candidates: tuple[str, ...]
    axis: Markup
    rows: tuple[FigureRow, ...]
    notes: tuple[str, ...]
    is_scored: bool
    judge: str = ""


def tabulate_figures(summary: Summary, intervals: Intervals = _PLAIN) -> FigureTable:
    """Makes the table of all metrics and candidates of a summary."""
    candidates = tuple(candidate.candidate for candidate in summary.candidates)
    by_key = {(metric.metric, metric.candidate): metric for metric in summary.metrics}
    below = {(pair.metric, pair.b) for pair in compared_differences(summary) if pair.is_shown}
    rows = []
    # What needs a judge and has none is in the run's notes
    for name in dict.fromkeys(metric.metric for metric in summary.metrics if not metric.reason):
        of_metric = [metric for metric in summary.metrics if metric.metric == name]
        cells, on_scale = [], []
        for candidate in candidates:
            metric, cell = by_key.get((name, candidate)), FigureCell(name, candidate)
            if metric is not None:
                cell = _cell(metric, intervals, (name, candidate) in below)
            cells.append(cell)
            on_scale.append(_on_scale(metric, intervals))
        first, plot = of_metric[0], scale_row(on_scale, of_metric[0].scale)
        scale, judges = f"{first.scale[0]:g} to {first.scale[1]:g}", list_judges(of_metric)
        row = FigureRow(name, name_figure(first), first.title, scale, plot, tuple(cells), judges)
        rows.append(row)
    is_scored = any(metric.n_scored for metric in summary.metrics)
    by_metric = {tuple(metric.judges) for metric in summary.metrics if not metric.reason}
    judges = by_metric.pop() if len(by_metric) == 1 else ()
    judge = judges[0] if len(judges) == 1 else ""
    notes = tuple(_notes(summary))
    return FigureTable(candidates, scale_axis(), tuple(rows), notes, is_scored, judge)


def _on_scale(metric: MetricSummary | None, intervals: Intervals) -> OnScale | None:
    if metric is None or metric.figure.value is None:
        return None
    is_estimate = metric.n_estimated == metric.n_scored
    return OnScale(metric.candidate, metric.figure.value, intervals.of_metric(metric), is_estimate)


def _cell(metric: MetricSummary, intervals: Intervals, is_below: bool) -> FigureCell:
    low, high = metric_ends(metric, intervals) or ("", "")
    answerable = f"/{metric.n - metric.n_not_applicable:,}" if metric.n_no_answer else ""
    return FigureCell(
        metric=metric.metric,
        candidate=metric.candidate,
        figure=format_figure(metric.figure, metric.scale),
        low=low,
        high=high,
        n=f"{metric.n_scored:,}{answerable}",
        mark=metric_mark(metric),
        is_estimate=metric.n_estimated > 0,
        is_below=is_below,
    )


def list_judges(metrics: Sequence[MetricSummary]) -> tuple[str, ...]:
    """Lists who scored one metric, with counts: judges before rules, the most frequent first."""
    counts = Counter[str]()
    for metric in metrics:
        counts.update(metric.judges)
    names = sorted(counts, key=lambda name: (name in WITHOUT_CALL, -counts[name]))
    is_idle = all(metric.n and metric.n == metric.n_not_applicable for metric in metrics)
    is_unread = any(metric.n_abstained for metric in metrics)
    nobody = "not applicable" if is_idle else "no usable verdict" if is_unread else "nobody"
    return tuple(f"{name} ({counts[name]:,})" for name in names) or (nobody,)


def _notes(summary: Summary) -> Iterator[str]:
    yield from no_answer_lines(summary)
    if ratios := {metric.figure.whole for metric in summary.metrics if metric.figure.whole}:
        yield f"micro: one ratio over all {' or '.join(sorted(ratios))} of the run"
    if any(metric.n_estimated for metric in summary.metrics):
        yield f"est. and a hollow dot: {estimates_in_words(summary)}"
    if any(pair.is_shown for pair in summary.differences):
        yield "*: below the best of its row beyond chance (paired, 95 % over all rows)"
    elif summary.differences:
        yield "no candidate differs from the best of its row beyond chance (95 % over all rows)"
