"""Renders a run's tables by task, and its heat maps by length and depth, as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from memray_eval.analysis.marks import ESTIMATE, NOTHING, append_mark, mark, name_figure
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import length_label
from memray_eval.types import (
    DISAGREEMENTS,
    FALLBACKS,
    JURORS,
    RULE_METRIC,
    VERDICT_METRIC,
    WITHOUT_CALL,
    Agreement,
    HeatMap,
    MacroSummary,
    Summary,
    TaskMetric,
    TaskSummary,
    is_estimate,
)

_COMPARED = (VERDICT_METRIC, RULE_METRIC)
TABLE_WIDTH = 80
LENGTHS_AT_ONCE = 12
SHADES = " ░▒▓█"
_HEAD = ("task", "n", "{judge}", "rule", "agree", "kappa", "cover", "errors", "calls", "cost")
_JUDGE_WIDTH = 18
_LABEL_WIDTH, _CELL_WIDTH = 8, 6  # of a heat map: 8 + 12 x 6 = 80
_NO_DEPTH = "no depth"

Row = Sequence[str]


def task_table(summary: Summary, macro: MacroSummary) -> Iterator[str]:
    """Renders a line per task with its buckets below, and the macro mean; then a table of the
    metrics that have no column above. The judge's column is named after the judge, and what rules
    scored is marked."""
    tasks = [task for task in summary.tasks if task.candidate == macro.candidate]
    judge = judge_label(summary, macro.candidate)
    if any(task.metrics for task in tasks):
        head = tuple(name.format(judge=judge) for name in _HEAD)
        yield from align_columns(
            _append_marks([head, *map(_task_row, tasks), _macro_row(macro, tasks)], tasks)
        )
        yield (
            f"{judge}, rule: mean x 100; macro: the mean of the task means. cover: share scored of"
        )
        yield "the least covered metric. errors, calls, cost ($): over all metrics."
        yield from _other_metrics(tasks, macro)
    elif macro.agreement is not None:
        share, kappa = _agreement_figures(macro.agreement)
        units = f"{share} of {macro.agreement.n} units"
        yield f"{_capitalise_role(judge)} and rule agree on {units}, kappa {kappa}"
    if fallbacks := sum(
        metric.fallbacks for task in tasks if task.bucket is None for metric in task.metrics
    ):
        yield (
            f"Fallbacks: {fallbacks} scores are a rule's, because the judge failed; agreement "
            "leaves them out."
        )


def judge_label(summary: Summary, candidate: str | None = None) -> str:
    """Names who judged a candidate (None: all of them), in a few characters: a model, "jury",
    "judges" if different ones judged different units, or "estimate" if rules did."""
    judged = [
        metric
        for metric in summary.metrics
        if metric.metric == VERDICT_METRIC and candidate in (None, metric.candidate)
    ]
    named = {judge for metric in judged for judge in metric.judges}
    judges = named - set(FALLBACKS) - WITHOUT_CALL
    if not judges:
        return "judge"
    if all(map(is_estimate, judges)):
        return ESTIMATE
    if len(judges) > 1:
        return "judges"
    (name,) = judges
    return "jury" if JURORS in name else name.rpartition("/")[2][:_JUDGE_WIDTH]


def disagreements_line(summary: Summary) -> str:
    count = summary.n_disagreements or 0
    where = f", listed in {DISAGREEMENTS} of the run folder" if count else ""
    units = f"{count} unit{'s' * (count != 1)}"
    return f"{_capitalise_role(judge_label(summary))} and rule disagree on {units}{where}"


def heat_map(heat: HeatMap) -> Iterator[str]:
    """Renders lengths as columns and depths as rows. A cell is the metric's mean in percent of its
    scale, with a block as dark as it is high. More than LENGTHS_AT_ONCE lengths take several
    grids."""
    counts = [n for row in (*heat.n, heat.n_without_depth) for n in row if n]
    span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    length = "length up to, in tokens" if heat.lengths_binned else "length in tokens"
    marked = mark(sum(counts), heat.estimates, heat.fallbacks)
    yield (
        f"Mean as percent{f', {marked}' * bool(marked)}. Columns: {length}; rows: depth. {span} "
        "scored a cell"
    )
    for start in range(0, len(heat.lengths), LENGTHS_AT_ONCE):
        part = slice(start, start + LENGTHS_AT_ONCE)
        yield _heat_row("depth", [length_label(length) for length in heat.lengths[part]])
        for depth, values in zip(heat.depths, heat.values, strict=True):
            yield _heat_row(
                f"{depth:g}%" if depth == round(depth, 2) else f"{depth:.1f}%",
                _heat_cells(heat, values[part]),
            )
        if heat.without_depth:
            yield _heat_row(_NO_DEPTH, _heat_cells(heat, heat.without_depth[part]))


def align_columns(rows: Sequence[Row], left: Collection[int] = (0,)) -> Iterator[str]:
    """Aligns rows as lines, the columns of `left` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<" if place in left else ">" for place in range(len(widths))]
    for row in rows:
        cells = zip(row, signs, widths, strict=True)
        yield "  ".join(f"{text:{sign}{width}}" for text, sign, width in cells).rstrip()


def format_interval(mean: float | None, found: Interval | None, digits: int) -> str:
    """Formats an interval as half its width, or as its ends if it is not symmetric."""
    if mean is None or found is None:
        return ""
    below, above = f"{mean - found.low:z.{digits}f}", f"{found.high - mean:z.{digits}f}"
    return (
        f"± {above}" if below == above else f"{found.low:z.{digits}f} to {found.high:z.{digits}f}"
    )


