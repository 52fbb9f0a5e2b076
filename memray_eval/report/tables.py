"""A run's tables: by task, of generation, heat maps, sweeps, arms of conversation memory, models
that answered, failed calls."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from textwrap import wrap

import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.marks import ESTIMATE, NOTHING, append_mark, digits_of, mark, name_figure
from memray_eval.analysis.reduce import causes_of
from memray_eval.analysis.score_table import Flags, ScoreTable, read_score_tables
from memray_eval.analysis.served_models import split_names
from memray_eval.analysis.where import length_label
from memray_eval.config.sections import EMBEDDED
from memray_eval.errors import EvalError
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.metrics._text_features import expected_line
from memray_eval.report.answer import causes_in_words
from memray_eval.report.sections import (
    TABLE_WIDTH,
    Cell,
    Content,
    Row,
    Section,
    Table,
    append_column,
    bounded,
    cost_figure,
    count_span,
    ends,
    figure,
    fit_tables,
    hundredths,
    share_of,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import (
    DISAGREEMENTS,
    FAILURES,
    FALLBACKS,
    RULE_METRIC,
    RULES,
    VERDICT_METRIC,
    WITHOUT_CALL,
    Agreement,
    ArmSummary,
    Bounded,
    CategoryFigure,
    EpochFigures,
    GenerationSummary,
    HeatMap,
    LengthPoint,
    MacroSummary,
    Performance,
    ServedModel,
    StoreFigures,
    Summary,
    Sweep,
    TaskMetric,
    TaskSummary,
    is_estimate,
    split_jurors,
)

_EPOCH_WORDS = (
    "Variance of a score between samples, and between the draws of one sample (one-way",
    "random effects). *: estimated below 0. Intervals: 95 %, by bootstrap over samples.",
    "pass@k: any of k answers is right. pass^k: all k are. Both of a sample, on average,",
    "over the samples with k scores or more.",
)
_COMPARED = (VERDICT_METRIC, RULE_METRIC)
LENGTHS_AT_ONCE = 12
MEASURES = {"tokens": "length", "entries": "entries of memory"}  # what a curve is over
_HEAD = ("task", "n", "{judge}", "rule", "agree", "kappa", "cover", "errors", "calls", "cost")
_JUDGE_WIDTH = 18
_LABEL_WIDTH, _CELL_WIDTH = 8, 5  # of a heat map: 8 + 12 x (1 + 5) = 80


def task_table(summary: Summary, macro: MacroSummary) -> Iterator[Content]:
    """A line per task with its buckets below, and the macro mean; then the metrics that have no
    column above. The judge's column has its name, and what rules scored is marked."""
    tasks = [task for task in summary.tasks if task.candidate == macro.candidate]
    judge = judge_label(summary, macro.candidate)
    if any(task.metrics for task in tasks):
        head = tuple(name.format(judge=judge) for name in _HEAD)
        of_macro = _row("macro", macro, macro.means, "", _of_whole(tasks))
        rows = [head, *map(_task_row, tasks), of_macro]
        # marks of the verdicts that are not a judge's
        of_rows = [*(task.metrics for task in tasks), _of_whole(tasks)]
        verdicts = ([of for of in row if of.metric == VERDICT_METRIC] for row in of_rows)
        yield Table(append_column(rows, ["", *map(task_mark, verdicts)]))
        yield (
            f"{judge}, rule: mean x 100; macro: the mean of the task means. cover: share scored of"
        )
        yield "the least covered metric. errors, calls, cost ($): over all metrics."
        yield from _other_metrics(tasks, macro)
    elif macro.agreement is not None:
        share, kappa = _agreement_figures(macro.agreement)
        units = f"{share} of {macro.agreement.n} answers"
        yield f"{_capitalise_role(judge)} and rule agree on {units}, kappa {kappa}"
    if fallbacks := sum(metric.fallbacks for metric in _of_whole(tasks)):
        yield (
            f"Fallbacks: {fallbacks} scores are a rule's, because the judge failed; agreement "
            "leaves them out."
        )


def generation_sections(summary: Summary) -> Iterator[Section]:
    """The facts on each candidate's answers: a row a fact, a column a candidate."""
    some_are_silent = any(shown.no_answer for shown in summary.candidates)
    facts = {of.candidate: dict(_facts(of, some_are_silent)) for of in summary.candidates}
    names = list(dict.fromkeys(name for of_candidate in facts.values() for name in of_candidate))
    columns = [(of, *(known.get(name, NOTHING) for name in names)) for of, known in facts.items()]
    if columns:
        yield Section("GENERATION", list(fit_tables(("", *names), columns)))


