"""Formats figures for the page's templates, as rows and cells; the head of a page."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from memray_eval.analysis.comparing import Compared
from memray_eval.analysis.marks import (
    NOTHING,
    append_mark,
    digits_of,
    fallbacks_of,
    format_figure,
    mark,
    metric_mark,
    name_figure,
)
from memray_eval.analysis.rates import per_s
from memray_eval.analysis.score_table import ScoreTable
from memray_eval.analysis.scores import Intervals, Key
from memray_eval.analysis.statistics import Interval, to_interval
from memray_eval.analysis.where import GroupFigure, Split
from memray_eval.metric import EVIDENCE, UNVERIFIED
from memray_eval.ports import FloatArray
from memray_eval.report.answer import (
    compared_differences,
    estimates_in_words,
    is_mostly_estimated,
    no_answer_lines,
)
from memray_eval.report.html.plots import (
    Axis,
    Line,
    OnScale,
    PlotPoint,
    distribution,
    draw_curves,
    forest_axis,
    forest_row,
    scale_row,
    speed_quality,
)
from memray_eval.report.html.why import ScoreMeaning, Why
from memray_eval.report.sections import (
    Cell,
    Row,
    Table,
    cost_figure,
    count_span,
    figure,
    format_interval,
    headline_scale,
    label,
    metric_ends,
    outcome_counts,
    share_of,
)
from memray_eval.report.tables import (
    MEASURES,
    is_curve,
    judge_label,
    percent_of,
    size_label,
    sweep_mark,
    task_mark,
)
from memray_eval.types import FALLBACKS, WITHOUT_CALL, MetricSummary, Summary, TaskMetric

_PLAIN = Intervals()


def tabulate_figures(summary: Summary, intervals: Intervals = _PLAIN) -> dict[str, Any]:
    """The table of all metrics and candidates: a row a metric, a cell a candidate, every interval
    on one axis. `notes` explain the signs; `judge` scored every row alone, "" if none did."""
    candidates = [candidate.candidate for candidate in summary.candidates]
    below = {(pair.metric, pair.b) for pair in compared_differences(summary) if pair.is_shown}
    # What needs a judge and has none is in the run's notes
    shown = [metric for metric in summary.metrics if not metric.reason]
    rows = []
    for name in dict.fromkeys(metric.metric for metric in shown):
        of_metric = [metric for metric in summary.metrics if metric.metric == name]
        by_candidate, first = {metric.candidate: metric for metric in of_metric}, of_metric[0]
        cells, on_scale = list[dict[str, Any]](), list[OnScale | None]()
        for candidate in candidates:
            metric, drawn = by_candidate.get(candidate), None
            if metric is not None and (value := metric.figure.value) is not None:
                is_estimate = metric.n_estimated == metric.n_scored
                drawn = OnScale(candidate, value, intervals.of_metric(metric), is_estimate)
            of = {"metric": name, "candidate": candidate, "is_below": (name, candidate) in below}
            cells.append(of | _cell(metric, intervals))
            on_scale.append(drawn)
        rows.append({
            "name": name_figure(first),
            "title": first.title,
            "scale": f"{first.scale[0]:g} to {first.scale[1]:g}",
            "plot": scale_row(on_scale, first.scale),
            "cells": cells,
            "judges": list_judges(of_metric),
        })  # fmt: skip
    judges = {judge for metric in shown for judge in metric.judges or ("",)}
    return {
        "candidates": candidates,
        "rows": rows,
        "notes": list(_notes(summary)),
        "is_scored": any(metric.n_scored for metric in summary.metrics),
        "judge": judges.pop() if len(judges) == 1 else "",
    }


def _cell(metric: MetricSummary | None, intervals: Intervals) -> dict[str, Any]:
    """A figure as text; `mark` says what is no verdict, `spread` draws the answers by score."""
    if metric is None:
        blank = dict.fromkeys(("low", "high", "n", "mark", "is_estimate", "spread"), "")
        return {"figure": NOTHING, **blank}
    low, high = metric_ends(metric, intervals) or ("", "")
    answerable = f"/{metric.n - metric.n_not_applicable:,}" if metric.n_no_answer else ""
    return {
        "figure": format_figure(metric.figure, metric.scale),
        "low": low,
        "high": high,
        "n": f"{metric.n_scored:,}{answerable}",
        "mark": metric_mark(metric),
        "is_estimate": metric.n_estimated > 0,
        "spread": distribution(metric.distribution) if metric.n_scored else "",
    }


def list_judges(metrics: Sequence[MetricSummary]) -> tuple[str, ...]:
    """Lists who scored one metric, with counts: judges before rules, the most frequent first."""
    counts = Counter[str]()
    for metric in metrics:
        counts.update(metric.judges)
    names = sorted(counts, key=lambda name: (name in WITHOUT_CALL, -counts[name]))
    is_idle = all(metric.n and metric.n == metric.n_not_applicable for metric in metrics)
    is_unread = any(metric.n_abstained for metric in metrics)
    nothing = "not applicable" if is_idle else "no usable verdict" if is_unread else "not scored"
    return tuple(f"{name} ({counts[name]:,})" for name in names) or (nothing,)


def _notes(summary: Summary) -> Iterator[str]:
    yield from no_answer_lines(summary)
    if ratios := {metric.figure.whole for metric in summary.metrics if metric.figure.whole}:
        yield f"micro: one ratio over all {' or '.join(sorted(ratios))} of the run"
    if any(metric.n_estimated for metric in summary.metrics):
        yield f"est. and a hollow dot: {estimates_in_words(summary)}"
    differences = compared_differences(summary)
    if any(pair.is_shown for pair in differences):
        yield "*: below the best of its row beyond chance (paired, 95 % over all rows)"
    elif differences:
        yield "no candidate differs from the best of its row beyond chance (95 % over all rows)"


_CAPITALS = re.compile(r"^[A-Z][A-Z ]+\b")


def heading(title: str) -> str:
    """A section's title as a heading: "EPOCHS - GPT-4o" is "Epochs - GPT-4o"."""
    calm = _CAPITALS.sub(lambda match: match[0].capitalize(), title)
    return calm[:1].upper() + calm[1:]


