"""Formats a summary's figures for the page's templates, as rows and cells with nothing left to
compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.analysis.intervals import Intervals, Key
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
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import length_label
from memray_eval.metric import EVIDENCE, UNVERIFIED
from memray_eval.report.answer import causes_in_words
from memray_eval.report.html.figures import Judges, list_judges
from memray_eval.report.html.plots import (
    Line,
    Point,
    distribution,
    speed_quality,
    temperature_curves,
)
from memray_eval.report.sections import (
    Cell,
    Grid,
    count_span,
    figure,
    format_interval,
    outcome_counts,
)
from memray_eval.report.sweeps import sweep_mark
from memray_eval.report.tables import judge_label, task_mark
from memray_eval.types import (
    FALLBACKS,
    Agreement,
    GenerationSummary,
    HeatMap,
    MetricSummary,
    Performance,
    Summary,
    Sweep,
    TaskMetric,
)

_PLAIN = Intervals()


class MetricRow(NamedTuple):
    """One metric of one candidate. `mark` says which of its figures are not verdicts, `worth` how
    good its estimates are, and `reason` why rules gave none."""

    metric: str
    title: str
    candidate: str
    mean: str
    spread: str
    scale: str
    distribution: Markup
    coverage: str
    counts: str
    judges: Judges
    mark: str = ""
    worth: str = ""
    reason: str = ""


class Card(NamedTuple):
    """A candidate's headline figure with its interval, and its most important facts."""

    candidate: str
    model: str
    metric: str
    figure: str
    spread: str
    of: str
    mark: str
    facts: tuple[tuple[str, str], ...]


def label(name: str) -> str:
    """A metric's or task's name in words."""
    return name.replace("_", " ")


def number(value: float | None, digits: int = 3) -> str:
    return figure(value, f"z.{digits}f")


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}".replace(".0%", "%")


def dollars(value: float) -> str:
    return "$0" if value == 0 else f"${value:,.2f}" if value >= 1 else f"${value:z.4f}"


def cards(summary: Summary, intervals: Intervals = _PLAIN) -> Iterator[Card]:
    for candidate in summary.candidates:
        of_it = [metric for metric in summary.metrics if metric.candidate == candidate.candidate]
        named = [metric for metric in of_it if metric.metric == summary.headline] or of_it
        shown = next((metric for metric in named if metric.figure.value is not None), None)
        yield Card(
            candidate=candidate.candidate,
            model=candidate.model,
            metric=f"{shown.average} {label(shown.metric)}" if shown else "nothing scored",
            figure=format_figure(shown.figure, shown.scale) if shown else NOTHING,
            spread=_format_spread(shown, intervals) if shown else "",
            of=f"of {shown.scale[1]:g}, n {shown.n_scored:,}" if shown else "",
            mark=metric_mark(shown) if shown else "",
            facts=tuple(_facts(candidate)),
        )


def _facts(generation: GenerationSummary) -> Iterator[tuple[str, str]]:
    yield (
        "units",
        f"{generation.n:,}" + (f" ({generation.n_failed:,} failed)" if generation.n_failed else ""),
    )
    if causes := causes_in_words(generation):
        yield "answered", f"{generation.answered:,}"
        yield "no answer", causes
    if generation.asked_again:
        yield (
            "asked again",
            f"{generation.asked_again:,} ({generation.answered_then:,} answered then)",
        )
    yield "tokens in / out", f"{generation.prompt_tokens:,} / {generation.output_tokens:,}"
    if generation.output_tokens_per_s is not None:
        yield "throughput", f"{generation.output_tokens_per_s:,.1f} tokens/s"
    if generation.ttft_s_mean is not None:
        yield "first token, mean", f"{generation.ttft_s_mean:.2f} s"
    if generation.cache_hit_rate is not None:
        yield "prefix cache", f"{percent(generation.cache_hit_rate)} hit"
    for count, what in (
        (generation.truncated, "prompts cut"),
        (generation.thinking, "answers with thinking"),
    ):
        if count:
            yield what, f"{count:,}"
    if generation.finish_reasons:
        yield (
            "ended by",
            ", ".join(f"{reason} {count:,}" for reason, count in generation.finish_reasons.items()),
        )


def metric_rows(summary: Summary, intervals: Intervals = _PLAIN) -> Iterator[MetricRow]:
    for metric in summary.metrics:
        yield MetricRow(
            metric=label(name_figure(metric)),
            title=metric.title,
            candidate=metric.candidate,
            mean=format_figure(metric.figure, metric.scale),
            spread=_format_spread(metric, intervals),
            scale=f"{metric.scale[0]:g} to {metric.scale[1]:g}",
            distribution=distribution(metric.distribution) if metric.n_scored else Markup(""),
            coverage=percent(metric.coverage),
            counts=_format_counts(metric),
            judges=list_judges([metric]),
            mark=metric_mark(metric),
            worth=metric.worth,
            reason=metric.reason,
        )