def _facts(generation: GenerationSummary, some_are_silent: bool) -> Iterator[tuple[str, str]]:
    if generation.model != generation.candidate:
        yield "model", generation.model
    failed = f" ({generation.n_failed:,} failed)" if generation.n_failed else ""
    yield "answers", f"{generation.n:,}{failed}"
    if some_are_silent and generation.answered is not None:
        yield "answered", f"{generation.answered:,}"
    if causes := causes_in_words(generation):
        yield "no answer", causes
    if n := generation.asked_again:
        yield "asked again", f"{n:,} ({generation.answered_then:,} answered then)"
    if generation.prompt_tokens or generation.output_tokens:
        yield "tokens in / out", f"{generation.prompt_tokens:,} / {generation.output_tokens:,}"
    measured = (
        ("tokens unknown of", generation.uncounted or None, ",", " answers"),
        ("throughput", generation.output_tokens_per_s, ",.1f", " tokens/s"),
        ("first token, mean", generation.ttft_s_mean, ".2f", " s"),
        ("in prefix cache", generation.cached_tokens, ",", " tokens"),
        ("prefix cache", generation.cache_hit_rate, ".1%", " hit"),
        ("prompts cut", generation.truncated or None, ",", ""),
        ("answers with thinking", generation.thinking or None, ",", ""),
    )
    for name, value, form, unit in measured:
        if value is not None:
            yield name, figure(value, form, unit)
    if set(generation.prompt_forms) - {"chat"}:
        yield "prompt forms", _counted(generation.prompt_forms)
    if generation.finish_reasons:
        yield "ended by", _counted(generation.finish_reasons)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def judge_label(summary: Summary, candidate: str | None = None) -> str:
    """Names who judged a candidate (None: all of them), in a few characters: a model, "jury",
    "judges" if different ones judged different units, or "estimate" if rules did."""
    verdicts = (metric for metric in summary.metrics if metric.metric == VERDICT_METRIC)
    judged = (metric for metric in verdicts if candidate in (None, metric.candidate))
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
    units = f"{count} answer{'s' * (count != 1)}"
    return f"{_capitalise_role(judge_label(summary))} and rule disagree on {units}{listed}"


def epoch_sections(summary: Summary) -> Iterator[Section]:
    """What several answers a sample say, a section a candidate."""
    means = {(row.metric, row.candidate): row.figure.value for row in summary.metrics}
    for candidate, group in groupby(summary.epochs, key=lambda row: row.candidate):
        rows = list(group)
        variances: list[Row] = [("variance", "mean", "samples", "between samples", "of draws")]
        passes: list[Row] = [("right from", "score", "k", "samples", "pass@k", "pass^k")]
        for row in rows:
            mean, counts = figure(means[row.metric, candidate]), f"{row.n_samples:,}"
            spread = _bounds(row.between_samples, "z.3g") + "*" * row.is_floored
            variances.append((row.metric, mean, counts, spread, _bounds(row.between_draws, "z.3g")))
            for of_k in row.passes:
                head = (row.metric, f"{row.right_from:g}") if of_k.k == 1 else ("", "")
                shares = _bounds(of_k.any_right), _bounds(of_k.all_right)
                passes.append((*head, f"{of_k.k}", f"{of_k.n_samples:,}", *shares))
        tables = [Table(variances), *(["", Table(passes)] if len(passes) > 1 else ())]
        yield Section(f"EPOCHS - {candidate}", [*epoch_table(rows), "", *tables, *_EPOCH_WORDS])


def epoch_table(figures: Sequence[EpochFigures]) -> Iterator[Content]:
    """The same in a few figures, a row a metric and candidate."""
    rows: list[Row] = [("answers to a sample", "up to", "draws' variance", "always right", "never")]
    several = len({row.candidate for row in figures}) > 1
    for row in figures:
        name = f"{row.metric} of {row.candidate}" if several else row.metric
        last = row.passes[-1] if row.passes else None
        always = last.all_right.value if last and last.all_right else None
        never = 1 - last.any_right.value if last and last.any_right else None
        shares = (figure(share, ".1%") for share in (row.draws_share, always, never))
        rows.append((name, f"{row.epochs}", *shares))
    if figures:
        yield Table(rows)
        yield "draws' variance: the share of a score's variance that is between one sample's draws."