def number(value: float | None, digits: int = 3) -> str:
    return figure(value, f"z.{digits}f")


def metric_rows(summary: Summary) -> Iterator[tuple[MetricSummary, str, str, str]]:
    """Each metric of each candidate, its outcomes and judges in words, and its figures' mark."""
    for metric in summary.metrics:
        n_unverified = int(metric.extras.get(UNVERIFIED) or 0)
        quotes = f"of {int(metric.extras.get(EVIDENCE) or 0):,} quotes unverified"
        replaced = ((count, FALLBACKS[way]) for way, count in fallbacks_of(metric).items())
        scored, unscored = (metric.n_scored, "scored"), outcome_counts(metric)
        named = (scored, *replaced, *unscored, (n_unverified, quotes))
        counts = ", ".join(f"{count:,} {what}" for count, what in named if count) or "none"
        yield metric, counts, ", ".join(list_judges([metric])), metric_mark(metric)


def by_task(summary: Summary, intervals: Intervals = _PLAIN) -> Iterator[Table]:
    """Tasks as rows and metrics as columns, one table per candidate; none if samples name no task.
    The level of the intervals holds for all of them together (Bonferroni). A bucket has none if
    answers are clustered: its own errors are not in `intervals`."""
    level = 1 - (1 - 0.95) / max(1, count_task_figures(summary))
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    for candidate in dict.fromkeys(task.candidate for task in summary.tasks):
        tasks = [task for task in summary.tasks if task.candidate == candidate]
        names = {metric.metric: name_figure(metric) for task in tasks for metric in task.metrics}
        metrics = [name for name in scales if name in names]
        rows: list[Row] = [("task", "answers", *(names[metric] for metric in metrics))]
        for task in tasks:
            by_metric = {metric.metric: metric for metric in task.metrics}
            of_task = intervals if task.bucket is None else _PLAIN
            cells = [Cell(f"{task.n:,}")]
            for name in metrics:
                key, of = (candidate, name, task.task), by_metric.get(name)
                if of is not None and of_task is _PLAIN and intervals.errors:
                    of = of.model_copy(update={"stderr": None})
                cells.append(_task_cell(of, scales[name], key, of_task, level))
            bucket = "" if task.bucket is None else f": {task.bucket}"
            rows.append(((label(task.task) or "no task") + bucket, *cells))
        yield Table(rows, title=f"By task: {candidate}")