def _format_spread(metric: MetricSummary, intervals: Intervals) -> str:
    interval = intervals.of_metric(metric)
    return format_interval(metric.figure.value, interval, digits_of(metric.scale))


def _format_counts(metric: MetricSummary) -> str:
    named = (
        (metric.n_scored, "scored"),
        *((count, FALLBACKS[way]) for way, count in fallbacks_of(metric).items()),
        *outcome_counts(metric),
        (
            int(metric.extras.get(UNVERIFIED) or 0),
            f"of {int(metric.extras.get(EVIDENCE) or 0):,} quotes unverified",
        ),
    )
    return ", ".join(f"{count:,} {what}" for count, what in named if count) or "none"


def by_task(summary: Summary, intervals: Intervals = _PLAIN) -> Iterator[Grid]:
    """Tasks as rows and metrics as columns, one grid per candidate; none if samples name no task.
    The level of the intervals holds for all of them together (Bonferroni)."""
    level = 1 - (1 - 0.95) / max(1, count_task_figures(summary))
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    for candidate in dict.fromkeys(task.candidate for task in summary.tasks):
        tasks = [task for task in summary.tasks if task.candidate == candidate]
        metrics = tuple(
            name
            for name in scales
            if any(name == task_metric.metric for task in tasks for task_metric in task.metrics)
        )
        rows = []
        for task in tasks:
            by_metric = {task_metric.metric: task_metric for task_metric in task.metrics}
            name = label(task.task) or "no task"
            of_task = intervals if task.bucket is None else _PLAIN
            cells = tuple(
                _task_cell(
                    by_metric.get(metric),
                    scales[metric],
                    (candidate, metric, task.task),
                    of_task,
                    level,
                )
                for metric in metrics
            )
            rows.append(
                (
                    name if task.bucket is None else f"{name}: {task.bucket}",
                    (Cell(f"{task.n:,}"), *cells),
                )
            )
        names = {
            task_metric.metric: name_figure(task_metric)
            for task in tasks
            for task_metric in task.metrics
        }
        heads = (label(names[metric]) for metric in metrics)
        yield Grid(f"By task: {candidate}", ("task", "units", *heads), tuple(rows))


def count_task_figures(summary: Summary) -> int:
    """How many figures the grids by task hold."""
    return sum(metric.mean is not None for task in summary.tasks for metric in task.metrics)


def task_intervals(summary: Summary) -> str:
    """Says what the intervals of the grids by task hold for."""
    n = count_task_figures(summary)
    return (
        f"Intervals, in a cell's hint: 95 % over all {n:,} figures by task together (Bonferroni)."
    )


def _task_cell(
    metric: TaskMetric | None,
    scale: tuple[float, float],
    key: Key,
    intervals: Intervals,
    level: float,
) -> Cell:
    if metric is None or metric.mean is None:
        return Cell(NOTHING)
    spread = format_interval(
        metric.mean, intervals.of(key, metric.mean, metric.stderr, metric.n_scored, scale, level), 3
    )
    mean = f"{metric.mean:z.3f} {spread}".rstrip()
    hint = f"{mean}, {metric.n_scored:,} scored, {metric.n_failed:,} failed"
    figure = append_mark(number(metric.mean, 2 if scale[1] > 1 else 3), task_mark([metric]))
    return Cell(figure, _percent_of_scale(metric.mean, scale), hint)


def heat_grids(heats: Sequence[HeatMap]) -> Iterator[Grid]:
    """Depths as rows and lengths as columns; a cell is the mean in percent of the metric's
    scale."""
    for heat in heats:
        rows = [
            (f"{depth:g}%", _heat_cells(heat, values, counts))
            for depth, values, counts in zip(heat.depths, heat.values, heat.n, strict=True)
        ]
        if any(heat.n_without_depth):
            rows.append(("no depth", _heat_cells(heat, heat.without_depth, heat.n_without_depth)))
        if any(any(row) for row in (*heat.n, heat.n_without_depth)):
            upto = "up to " if heat.lengths_binned else ""
            heads = ("depth", *(f"{upto}{length_label(length)}" for length in heat.lengths))
            n_scored = sum(n for row in (*heat.n, heat.n_without_depth) for n in row)
            note = mark(n_scored, heat.estimates, heat.fallbacks)
            cells = [n for row in (*heat.n, heat.n_without_depth) for n in row if n]
            parts = [
                f"{label(heat.metric)}: {heat.candidate}",
                f"n {count_span(cells, ',')} a cell",
            ]
            title = ", ".join([*parts, *filter(None, [note])])
            yield Grid(title, heads, tuple(rows))


def _heat_cells(
    heat: HeatMap, values: Sequence[float | None], counts: Sequence[int]
) -> tuple[Cell, ...]:
    return tuple(
        Cell(NOTHING)
        if value is None
        else Cell(
            f"{_percent_of_scale(value, heat.scale)}",
            _percent_of_scale(value, heat.scale),
            f"{n:,} scored",
        )
        for value, n in zip(values, counts, strict=True)
    )