def _bounds(shown: Bounded | None, form: str = "z.3f") -> str:
    return NOTHING if shown is None else bounded(shown.value, shown.low, shown.high, form)


def curve_sections(heats: Iterable[HeatMap]) -> Iterator[Section]:
    """A section for each candidate with figures by length alone: a row a length."""
    who = attrgetter("candidate", "measure")
    curves = sorted(filter(is_curve, heats), key=who)
    for (candidate, measure), group in groupby(curves, who):
        yield Section(f"BY {MEASURES[measure].upper()} - {candidate}", list(_curve_parts([*group])))


def is_curve(heat: HeatMap) -> bool:
    """True if the samples have no depth: the figures are a curve over length."""
    return not heat.depths and any(point.n for point in heat.points)


def _curve_parts(curves: Sequence[HeatMap]) -> Iterator[Content]:
    lengths = sorted({length for curve in curves for length in curve.lengths})
    points = [{point.length: point for point in curve.points} for curve in curves]
    up_to = " up to" * any(curve.lengths_binned for curve in curves)
    yield "Figure [95 % interval]; n scored; tokens: mean of a prompt; cost ($): judge calls"
    first = [f"{curves[0].measure}{up_to}", *(size_label(curves[0], length) for length in lengths)]
    columns = [["n"], ["tokens"], ["cost"]]
    for length in lengths:
        of_length = [by_length[length] for by_length in points if length in by_length]
        costs = [point.cost_usd or 0.0 for point in of_length]
        columns[0].append(count_span([point.n for point in of_length], ","))
        columns[1].append(figure(of_length[0].prompt_tokens, ",.0f"))
        columns[2].append(cost_figure(sum(costs), sum(point.unpriced_calls for point in of_length)))
    columns = [column for column in columns if set(column[1:]) != {NOTHING}]
    for curve, by_length in zip(curves, points, strict=True):
        marked = mark(sum(curve.n_without_depth), curve.estimates, curve.fallbacks)
        shown = (by_length.get(length, LengthPoint()) for length in lengths)
        form = f"z.{digits_of(curve.scale)}f"
        cells = (bounded(point.mean, point.low, point.high, form) for point in shown)
        columns.append([append_mark(curve.metric, marked), *cells])
    yield from fit_tables(first, columns)


def size_label(curve: HeatMap, length: float) -> str:
    """A length as tokens are written, or a number of entries."""
    return length_label(length) if curve.measure == "tokens" else f"{length:,.0f}"


def heat_sections(heats: Iterable[HeatMap]) -> Iterator[Section]:
    """Heat maps with a score and no curve: lengths as columns, depths as rows, in percent."""
    for heat in heats:
        counts = [n for row in (*heat.n, heat.n_without_depth) for n in row if n]
        if counts and not is_curve(heat):
            length = "length up to, in tokens" if heat.lengths_binned else "length in tokens"
            marked = mark(sum(counts), heat.estimates, heat.fallbacks)
            legend = (
                f"Mean as percent{f', {marked}' * bool(marked)}. Columns: {length}; rows: depth. "
                f"{count_span(counts)} scored a cell"
            )
            tables = _heat_tables(heat)
            yield Section(f"LENGTH BY DEPTH: {heat.metric} - {heat.candidate}", [legend, *tables])


def _heat_tables(heat: HeatMap) -> Iterator[Table]:
    rows = [
        (f"{depth:g}%" if depth == round(depth, 2) else f"{depth:.1f}%", values, counts)
        for depth, values, counts in zip(heat.depths, heat.values, heat.n, strict=True)
    ]
    if heat.without_depth:
        rows.append(("no depth", heat.without_depth, heat.n_without_depth))
    for start in range(0, len(heat.lengths), LENGTHS_AT_ONCE):
        part = slice(start, start + LENGTHS_AT_ONCE)
        heads = [f"{length_label(length):>{_CELL_WIDTH}}" for length in heat.lengths[part]]
        table: list[Row] = [(f"{'depth':>{_LABEL_WIDTH}}", *heads)]
        for label, values, counts in rows:
            shares = [None if value is None else share_of(value, heat.scale) for value in values]
            cells = (
                NOTHING
                if share is None
                else Cell(f"{share:.0%}", percent_of(share), f"{n:,} scored")
                for share, n in zip(shares[part], counts[part], strict=True)
            )
            table.append((label, *cells))
        yield Table(table, left=(), gap=" ")