def count_task_figures(summary: Summary) -> int:
    """The number of figures in the tables by task."""
    return sum(metric.mean is not None for task in summary.tasks for metric in task.metrics)


def _task_cell(
    metric: TaskMetric | None, scale: tuple[float, float], key: Key, intervals: Intervals,
    level: float,
) -> Cell:  # fmt: skip
    if metric is None or metric.mean is None:
        return Cell(NOTHING)
    interval = intervals.of(key, metric.mean, metric.stderr, metric.n_scored, scale, level)
    spread = format_interval(metric.mean, interval, 3)
    mean = f"{metric.mean:z.3f} {spread}".rstrip()
    hint = f"{mean}, {metric.n_scored:,} scored, {metric.n_failed:,} failed"
    shown = append_mark(number(metric.mean, digits_of(scale)), task_mark([metric]))
    return Cell(shown, percent_of(share_of(metric.mean, scale)), hint)


def tradeoff(summary: Summary, intervals: Intervals = _PLAIN) -> tuple[Markup, str] | None:
    """A plot of speed against quality and its caption; None unless two candidates have both. The
    interval of a quality, 0 to 100, is that of the headline metric on its own scale."""
    best = set(summary.recommendation.pareto) if summary.recommendation else set()
    rows = [row for row in summary.performance if row.task is None]
    points, scale = list[PlotPoint](), headline_scale(summary)
    low, width = scale[0], scale[1] - scale[0]
    for row in rows:
        if row.tokens_per_s is not None and row.quality is not None:
            stderr = None if row.quality_stderr is None else row.quality_stderr / 100 * width
            key, mean = (row.candidate, summary.headline, None), low + row.quality / 100 * width
            ends = intervals.of(key, mean, stderr, row.n_scored, scale)
            interval = ends and Interval(*((end - low) / width * 100 for end in ends))
            at, is_best = (row.tokens_per_s, row.quality), row.candidate in best
            points.append(PlotPoint(row.candidate, *at, interval, is_best))
    mark = quality_mark(summary)
    caption = (
        f"Quality: {summary.headline}{f' ({mark})' * bool(mark)}, its scale laid over 0 to "
        f"100, with 95% intervals, n {count_span([row.n_scored for row in rows], ',')} a candidate."
    )
    return (speed_quality(points), caption) if len(points) > 1 else None


def quality_mark(summary: Summary) -> str:
    """The mark of the headline metric's figures over all candidates."""
    rows = [row for row in summary.performance if row.task is None and row.quality is not None]
    return task_mark(rows)


def curves(summary: Summary, intervals: Intervals) -> Iterator[tuple[str, Markup, list[str]]]:
    """Plots metrics against temperature: a name, a drawing, the names of its lines with marks."""
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    for metric in dict.fromkeys(sweep.metric for sweep in summary.sweeps):
        scale, lines = scales.get(metric, (0.0, 1.0)), list[Line]()
        for sweep in (sweep for sweep in summary.sweeps if sweep.metric == metric):
            figures = zip(sweep.temperatures, sweep.means, sweep.stderrs, sweep.n, strict=True)
            points = tuple(
                (at, mean, intervals.of((candidate, metric, None), mean, stderr, n, scale))
                for candidate, (at, mean, stderr, n) in zip(sweep.candidates, figures, strict=True)
                if mean is not None
            )
            prompt = f", prompt {sweep.prompt}" * (sweep.prompt != "default")
            marks = dict.fromkeys(sweep_mark(sweep, number) for number in range(len(sweep.n)))
            parts = (f"{sweep.model}{prompt}", f"n {count_span(sweep.n, ',')}", *marks)
            lines.append(Line(", ".join(filter(None, parts)), points))
        if any(line.points for line in lines):
            drawn = draw_curves(metric, lines, "temperature")
            yield metric, drawn, [line.name for line in lines]