def _percent_of_scale(value: float, scale: tuple[float, float]) -> int:
    low, high = scale
    return round(100 * min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0))


def tradeoff(summary: Summary, intervals: Intervals = _PLAIN) -> Markup | None:
    """Plots speed against quality, if two or more candidates have both."""
    best = set(summary.recommendation.pareto) if summary.recommendation else set()
    points = [
        Point(
            row.candidate,
            row.tokens_per_s,
            row.quality,
            _quality_interval(summary, row, intervals),
            row.candidate in best,
        )
        for row in summary.performance
        if row.task is None and row.tokens_per_s is not None and row.quality is not None
    ]
    return speed_quality(points) if len(points) > 1 else None


def _quality_interval(summary: Summary, row: Performance, intervals: Intervals) -> Interval | None:
    """The interval of a quality on 0-100, from that of the headline metric on its own scale."""
    scale = next(
        (metric.scale for metric in summary.metrics if metric.metric == summary.headline),
        (0.0, 1.0),
    )
    if row.quality is None:
        return None
    low, width = scale[0], scale[1] - scale[0]
    stderr = None if row.quality_stderr is None else row.quality_stderr / 100 * width
    key = (row.candidate, summary.headline, None)
    interval = intervals.of(key, low + row.quality / 100 * width, stderr, row.n_scored, scale)
    return interval and Interval(*((end - low) / width * 100 for end in interval))


def quality_count(summary: Summary) -> str:
    """How many answers the qualities of the plot are over."""
    counts = [row.n_scored for row in summary.performance if row.task is None]
    return f"n {count_span(counts, ',')}"


def quality_mark(summary: Summary) -> str:
    """The mark of the headline metric's figures over all candidates."""
    rows = [row for row in summary.performance if row.task is None and row.quality is not None]
    return mark(
        *(
            sum(getattr(row, name) for row in rows)
            for name in ("n_scored", "estimates", "fallbacks")
        )
    )


def curves(
    summary: Summary, intervals: Intervals = _PLAIN
) -> Iterator[tuple[str, Markup, list[str]]]:
    """Plots each metric with a score against temperature. Yields its name, its drawing, and the
    names of its lines in order, each with its mark."""
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    for metric in dict.fromkeys(sweep.metric for sweep in summary.sweeps):
        scale = scales.get(metric, (0.0, 1.0))
        lines = [
            _sweep_line(sweep, scale, intervals)
            for sweep in summary.sweeps
            if sweep.metric == metric
        ]
        if any(line.points for line in lines):
            yield metric, temperature_curves(metric, lines), [line.name for line in lines]


def _sweep_line(sweep: Sweep, scale: tuple[float, float], intervals: Intervals) -> Line:
    rows = zip(
        sweep.candidates, sweep.temperatures, sweep.means, sweep.stderrs, sweep.n, strict=True
    )
    points = tuple(
        (temperature, mean, intervals.of((candidate, sweep.metric, None), mean, stderr, n, scale))
        for candidate, temperature, mean, stderr, n in rows
        if mean is not None
    )
    name = sweep.model if sweep.prompt == "default" else f"{sweep.model}, prompt {sweep.prompt}"
    marks = dict.fromkeys(
        filter(None, (sweep_mark(sweep, number) for number in range(len(sweep.n))))
    )
    return Line(", ".join((name, f"n {count_span(sweep.n, ',')}", *marks)), points)


def agreements(summary: Summary) -> Grid | None:
    """The agreement of judge and rule, over all units of a candidate and by task."""
    rows = [
        (f"{summarised.candidate}, all units", _agreement_cells(summarised.agreement))
        for summarised in summary.macro
        if summarised.agreement
    ]
    rows += [
        (
            f"{summarised.candidate}, {label(summarised.task) or 'no task'}",
            _agreement_cells(summarised.agreement),
        )
        for summarised in summary.tasks
        if summarised.agreement and summarised.bucket is None
    ]
    heads = ("units", "n", "agree", "kappa", "both correct", "neither", "only judge", "only rule")
    judge = judge_label(summary)
    title = "Judge against rule" if judge == "judge" else f"{judge} against rule"
    return Grid(title, heads, tuple(rows)) if rows else None


def _agreement_cells(agreement: Agreement) -> tuple[Cell, ...]:
    counts = (agreement.both, agreement.neither, agreement.only_judge, agreement.only_rule)
    return (
        Cell(f"{agreement.n:,}"),
        Cell(percent(agreement.share), round(100 * agreement.share)),
        Cell(number(agreement.kappa, 2)),
        *(Cell(f"{count:,}") for count in counts),
    )


def juries(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yields the metrics whose jurors differed, with how far on average."""
    for metric in summary.metrics:
        if apart := metric.extras.get("disagreement"):
            yield (
                f"{label(metric.metric)} ({metric.candidate})",
                f"{apart:z.2f} apart on a scale of {metric.scale[1]:g}",
            )