def percent_of(share: float) -> int:
    """A share in whole percent, 0 to 100."""
    return round(100 * min(max(share, 0.0), 1.0))


def _task_row(task: TaskSummary) -> Row:
    name = (task.task or "(no task)") if task.bucket is None else f"  {task.bucket}"
    means = {metric.metric: metric.mean for metric in task.metrics}
    coverages = [metric.coverage for metric in task.metrics if metric.coverage is not None]
    return _row(name, task, means, figure(min(coverages, default=None), ".1%"), task.metrics)


def _row(
    name: str,
    of: TaskSummary | MacroSummary,
    means: Mapping[str, float | None],
    coverage: str,
    metrics: Sequence[TaskMetric],
) -> Row:
    """A row under _HEAD; errors, calls and cost are the sums over some metrics."""
    cost = sum(metric.cost_usd or 0.0 for metric in metrics)
    n_unpriced = sum(metric.unpriced_calls for metric in metrics)
    return (
        name,
        str(of.n),
        *(hundredths(means.get(metric)) for metric in _COMPARED),
        *_agreement_figures(of.agreement),
        coverage,
        str(sum(metric.n_failed for metric in metrics)),
        str(sum(metric.calls for metric in metrics)),
        cost_figure(cost, n_unpriced),
    )


def _agreement_figures(agreement: Agreement | None) -> Row:
    if agreement is None:
        return NOTHING, NOTHING
    return figure(agreement.share, ".1%"), figure(agreement.kappa, "z.2f")


def _capitalise_role(judge: str) -> str:
    """Capitalises a judge's label at the start of a sentence, unless it is a model's name."""
    return judge.capitalize() if judge in ("judge", "judges", "jury", ESTIMATE) else judge


def _other_metrics(tasks: Sequence[TaskSummary], macro: MacroSummary) -> Iterator[Content]:
    """The means of the metrics without a column above, marked, in tables that fit the width."""
    first = ("task", *(_task_row(task)[0] for task in tasks), "macro")
    names = {metric.metric: name_figure(metric) for task in tasks for metric in task.metrics}
    columns = []
    for name in (name for name in macro.means if name not in _COMPARED):
        of_tasks = ([metric for metric in task.metrics if metric.metric == name] for task in tasks)
        means = (_marked_mean(of[0].mean if of else None, of) for of in of_tasks)
        of_all = [metric for metric in _of_whole(tasks) if metric.metric == name]
        columns.append((names.get(name, name), *means, _marked_mean(macro.means[name], of_all)))
    for table in fit_tables(first, columns):
        yield from ("", table)


def _of_whole(tasks: Sequence[TaskSummary]) -> list[TaskMetric]:
    """The metrics of all tasks, each of all of its buckets."""
    return [metric for task in tasks if task.bucket is None for metric in task.metrics]


def _marked_mean(mean: float | None, metrics: Sequence[TaskMetric]) -> str:
    return NOTHING if mean is None else append_mark(f"{mean:.4f}", task_mark(metrics))


def task_mark(rows: Sequence[TaskMetric | Performance]) -> str:
    """The mark of a metric's figures over one or more tasks, or candidates."""
    estimates, fallbacks = (row.estimates for row in rows), (row.fallbacks for row in rows)
    return mark(sum(row.n_scored for row in rows), sum(estimates), sum(fallbacks))


def served_sections(served: Sequence[ServedModel]) -> Iterator[Section]:
    """A section for each name that answered as several models: a column a model, a row a metric."""
    for models in split_names(served):
        metrics = sorted({metric for model in models for metric in model.means})
        rows: list[Row] = [("mean", *(model.model for model in models))]
        rows.append(("n", *(f"{model.n:,}" for model in models)))
        for metric in metrics:
            rows.append((metric, *(figure(model.means.get(metric), ".4f") for model in models)))
        yield Section(f"MODELS THAT ANSWERED - {models[0].of} {models[0].name}", [Table(rows)])