def length_curves(summary: Summary) -> Iterator[tuple[str, Markup, list[str]]]:
    """The same against length, or entries of memory, on a logarithmic axis."""
    curves = [heat for heat in summary.heat_maps if is_curve(heat)]
    for metric, measure in dict.fromkeys((curve.metric, curve.measure) for curve in curves):
        lines, places = list[Line](), dict[float, str]()
        for curve in (heat for heat in curves if (heat.metric, heat.measure) == (metric, measure)):
            marked = mark(sum(curve.n_without_depth), curve.estimates, curve.fallbacks)
            span = count_span(curve.n_without_depth, ",")
            name = ", ".join(filter(None, (curve.candidate, f"n {span}", marked)))
            points = tuple(
                (math.log2(at.length), at.mean, to_interval(at.low, at.high))
                for at in curve.points
                if at.mean is not None
            )
            lines.append(Line(name, points))
            places |= {math.log2(at): size_label(curve, at) for at in curve.lengths}
        drawn = draw_curves(metric, lines, MEASURES[measure], places)
        yield metric, drawn, [line.name for line in lines]


def agreements(summary: Summary) -> Iterator[Table]:
    """The agreement of judge and rule, in all and by task; how far jurors were apart on average."""
    tasks = [task for task in summary.tasks if task.bucket is None]
    measured = [(f"{of.candidate}, all answers", of.agreement) for of in summary.macro]
    measured += [(f"{of.candidate}, {label(of.task) or 'no task'}", of.agreement) for of in tasks]
    rows: list[Row] = [
        ("answers", "n", "agree", "kappa", "both correct", "neither", "only judge", "only rule")
    ]
    for name, agreement in measured:
        if agreement is not None:
            share = Cell(figure(agreement.share, ".1%"), round(100 * agreement.share))
            n, kappa = f"{agreement.n:,}", number(agreement.kappa, 2)
            either = f"{agreement.both:,}", f"{agreement.neither:,}"
            only = f"{agreement.only_judge:,}", f"{agreement.only_rule:,}"
            rows.append((name, n, share, kappa, *either, *only))
    judge = judge_label(summary)
    title = "Judge against rule" if judge == "judge" else f"{judge} against rule"
    if len(rows) > 1:
        yield Table(rows, title=title)
    juries: list[Row] = [("metric", "candidate", "apart", "scale")]
    for metric in summary.metrics:
        if apart := metric.extras.get("disagreement"):
            of_scale = figure(apart, "z.2f"), f"{metric.scale[1]:g}"
            juries.append((metric.metric, metric.candidate, *of_scale))
    if len(juries) > 1:
        yield Table(juries, title="Juries")


def arms_plot(summary: Summary) -> tuple[Markup, str] | None:
    """A plot of accuracy against prompt tokens, a dot an arm, with caption; None without tokens."""
    points = []
    for arm in summary.arms:
        if arm.prompt_tokens_mean is not None and arm.accuracy is not None:
            headline = (None, summary.headline)
            of_arm = (of for of in arm.categories if (of.category, of.metric) == headline)
            ends = next((to_interval(of.low, of.high) for of in of_arm), None)
            interval = ends and Interval(100 * ends.low, 100 * ends.high)
            at = arm.prompt_tokens_mean, 100 * arm.accuracy
            points.append(PlotPoint(arm.candidate, *at, interval))
    axes = ("tokens of a prompt, on average", "accuracy", "tokens")
    mark = " (estimate)" if any(arm.headline in arm.estimated for arm in summary.arms) else ""
    caption = f"{summary.headline}{mark} x 100 with its 95 % interval, by what the prompt took."
    return (speed_quality(points, *axes), caption) if points else None


