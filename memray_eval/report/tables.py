"""A run's tables by task, and its heat maps by length and depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memray_eval.analysis.marks import ESTIMATE, NOTHING, append_mark, mark, name_figure
from memray_eval.analysis.where import length_label
from memray_eval.report.sections import (
    Content,
    Row,
    TextTable,
    append_column,
    count_span,
    figure,
    fit_tables,
)
from memray_eval.types import (
    DISAGREEMENTS,
    FALLBACKS,
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
    split_jurors,
)

_COMPARED = (VERDICT_METRIC, RULE_METRIC)
LENGTHS_AT_ONCE = 12
SHADES = " ░▒▓█"
_HEAD = ("task", "n", "{judge}", "rule", "agree", "kappa", "cover", "errors", "calls", "cost")
_JUDGE_WIDTH = 18
_LABEL_WIDTH, _CELL_WIDTH = 8, 6  # of a heat map: 8 + 12 x 6 = 80
_NO_DEPTH = "no depth"


def task_table(summary: Summary, macro: MacroSummary) -> Iterator[Content]:
    """A line per task with its buckets below, and the macro mean; then a table of the
    metrics that have no column above. The judge's column is named after the judge, and what rules
    scored is marked."""
    tasks = [task for task in summary.tasks if task.candidate == macro.candidate]
    judge = judge_label(summary, macro.candidate)
    if any(task.metrics for task in tasks):
        head = tuple(name.format(judge=judge) for name in _HEAD)
        rows = [head, *map(_task_row, tasks), _macro_row(macro, tasks)]
        yield TextTable(append_column(rows, _verdict_marks(tasks)))
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
    return "jury" if len(split_jurors(name)) > 1 else name.rpartition("/")[2][:_JUDGE_WIDTH]


def disagreements_line(summary: Summary) -> str:
    count = summary.n_disagreements or 0
    listed = f", listed in {DISAGREEMENTS} of the run folder" if count else ""
    units = f"{count} unit{'s' * (count != 1)}"
    return f"{_capitalise_role(judge_label(summary))} and rule disagree on {units}{listed}"


def heat_map(heat: HeatMap) -> Iterator[str]:
    """Renders lengths as columns and depths as rows. A cell is the metric's mean in percent of its
    scale, with a block as dark as it is high. More than LENGTHS_AT_ONCE lengths take several
    grids."""
    counts = [n for row in (*heat.n, heat.n_without_depth) for n in row if n]
    length = "length up to, in tokens" if heat.lengths_binned else "length in tokens"
    marked = mark(sum(counts), heat.estimates, heat.fallbacks)
    yield (
        f"Mean as percent{f', {marked}' * bool(marked)}. Columns: {length}; rows: depth. "
        f"{count_span(counts)} "
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
        figure(min(coverages, default=None), ".1%"),
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
    cost = sum(metric.cost_usd or 0.0 for metric in metrics)
    unpriced = any(metric.unpriced_calls for metric in metrics)
    return (
        str(sum(metric.n_failed for metric in metrics)),
        str(sum(metric.calls for metric in metrics)),
        (f"{cost:.4f}" + " and more" * unpriced) if cost else "unknown" if unpriced else NOTHING,
    )


def _agreement_figures(agreement: Agreement | None) -> Row:
    if agreement is None:
        return NOTHING, NOTHING
    return figure(agreement.share, ".1%"), figure(agreement.kappa, "z.2f")


def _capitalise_role(judge: str) -> str:
    """Capitalises a judge's label at the start of a sentence, unless it is a model's name."""
    return judge.capitalize() if judge in ("judge", "judges", "jury", ESTIMATE) else judge


def _other_metrics(tasks: Sequence[TaskSummary], macro: MacroSummary) -> Iterator[Content]:
    """The means of the metrics without a column above, in their own scale and marked, in as many
    tables as the width needs."""
    first = ("task", *(_task_row(task)[0] for task in tasks), "macro")
    names = {metric.metric: name_figure(metric) for task in tasks for metric in task.metrics}
    columns = [
        (names.get(name, name), *_task_means(name, tasks), _macro_mean(name, tasks, macro))
        for name in macro.means
        if name not in _COMPARED
    ]
    for table in fit_tables(first, columns):
        yield from ("", table)


def _task_means(name: str, tasks: Sequence[TaskSummary]) -> Iterator[str]:
    """Yields a metric's mean in each task."""
    for task in tasks:
        metric = next((metric for metric in task.metrics if metric.metric == name), None)
        yield (
            NOTHING
            if metric is None or metric.mean is None
            else append_mark(f"{metric.mean:.4f}", task_mark([metric]))
        )


def _macro_mean(name: str, tasks: Sequence[TaskSummary], macro: MacroSummary) -> str:
    metrics = [
        metric
        for task in tasks
        if task.bucket is None
        for metric in task.metrics
        if metric.metric == name
    ]
    mean = macro.means[name]
    return NOTHING if mean is None else append_mark(f"{mean:.4f}", task_mark(metrics))


def task_mark(metrics: Sequence[TaskMetric]) -> str:
    """The mark of a metric's figures over one or more tasks."""
    scored = sum(metric.n_scored for metric in metrics)
    estimates = sum(metric.estimates for metric in metrics)
    fallbacks = sum(metric.fallbacks for metric in metrics)
    return mark(scored, estimates, fallbacks)


def _verdict_marks(tasks: Sequence[TaskSummary]) -> Row:
    """Marks the verdicts that are not a judge's, in each row of a table by task."""
    verdicts = [
        [metric for metric in task.metrics if metric.metric == VERDICT_METRIC] for task in tasks
    ]
    of_tasks = zip(tasks, verdicts, strict=True)
    whole = [metric for task, of_task in of_tasks if task.bucket is None for metric in of_task]
    return ["", *map(task_mark, verdicts), task_mark(whole)]


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


def _format_hundredths(value: float | None) -> str:
    return NOTHING if value is None else f"{value * 100:z.2f}"