def sweep_sections(sweeps: Sequence[Sweep]) -> Iterator[Section]:
    """A section for each set of candidates: a row per metric and a column per temperature."""
    for _, group in groupby(sweeps, key=lambda sweep: sweep.candidates):
        of_set = list(group)
        first, span = of_set[0], count_span([n for sweep in of_set for n in sweep.n])
        columns = []
        for number, temperature in enumerate(first.temperatures):
            cells = [f"{temperature:g}"]
            for sweep in of_set:
                mean, spread = sweep.means[number], figure(sweep.stderrs[number], ".4f", "")
                shown = append_mark(f"{mean or 0:.4f} ± {spread}", sweep_mark(sweep, number))
                cells.append(NOTHING if mean is None else shown)
            columns.append(cells)
        lines = partial(wrap, width=TABLE_WIDTH, break_on_hyphens=False)
        parts: list[Content] = [
            *lines(f"Candidates: {', '.join(first.candidates)}"),
            f"Figure ± standard error in the metric's own scale; {span} scored a cell",
            *fit_tables(["temperature", *map(name_figure, of_set)], columns),
        ]
        for sweep in of_set:
            parts += lines(expected_line(sweep.metric) or "")
        yield Section(f"TEMPERATURE SWEEP - {first.model}, prompt {first.prompt}", parts)


def sweep_mark(sweep: Sweep, number: int) -> str:
    """The mark of a sweep's figure."""
    return mark(sweep.n[number], sweep.estimates[number], sweep.fallbacks[number])


_NAME = 24  # the widest name of a category
EST = " est."


def arm_sections(arms: Sequence[ArmSummary]) -> Iterator[Section]:
    """All arms side by side, then a section for each."""
    if arms:
        yield Section("CONVERSATION MEMORY", list(_arms(arms)))
    if stores := [(arm, arm.store) for arm in arms if arm.store is not None]:
        yield Section("MEMORY STORES", list(_stores(stores, _short_names(arms))))
    for arm in arms:
        title = f"CONVERSATION MEMORY - {arm.candidate} ({arm.arm})"
        yield Section(title, list(_arm(arm)))


def _arms(arms: Sequence[ArmSummary]) -> Iterator[Content]:
    """A row an arm: accuracy against what it took; then where each failed."""
    heads = ("candidate", "arm", "n", "accuracy", "recall", "tokens", "seconds", "cut")
    short = _short_names(arms)
    rows = [
        (
            short[arm.candidate],
            arm.arm,
            _scored(arm),
            figure(arm.accuracy, "z.3f") + (EST if arm.headline in arm.estimated else ""),
            figure(arm.recall, "z.3f"),
            figure(arm.prompt_tokens_mean, ",.0f"),
            figure(arm.seconds_mean, ".2f"),
            f"{arm.n_cut:,}",
        )
        for arm in arms
    ]
    yield Table([heads, *rows], left=(0, 1))
    yield "recall: of the evidence, in what was retrieved or shown. tokens, seconds: a question's"
    yield "prompt and answer, on average. cut: prompts that lost whole sessions, or turns, to fit."
    yield ""
    yield "Where did it fail?"
    width = max(map(len, FAILURES.values()))
    table = [("", *(short[arm.candidate] for arm in arms))]
    for key, words in FAILURES.items():
        counts = [(arm.failures.get(key, 0), arm.n_wrong) for arm in arms]
        cells = (f"{n:,} ({n / wrong:6.1%})" if wrong else f"{n:,}" for n, wrong in counts)
        table.append((f"{words:<{width}}", *cells))
    all_wrong = (f"{arm.n_wrong:,} (100.0%)" if arm.n_wrong else "0" for arm in arms)
    table.append(("all wrong answers", *all_wrong))
    if any(arm.n_unexplained for arm in arms):
        table.append(("wrong, no evidence named", *(f"{arm.n_unexplained:,}" for arm in arms)))
    yield Table(table)


def _scored(arm: ArmSummary) -> str:
    """How many questions have a score of the headline, and of how many if some have none."""
    of_all = (of.n for of in arm.categories if (of.category, of.metric) == (None, arm.headline))
    n = next(of_all, 0)
    return f"{n:,}" if n == arm.n else f"{n:,}/{arm.n:,}"