PERCENTILES = (50, 90, 95, 99)
_SECONDS = {"ttft_s": "first token", "duration_s": "whole answer"}
_SUMS = (
    *("cached", "input_tokens", "output_tokens", "cached_input_tokens", "cost_usd"),
    *("unpriced_calls", "saved_usd", "latency_s"),
)


class RunCost:
    """Sums up blocks of records: `judges` has a row a judge (`scores`, sums of SCORES, how many
    were `timed`), `seconds` the times of answers by candidate and what was measured."""

    UNITS, SCORES = ("candidate", *_SECONDS), ("judge", *_SUMS)

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[str, str], list[FloatArray]] = defaultdict(list)
        self._judges: pa.Table | None = None

    @property
    def judges(self) -> list[dict[str, Any]]:
        """Those of most scores first."""
        rows = [] if self._judges is None else self._judges.to_pylist()
        return sorted(rows, key=lambda row: -row["scores"])

    def add(self, table: ScoreTable) -> None:
        for candidate in pc.unique(table.units["candidate"]).to_pylist():
            units = table.units.filter(pc.equal(table.units["candidate"], candidate))
            for column, what in _SECONDS.items():
                if len(values := units[column].drop_null()):
                    self.seconds[candidate, what].append(values.to_numpy())
        columns = {name: table.column(name).cast(pa.float64()) for name in _SUMS}
        columns["timed"] = pc.greater(columns["latency_s"], 0).cast(pa.float64())
        columns["scores"] = pa.repeat(1.0, len(table.scores))
        judge = table.column("judge")
        is_judged = pc.fill_null(pc.not_equal(judge, ""), False)
        of_block = pa.table({"judge": judge, **columns}).filter(is_judged)
        before = [] if self._judges is None else [self._judges]
        by_judge = pa.concat_tables([*before, of_block]).group_by("judge", use_threads=False)
        sums = by_judge.aggregate([(name, "sum") for name in columns])
        sums = sums.select(["judge", *(f"{name}_sum" for name in columns)])
        self._judges = sums.rename_columns(["judge", *columns])

    def tables(self) -> Iterator[Table]:
        if rows := list(self._judge_rows()):
            yield Table(rows, title="Judges")
        heads = ("candidate", "n", *(f"p{percent}" for percent in PERCENTILES))
        percentiles: list[Row] = [heads]
        for name, parts in sorted(self.seconds.items()):
            values = np.concatenate(parts)
            at = (f"{value:.2f}" for value in np.percentile(values, PERCENTILES))
            percentiles.append((", ".join(name), f"{values.size:,}", *at))
        if self.seconds:
            yield Table(percentiles, title="Latency percentiles, seconds")

    def _judge_rows(self) -> Iterator[Row]:
        if not (judges := self.judges):
            return
        has_prompt_cache = any(spent["cached_input_tokens"] for spent in judges)
        in_cache = ("from prompt cache", "it saved, $") if has_prompt_cache else ()
        heads = ("judge", "scores", "cached", "tokens in", *in_cache)
        yield (*heads, "tokens out", "cost, $", "latency, s")
        for spent in judges:
            taken, n_timed = spent["input_tokens"], spent["timed"]
            share = spent["cached_input_tokens"] / taken if taken else None
            cells = (figure(share, ".1%"), figure(spent["saved_usd"])) if has_prompt_cache else ()
            counts = (f"{spent[name]:,.0f}" for name in ("scores", "cached", "input_tokens"))
            written, paid = f"{spent['output_tokens']:,.0f}", spent["cost_usd"]
            cost = cost_figure(paid, spent["unpriced_calls"])
            latency = figure(spent["latency_s"] / n_timed if n_timed else None, ".2f")
            yield (spent["judge"], *counts, *cells, written, cost, latency)