def _task_row(task: TaskSummary) -> Row:
    by_name = {metric.metric: metric for metric in task.metrics}
    name = (task.task or "(no task)") if task.bucket is None else f"  {task.bucket}"
    means = (by_name[metric].mean if metric in by_name else None for metric in _COMPARED)
    coverages = [metric.coverage for metric in task.metrics if metric.coverage is not None]
    return (
        name,
        str(task.n),
        *map(_format_hundredths, means),
        *_agreement_figures(task.agreement),
        _format_percent(min(coverages, default=None)),
        *_spending_figures(task.metrics),
    )


def _macro_row(macro: MacroSummary, tasks: Sequence[TaskSummary]) -> Row:
    metrics = [metric for task in tasks if task.bucket is None for metric in task.metrics]
    means = (macro.means.get(metric) for metric in _COMPARED)
    return (
        "macro",
        str(macro.n),
        *map(_format_hundredths, means),
        *_agreement_figures(macro.agreement),
        "",
        *_spending_figures(metrics),
    )


def _spending_figures(metrics: Sequence[TaskMetric]) -> Row:
    """The errors, calls and cost of some metrics, summed."""
    cost, unpriced = (
        sum(one.cost_usd or 0.0 for one in metrics),
        any(one.unpriced_calls for one in metrics),
    )
    return (
        str(sum(metric.n_failed for metric in metrics)),
        str(sum(metric.calls for metric in metrics)),
        (f"{cost:.4f}" + " and more" * unpriced) if cost else "unknown" if unpriced else NOTHING,
    )


def _agreement_figures(agreement: Agreement | None) -> Row:
    if agreement is None:
        return NOTHING, NOTHING
    kappa = NOTHING if agreement.kappa is None else f"{agreement.kappa:z.2f}"
    return _format_percent(agreement.share), kappa


def _capitalise_role(judge: str) -> str:
    """Capitalises a judge's label at the start of a sentence, unless it is a model's name."""
    return judge.capitalize() if judge in ("judge", "judges", "jury", ESTIMATE) else judge


def _other_metrics(tasks: Sequence[TaskSummary], macro: MacroSummary) -> Iterator[str]:
    """Renders the means of the metrics without a column above, in their own scale and marked, in as
    many tables as the width needs."""
    first = ("task", *(_task_row(task)[0] for task in tasks), "macro")
    names = {metric.metric: name_figure(metric) for task in tasks for metric in task.metrics}
    columns = [
        (names.get(name, name), *_task_means(name, tasks), _macro_mean(name, tasks, macro))
        for name in macro.means
        if name not in _COMPARED
    ]
    while columns:
        taken, room = 1, TABLE_WIDTH - max(map(len, first)) - 2 - max(map(len, columns[0]))
        while taken < len(columns) and (room := room - max(map(len, columns[taken])) - 2) >= 0:
            taken += 1
        shown, columns = columns[:taken], columns[taken:]
        yield ""
        yield from align_columns(list(zip(first, *shown, strict=True)))


def _task_means(name: str, tasks: Sequence[TaskSummary]) -> Iterator[str]:
    """Yields a metric's mean in each task."""
    for task in tasks:
        found = next((metric for metric in task.metrics if metric.metric == name), None)
        yield (
            NOTHING
            if found is None or found.mean is None
            else append_mark(_format_mean(found.mean), task_mark([found]))
        )


def _macro_mean(name: str, tasks: Sequence[TaskSummary], macro: MacroSummary) -> str:
    found = [
        metric
        for task in tasks
        if task.bucket is None
        for metric in task.metrics
        if metric.metric == name
    ]
    mean = macro.means[name]
    return NOTHING if mean is None else append_mark(_format_mean(mean), task_mark(found))


def task_mark(metrics: Sequence[TaskMetric]) -> str:
    """The mark of a metric's figures over one or more tasks."""
    scored = sum(metric.n_scored for metric in metrics)
    return mark(
        scored, sum(each.estimates for each in metrics), sum(each.fallbacks for each in metrics)
    )


def _append_marks(rows: Sequence[Row], tasks: Sequence[TaskSummary]) -> list[Row]:
    """Adds a column that marks the verdicts that are not a judge's, if there are any."""
    verdicts = [
        [metric for metric in task.metrics if metric.metric == VERDICT_METRIC] for task in tasks
    ]
    whole = [
        metric
        for task, found in zip(tasks, verdicts, strict=True)
        if task.bucket is None
        for metric in found
    ]
    marks = ["", *map(task_mark, verdicts), task_mark(whole)]
    if not any(marks):
        return list(rows)
    return [(*row, marked) for row, marked in zip(rows, marks, strict=True)]


def _heat_cells(heat: HeatMap, values: Sequence[float | None]) -> list[str]:
    low, high = heat.scale
    cells = []
    for value in values:
        if value is None:
            cells.append(NOTHING)
        else:
            share = (value - low) / (high - low)
            shade = SHADES[min(int(max(share, 0.0) * len(SHADES)), len(SHADES) - 1)]
            cells.append(f"{shade}{share:4.0%}")
    return cells


def _heat_row(label: str, cells: Sequence[str]) -> str:
    return (
        f"{label:>{_LABEL_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
    ).rstrip()


def _formatter(form: str) -> Callable[[float | None], str]:
    return lambda value: NOTHING if value is None else format(value, form)


_format_percent = _formatter(".1%")
_format_mean = _formatter(".4f")


def _format_hundredths(value: float | None) -> str:
    return NOTHING if value is None else f"{value * 100:z.2f}"