def _short_names(arms: Iterable[ArmSummary]) -> dict[str, str]:
    """The candidates' names as tables have them: their beginning, or their end if that tells them
    apart (org/model-full, org/model-bm25), or all."""
    names = [arm.candidate for arm in arms]
    for part in (slice(_NAME), slice(-_NAME, None), slice(None)):
        short = {name: name[part] for name in names}
        if len({*short.values()}) == len(short):
            break
    return short


def _stores(
    arms: Sequence[tuple[ArmSummary, StoreFigures]], short: Mapping[str, str]
) -> Iterator[Content]:
    """A row a store: what it returned, what it took; then its accuracy against other arms."""
    heads = ("candidate", "recall", "complete", "entries", "shown", "writes", "p50 s", "p95 s",
             "searches", "p50 s", "p95 s", "tokens", "$", "failed")  # fmt: skip
    rows = [
        (
            short[arm.candidate],
            figure(arm.recall, "z.3f"),
            figure(store.complete, "z.3f"),
            figure(store.returned, ".1f"),
            figure(arm.prompt_tokens_mean, ",.0f"),
            f"{store.n_writes:,}",
            figure(store.write_p50_s, ".3f"),
            figure(store.write_p95_s, ".3f"),
            f"{store.n_searches:,}",
            figure(store.search_p50_s, ".3f"),
            figure(store.search_p95_s, ".3f"),
            f"{store.tokens:,}" + EST * store.is_estimated,
            figure(store.usd, ".4f"),
            f"{store.n_failed:,}",
        )
        for arm, store in arms
    ]
    yield Table([heads, *rows])
    yield "recall: of the evidence, by content: its words in an entry that was returned. complete:"
    yield "the share of the right answer's words in all of them. shown: a prompt's tokens. writes,"
    yield "searches: of sessions and questions. tokens, $: the store's (est.: of what was written)."
    differences = [
        (
            short[arm.candidate],
            short.get(against.other, against.other),
            f"{against.n:,}",
            bounded(against.difference, against.low, against.high, "+z.3f"),
        )
        for arm, store in arms
        for against in store.differences
    ]
    if differences:
        yield ""
        yield Table([("accuracy of", "against", "n", "difference"), *differences], left=(0, 1))
    for arm, store in arms:
        if store.tools:
            counts = ", ".join(f"{name} {n:,}" for name, n in store.tools.items())
            yield f"questions of {arm.candidate}, by its tools: {counts}"


def _arm(arm: ArmSummary) -> Iterator[Content]:
    """The benchmark's own figures, those by category, abstention, the agreement, and the errata."""
    for name, value in arm.overall.items():
        yield f"{name}: {hundredths(value)}"
    by_key = {(cell.category, cell.metric): cell for cell in arm.categories}
    most = dict[str | None, int]()
    for cell in arm.categories:
        most[cell.category] = max(cell.n, most.get(cell.category, 0))
    categories = list(most)
    names = ["category", *((category or "all")[:_NAME] for category in categories)]
    columns = []
    for metric in dict.fromkeys(cell.metric for cell in arm.categories):
        cells = [by_key.get((category, metric)) for category in categories]
        head = metric + (EST if metric in arm.estimated else "")
        columns.append([head, *map(_with_interval, cells)])
    for table in fit_tables(names, [["n", *(f"{n:,}" for n in most.values())], *columns]):
        yield from ("", table)
    estimate = "; est.: an estimate, not a judge's verdict" if arm.estimated else ""
    yield f"mean x 100 [95 % interval, clustered by conversation where there are several{estimate}]"
    if any(category is not None for category in categories):
        yield "each interval holds alone: they are not corrected for the number of categories"
    if arm.n_abstention:
        for kind, means in (("unanswerable", arm.abstention), ("answerable", arm.answerable)):
            points = ", ".join(f"{name} {hundredths(value)}" for name, value in means.items())
            n = arm.n_abstention
            if kind == "answerable":
                n = max(0, most.get(None, n) - n)  # without those that failed
            yield f"{kind} alone (n {n:,}): {points or NOTHING}"
    if arm.agreement is not None:
        kappa = figure(arm.agreement.kappa, "z.2f")
        yield (
            f"{arm.judge_metric} and {arm.rule_metric} agree on {arm.agreement.share:.1%} of "
            f"{arm.agreement.n:,} answers, kappa {kappa}"
        )
    if not arm.errata:
        return
    yield ""
    yield f"Errata: {arm.n_errata:,} of these questions are in the file"
    rows = [("metric", "n", "all", "n", "without wrong gold", "ceiling")]
    for erratum in arm.errata:
        n_all, n_without = f"{erratum.n:,}", f"{erratum.n_without:,}"
        mean, without = hundredths(erratum.mean), hundredths(erratum.mean_without)
        rows.append((erratum.metric, n_all, mean, n_without, without, hundredths(erratum.ceiling)))
    yield Table(rows)
    yield "ceiling: what a system that answers everything rightly would score against this gold"