def stages(manifest: Mapping[str, Any]) -> Table | None:
    """The last session's stages: rows, start after the first, span and rate."""
    recorded = (manifest.get("stages") or {}).items()
    of_stages = {name: stage for name, stage in recorded if stage.get("rows")}
    rows: list[Row] = [("stage", "rows", "began after, s", "lasted, s", "rows per second")]
    starts = [stage["started"] for stage in of_stages.values() if stage.get("started") is not None]
    for name, stage in of_stages.items():
        span, begun = stage.get("span_s"), stage.get("started")
        after = NOTHING if begun is None else f"{begun - min(starts):,.1f}"
        speed = figure(per_s(stage["rows"], span), ",.1f")
        rows.append((name, f"{stage['rows']:,}", after, number(span, 1), speed))
    return Table(rows, title="Stages of the last session") if of_stages else None


PANELS, GROUPS = 6, 6  # shown at once; the others are folded
LEAST_SPAN = 0.05  # of a scale, to both sides of 0, so that a tiny difference does not look large


def draw_places(splits: Sequence[Split]) -> dict[str, Any] | None:
    """Draws the splits in their order, groups that do not stand out folded (`rest`), and so the
    `panels` of splits without one; `says` tells what the differences are. None without any."""
    if not splits:
        return None
    shown = [(split, group) for split in splits[:PANELS] for group in split.groups]
    shares = [abs(group.difference) / split.width for split, group in shown]
    span = min(1.0, max(LEAST_SPAN, 1.6 * max(shares)))
    axis = Axis(-span, span, 8, 142)
    panels = []
    for split in splits:
        rows = [_row(split, group, axis) for group in split.groups]
        n_shown = min(GROUPS, sum(group.is_shown for group in split.groups) or GROUPS)
        panels.append({"split": split, "rows": rows[:n_shown], "rest": rows[n_shown:]})
    n = min(PANELS, sum(split.is_shown for split in splits))
    of, against = splits[0].of, splits[0].against
    says = "The candidate with the highest figure less the one with the lowest"
    if not against:
        says = f"Each group's figure of {of} less its figure over all answers"
    elif all((split.of, split.against) == (of, against) for split in splits):
        says = f"{of} less {against} on the samples that both answered"
    return {"says": says, "axis": forest_axis(axis), "panels": panels[:n], "rest": panels[n:]}


def _row(split: Split, group: GroupFigure, axis: Axis) -> dict[str, Any]:
    """A group: its difference in the metric's own scale, and drawn in percent of it."""
    width, digits = split.width, digits_of(split.scale)
    ends = group.interval and Interval(*(end / width for end in group.interval))
    name = label(group.group) or f"no {label(split.by)}"
    figure = f"{group.difference:+z.{digits}f}"
    low, high = (f"{end:+z.{digits}f}" for end in group.interval) if group.interval else ("", "")
    hint = f"{name}: {figure}" + (f" between {low} and {high}" if low else "")
    return {
        "group": name,
        "n": f"{group.n:,}",
        "plot": forest_row(group.difference / width, ends, axis, group.is_shown, hint),
        "difference": figure,
        "low": low,
        "high": high,
        "is_shown": group.is_shown,
    }


FEW = 30  # answers per figure: below, intervals are wide


def doubts(summary: Summary, meanings: Mapping[str, ScoreMeaning]) -> Iterator[str]:
    """How much was scored and by what, and how far the headline's judge agrees with people."""
    measured = [metric for metric in summary.metrics if metric.coverage is not None]
    if not (scored := [metric for metric in measured if metric.n_scored]):
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


def doubts_of_comparison(comparison: Compared) -> Iterator[str]:
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
    summary: Summary, places: Mapping[str, Any] | None, why: Why | None
) -> Iterator[tuple[str, str]]:
    """What failed, the rows behind the answer, the first group, what has no value."""
    if n := summary.n_failed_units:
        address = "#failures" if summary.causes else "#samples?status=error"
        yield f"{n:,} failed", address
    if why and why.rows:
        yield why.says[:1].lower() + why.says[1:], "#why"
    for panel in places["panels"][:1] if places else ():
        split = panel["split"]
        yield f"{label(split.metric)} by {label(split.by)}", "#where"
    for status in ("abstained", "no_answer"):
        if n := sum(getattr(metric, f"n_{status}") for metric in summary.metrics):
            yield f"{n:,} without a score ({label(status)})", f"#samples?status={status}"