def _with_interval(cell: CategoryFigure | None) -> str:
    if cell is None or cell.low is None or cell.high is None:
        return NOTHING if cell is None else hundredths(cell.mean)
    return f"{hundredths(cell.mean)} {ends(100 * cell.low, 100 * cell.high, 'z.1f')}"


CAUSES_SHOWN = 10
JUDGE_CALLS, COMPUTED = "FAILED JUDGE CALLS", "METRICS THAT FAILED WITHOUT A JUDGE"


class FailedCalls:
    """Counts the scores that judges and computed metrics failed to give of answers that there are,
    a rule's in a judge's place included; `UNITS` and `SCORES` are the columns that are read."""

    UNITS, SCORES = ("error",), ("metric", "status", "judge", "error")

    def __init__(self) -> None:
        self._n: dict[str, dict[str, Counter[str]]] = {JUDGE_CALLS: {}, COMPUTED: {}}
        self._judged, self._computed = list[str](), list[str]()
        for name, metric in all_metrics().items():
            (self._judged if isinstance(metric, JudgedMetric) else self._computed).append(name)

    def add(self, table: ScoreTable) -> None:
        answered = table.units["error"].is_null().to_numpy(zero_copy_only=False)
        is_error = pc.equal(table.column("status"), "error").to_numpy(zero_copy_only=False)
        # A judge that fails is named PROVIDER/MODEL; a jury of which nobody was reached may be not
        by_rules = table.is_judge(lambda name: name.partition("+")[0] == RULES)
        is_named = table.is_judge(lambda name: "/" in name or name.startswith(EMBEDDED))
        is_judged = (table.codes(self._judged) >= 0) | is_named & (table.codes(self._computed) < 0)
        is_judged &= ~by_rules
        is_answered = answered[table.unit]
        replaced = table.is_judge(FALLBACKS.__contains__)
        self._count(JUDGE_CALLS, table, ((is_error & is_judged) | replaced) & is_answered)
        self._count(COMPUTED, table, is_error & ~is_judged & is_answered)

    def _count(self, kind: str, table: ScoreTable, failed: Flags) -> None:
        rows = pa.array(failed)
        texts = table.column("error").filter(rows).fill_null("no reason was given")
        coded = texts.dictionary_encode()
        causes = list(causes_of(coded.dictionary))
        by_metric = pa.table({"text": coded.indices, "metric": table.column("metric").filter(rows)})
        counted = by_metric.group_by(["text", "metric"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            of_cause = self._n[kind].setdefault(causes[row["text"]], Counter())
            of_cause[row["metric"]] += row["count_all"]

    def sections(self) -> Iterator[Section]:
        """Of each kind that failed, a row a cause, the most frequent first."""
        for kind, counted in self._n.items():
            most_first = sorted(counted.items(), key=lambda of: (-of[1].total(), of[0]))
            rows: list[Row] = [("n", "cause", "metrics")]
            for cause, metrics in most_first[:CAUSES_SHOWN]:
                by_count = sorted(metrics.items(), key=lambda of: (-of[1], of[0]))
                names = ", ".join(f"{name} {n:,}" for name, n in by_count)
                rows.append((f"{metrics.total():,}", cause, names))
            rest = len(most_first) - CAUSES_SHOWN
            others = [f"and {rest:,} other causes"] if rest > 0 else []
            if counted:
                yield Section(kind, [Table(rows, left=(1, 2)), *others])


def read_failed_calls(folder: RunFolder, summary: Summary) -> list[Section]:
    """The sections of a run; none if nothing failed, or its records cannot be read."""
    failed = FailedCalls()
    if summary.n_failed_units or summary.replaced:
        with suppress(EvalError), readable(folder.path):
            for table in read_score_tables(folder.records(), failed.UNITS, failed.SCORES):
                failed.add(table)
    return list(failed.sections())
