"""A run's result as text: whole, as the sections of seed 000, then those of seeds 001 and 004; or
one screen, with why answers failed, where the run is, and what to do next."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap

from memray_eval.analysis.marks import (
    NOTHING,
    append_mark,
    count_left_out,
    fallbacks_of,
    format_figure,
    left_out,
    mark,
    metric_mark,
    name_figure,
)
from memray_eval.analysis.recipes import KINDS, RecipeSpan
from memray_eval.analysis.recommendation import quality_interval, round_up, swap_sides
from memray_eval.errors import may_pass_again
from memray_eval.judges.prices import cost_text
from memray_eval.metric import EVIDENCE, TRUST, UNVERIFIED
from memray_eval.report.answer import (
    answer,
    compared_differences,
    estimates_in_words,
    is_mostly_estimated,
    no_answer_lines,
)
from memray_eval.report.decisions import decision_sections
from memray_eval.report.sections import (
    TABLE_WIDTH,
    Content,
    Row,
    Section,
    Table,
    append_column,
    count_span,
    ends,
    figure,
    fit_tables,
    format_interval,
    lines_of,
    metric_ends,
    outcome_counts,
    percent,
    turn_sections,
    twin_sections,
    wrap_text,
)
from memray_eval.report.tables import (
    arm_sections,
    curve_sections,
    disagreements_line,
    epoch_sections,
    epoch_table,
    generation_sections,
    heat_sections,
    served_sections,
    sweep_sections,
    task_table,
)
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import (
    FALLBACKS,
    WITHOUT_CALL,
    Cause,
    MetricSummary,
    Performance,
    Recommendation,
    Summary,
    SummaryLine,
    is_estimate,
    split_jurors,
)

WIDTH = 70
_DOUBLE, _SINGLE = "=" * WIDTH, "-" * WIDTH
CAUSES_SHOWN = 5
BAR = "█"
_NO_INTERVALS = "No intervals here: of many figures, one is high by chance."
_BAR_SHARE = 0.05  # one block of a bar, as a share of the samples


def render(summary: Summary, failed_calls: Sequence[Section] = ()) -> str:
    """Renders the whole summary as text. Control characters in names are escaped."""
    return escape_controls("\n".join(_lines(summary, failed_calls)) + "\n")


def report_sections(summary: Summary, failed_calls: Sequence[Section] = ()) -> Iterator[Section]:
    """The sections of a run's report, in their order: figures, tables by task, decisions, speed."""
    several = len(summary.candidates) > 1
    scored = (metric for metric in summary.metrics if not metric.reason)
    for number, metric in enumerate(scored, start=1):
        of = f" - {metric.candidate}" if several else ""
        yield Section(f"[{number}] {metric.title}{of}", list(metric_lines(metric)))
    for macro in summary.macro:
        if parts := list(task_table(summary, macro)):
            parts += [_NO_INTERVALS] if summary.tasks else []
            title = "TASKS" if summary.tasks else "JUDGE AGAINST RULE"
            yield Section(f"{title} - {macro.candidate}", parts)
    if summary.n_disagreements is not None:
        yield Section("", [disagreements_line(summary)])
    yield from epoch_sections(summary)
    yield from generation_sections(summary)
    yield from arm_sections(summary.arms)
    yield from turn_sections(summary.turns)
    yield from served_sections(summary.served_models)
    yield from twin_sections(summary.twins)
    yield from curve_sections(summary.heat_maps)
    yield from heat_sections(summary.heat_maps)
    yield from decision_sections(summary)
    for candidate in summary.candidates:
        if rows := [row for row in summary.performance if row.candidate == candidate.candidate]:
            lines = list(performance_lines(rows, summary))
            yield Section(f"SPEED AND QUALITY - {candidate.candidate}", lines)
    yield from sweep_sections(summary.sweeps)
    yield from failed_calls
    if (advice := summary.recommendation) is not None:
        yield Section("RECOMMENDATIONS", list(recommendation_lines(summary, advice)))


def _lines(summary: Summary, failed_calls: Sequence[Section]) -> Iterator[str]:
    yield from (_DOUBLE, "BENCHMARK EVALUATION SUMMARY", _DOUBLE)
    yield from _header_lines(summary)
    yield _DOUBLE
    for number, section in enumerate(report_sections(summary, failed_calls)):
        if section.title:
            above = _SINGLE if number or not summary.metrics else ""
            yield from (above, section.title, _SINGLE)
        yield from (*section.lines(), "")
    yield _DOUBLE
    if summary.generation_s is not None:
        yield f"Generation took {summary.generation_s:.2f}s"
    yield f"Total pipeline time: {summary.total_s:.2f}s"
    yield from (f"Judges: {temperatures}" for temperatures in describe_temperatures(summary))
    yield from (f"Note: {note}" for note in summary.notes)


def _header_lines(summary: Summary) -> Iterator[str]:
    yield f"Run: {summary.run_id}"
    yield f"Suite: {summary.suite}"
    yield f"Generation Model: {name_models(summary)}"
    by_judge: dict[str, dict[str, None]] = {}
    for metric in summary.metrics:
        for judge in metric.judges:
            by_judge.setdefault(judge, {})[metric.metric] = None
    judges = (f"{judge} ({', '.join(names)})" for judge, names in by_judge.items())
    yield f"Judge Model: {'; '.join(judges) or 'none'}"
    skipped = f" ({summary.n_invalid} invalid ones skipped)" if summary.n_invalid else ""
    yield f"Total Samples: {summary.n_samples}{skipped}"
    if summary.n_failed_units:
        yield f"Failed Units: {summary.n_failed_units} of {summary.n_units}"
        yield from _cause_lines(summary.causes)
    if summary.replaced:
        n_replaced = sum(cause.n_units for cause in summary.replaced)
        yield f"Verdicts Replaced: {n_replaced}, as judges failed"
        yield from _cause_lines(summary.replaced)
    if summary.evaluation_s is not None:
        yield f"Evaluation Time: {summary.evaluation_s:.2f}s"
        yield f"Avg Eval Time/Sample: {summary.evaluation_s / max(1, summary.n_units):.2f}s"
    if (cache := summary.prompt_cache) is not None:
        written = f", {cache.cache_write_tokens:,} written" if cache.cache_write_tokens else ""
        yield (
            f"Prompt Cache of Judges: {cache.cached_share:.1%} of {cache.input_tokens:,} input "
            f"tokens were read from it{written}; it saved ${cache.saved_usd:,.4g}"
        )
    yield from no_answer_lines(summary)


def _cause_lines(causes: Sequence[Cause]) -> Iterator[str]:
    """Lists causes of failures, the most frequent first, with an example."""
    for cause in causes[:CAUSES_SHOWN]:
        yield f"  {cause.n_units:,} x {cause.cause}"
        example = f": {cause.example}" if cause.example != cause.cause else ""
        yield f"    such as answer {cause.unit_id}{example}"
    if (rest := len(causes) - CAUSES_SHOWN) > 0:
        yield f"  and {rest} other causes; summary.json lists them"


def name_models(summary: Summary) -> str:
    """The candidates, each with its model unless that is its name."""
    named = [
        (of.candidate, f" ({of.model})" * (of.candidate != of.model)) for of in summary.candidates
    ]
    return ", ".join(name + model for name, model in named)


def describe_temperatures(summary: Summary) -> list[str]:
    """The temperature of the judges of the figures: once if it is the same for all."""
    juries = {jury for metric in summary.metrics for jury in metric.judges}
    judges = {name for jury in juries for name in split_jurors(jury)}
    of_judge = {name: at for name, at in summary.temperatures.items() if name in judges}
    if len(set(of_judge.values())) == 1:
        return [f"judged at {next(iter(of_judge.values()))}"]
    return [", ".join(f"{name} at {at}" for name, at in of_judge.items())] if of_judge else []


def metric_lines(metric: MetricSummary) -> Iterator[str]:
    """A metric's blocks of figures, its distribution on a scale of whole numbers, its coverage."""
    marked = metric_mark(metric)
    for index, block in enumerate(metric.layout):
        yield from [""] * (index > 0) + [block.heading] * bool(block.heading)
        width = max((len(line.label) for line in block.lines), default=0) + 1
        for line in block.lines:
            shown = _format_line(line, metric)
            is_figure = shown != NOTHING and not shown.startswith("no ")
            if marked and is_figure and line.field != "n_scored":  # a count is never an estimate
                shown = f"{shown}  {marked}"
            note = f"  ({line.note})" if line.note else ""
            yield f"  {line.label + ':':<{width}} {shown}{note}"
    if metric.distribution and not any("-" in score for score in metric.distribution):
        yield ""
        yield f"  Score Distribution{f' ({marked})' * bool(marked)}:"
        for score, count in metric.distribution.items():
            yield f"    Score {score}: {_bar(count, metric.n_scored)}"
    yield ""
    yield f"  Coverage: {_describe_coverage(metric)}"
    if metric.worth:
        text = f"{'Estimate' if metric.n_estimated else 'Rules'}: {metric.worth}"
        yield from wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def _format_line(line: SummaryLine, metric: MetricSummary) -> str:
    """Formats a line's figure in the line's form; `-` if there is none, and "no claims" of a ratio
    over no claims. A line's field is the summary's, or GROUP.NAME of a mapping."""
    group, dot, name = line.field.partition(".")
    value = getattr(metric, group).get(name) if dot else getattr(metric, group)
    if not isinstance(value, int | float):
        is_over_nothing = group in ("micro", "macro") and metric.figure.value is None
        return f"no {metric.figure.whole}" if is_over_nothing and metric.figure.whole else NOTHING
    if line.form in _SCALED:
        return _SCALED[line.form](value, metric)
    return f"{value:{_FORMS.get(line.form, 'z.4f')}}"


def _bar(count: float, total: int) -> str:
    share = count / total if total else 0.0
    return f"{count:3.0f} ({share:6.1%}) {BAR * int(share / _BAR_SHARE + 1e-9)}".rstrip()


_FORMS = {"count": "z.0f", "average": "z.2f", "percent": ".1%"}
_SCALED: dict[str, Callable[[float, MetricSummary], str]] = {
    "of_scale": lambda value, metric: f"{value:z.2f}/{metric.scale[1]:z.2f}",
    "step": lambda value, metric: f"{value:g}/{metric.scale[1]:g}",
    "bar": lambda value, metric: _bar(value, metric.n_scored),
}


def _describe_coverage(metric: MetricSummary) -> str:
    applicable = metric.n - metric.n_not_applicable
    replaced = (f", {count} {FALLBACKS[way]}" for way, count in fallbacks_of(metric).items())
    parts = [f"{metric.n_scored} of {applicable} scored{''.join(replaced)}"]
    parts += (f"{count} {outcome}" for count, outcome in outcome_counts(metric))
    if unverified := metric.extras.get(UNVERIFIED):
        pieces, trust = metric.extras.get(EVIDENCE) or unverified, metric.extras.get(TRUST) or 0.0
        parts.append(
            f"{unverified:.0f} of {pieces:.0f} pieces of evidence unverified (not found), trust "
            f"{trust:.0%}"
        )
        if metric.n_abstained:
            parts.append("trust is of scored answers alone")
    counted = (f"{judge} {count}" for judge, count in metric.judges.items())
    judges = ", ".join(counted if len(metric.judges) > 1 else metric.judges)
    return "; ".join(parts) + (f"; judged by {judges}" if judges else "")


_TASK_WIDTH, _NAME_WIDTH, _SPEED_WIDTH = 14, 20, 4  # the seed's; a longer name widens its column


def performance_lines(rows: Sequence[Performance], summary: Summary) -> Iterator[str]:
    """One candidate's block: its figures over all tasks, then a line per task."""
    (whole,) = (row for row in rows if row.task is None)
    within = "" if whole.ttft_s_p95 is None else f"  (95% within {whole.ttft_s_p95:.3f}s)"
    yield (
        f"  Total Duration:      {figure(whole.duration_s_total, '.2f', 's')}  (of all "
        "answers; they overlap in a run)"
    )
    yield f"  Total Tokens:        {whole.output_tokens or NOTHING}"
    yield f"  Avg Speed:           {figure(whole.tokens_per_s, '.1f', ' tokens/sec')}"
    yield f"  Avg Time to First:   {figure(whole.ttft_s_mean, '.3f', 's')}{within}"
    if headline := summary.headline:
        quality = f"{_format_quality(whole)}{_left_out(summary, whole)}"
        yield f"  Avg Quality:         {quality}  (95 % interval; {headline})"
    if tasks := [row for row in rows if row.task is not None]:
        yield from ("", "  Performance by Task:")
        speeds = [figure(row.tokens_per_s, ".1f") for row in tasks]
        name_width = max(_TASK_WIDTH, *(len(row.task or "") for row in tasks))
        speed_width = max(_SPEED_WIDTH, *map(len, speeds))
        for row, speed in zip(tasks, speeds, strict=True):
            duration = figure(row.duration_s_mean, ".2f", "s")
            quality = append_mark(figure(row.quality, ".0f", "/100"), performance_mark(row))
            yield (
                f"    {row.task:<{name_width}}{duration:>7}  |  {speed:>{speed_width}} tok/s  |  "
                f"Q: {quality}"
            )


def recommendation_lines(summary: Summary, advice: Recommendation) -> Iterator[str]:
    """The fastest and the best candidate, the Pareto front, which one to use, and the rule."""
    whole = {row.candidate: row for row in summary.performance if row.task is None}
    fastest = [f"{whole[name].tokens_per_s:.1f} tok/s" for name in advice.fastest]
    rows = (whole[name] for name in advice.best)
    shown = ((f"{row.quality:z.1f}/100{_left_out(summary, row)}", row) for row in rows)
    best = [append_mark(text, performance_mark(row)) for text, row in shown]
    yield from _list_names("Fastest Model:", advice.fastest, *fastest[:1])
    yield from _list_names("Best Quality:", advice.best, *best[:1])
    if advice.as_good:
        yield from _list_names("Not Shown Worse:", advice.as_good)
    yield from ("", "Speed vs Quality Tradeoff:")
    speeds = {row.candidate: figure(row.tokens_per_s, ".1f") for row in whole.values()}
    width = max(_NAME_WIDTH, *map(len, speeds))
    speed_width = max(_SPEED_WIDTH, *map(len, speeds.values()))
    for name, row in whole.items():
        quality = f"{_format_quality(row)}{_left_out(summary, row)}"
        speed = f"{speeds[name]:>{speed_width}} tok/s"
        yield f"   {name:<{width}} Speed: {speed}  |  Quality: {quality}"
    yield from _pair_lines(advice, whole)
    yield ""
    if advice.pareto:
        yield from _list_names("Pareto Front:", advice.pareto)
    if advice.left_out:
        yield from _list_names("Left Out:", advice.left_out, "speed or quality not measured")
    yield "Recommendation:"
    marked = next(filter(None, map(performance_mark, whole.values())), "")
    text = f"Use {advice.use} - {advice.reason}" if advice.use else advice.reason
    yield from wrap_text(f"{text} (quality: {marked})" if marked else text, "   ")
    yield from wrap_text(f"Rule: {advice.rule}", "   ")


def _left_out(summary: Summary, row: Performance) -> str:
    """What is left out of a candidate's quality, in brackets."""
    headline = row.candidate, summary.headline
    of = (metric for metric in summary.metrics if (metric.candidate, metric.metric) == headline)
    return next((f" ({out})" for metric in of if (out := left_out(*count_left_out(metric)))), "")


def _pair_lines(advice: Recommendation, whole: Mapping[str, Performance]) -> Iterator[str]:
    """The differences from the candidate to use, else from the best, on common prompts."""
    base = advice.use or next(iter(advice.best), "")
    of_base = (pair for pair in advice.pairs if base in (pair.a, pair.b))
    pairs = [swap_sides(pair) if pair.b == base else pair for pair in of_base]
    if not pairs:
        return
    yield ""
    yield f"Quality Against {base}, on Common Prompts ({pairs[0].level * 100:.4g} % intervals):"
    width = max(_NAME_WIDTH, *(len(pair.b) for pair in pairs))
    for pair in pairs:
        span = ends(pair.low, pair.high, "+z.1f")
        unit = f"{span and f' {span}'} points on {pair.n}"
        points = figure(pair.difference, "+z.1f", unit)
        more = "" if pair.more is None else f"; ~{round_up(pair.more):,} more would tell"
        marked = performance_mark(whole[pair.b]) if pair.b in whole else ""
        yield append_mark(f"   {pair.b:<{width}} {points}{more}", marked)


def _list_names(label: str, names: Sequence[str], note: str = "") -> list[str]:
    text = f"{', '.join(names) or NOTHING}" + (f" ({note})" if note else "")
    return wrap_text(f"{label:<20} {text}")


def _format_quality(row: Performance) -> str:
    """Formats a quality with its 95 % interval (half its width, or its ends) and its mark."""
    spread = format_interval(row.quality, quality_interval(row), 1)
    quality = figure(row.quality, ".1f", "/100") + (
        spread and (f" {spread}" if spread.startswith("±") else f" ({spread})")
    )
    return append_mark(quality, performance_mark(row))


def performance_mark(row: Performance) -> str:
    """The mark of a row's quality."""
    return "" if row.quality is None else mark(row.n_scored, row.estimates, row.fallbacks)


def recipe_parts(span: RecipeSpan) -> Iterator[Content]:
    """A row a recipe, then what differs between them."""
    names = [*span.spans]
    heads = ("recipe", "metric", "digest", "scored", *names, *(f"false: {kind}" for kind in KINDS))
    rows: list[Row] = [heads]
    for of in span.recipes:
        means = (figure(of.means[name]) for name in names)
        accepted = (f"{percent(of.false_accepts[kind])} of {of.n_planted[kind]}" for kind in KINDS)
        rows.append((of.recipe, of.metric, of.digest, str(of.n_scored), *means, *accepted))
    yield Table(rows, left=(0, 1, 2))
    yield ""
    for name, (low, high) in span.spans.items():
        yield f"{name}: {low:.4f} to {high:.4f}, a span of {high - low:.4f}"
    share = percent(span.n_flipped / span.n_compared if span.n_compared else None)
    yield (
        f"flips: {span.n_flipped} of {span.n_compared} answers ({share}) are right by one recipe "
        "and wrong by another"
    )
    if unscored := span.n_answers - span.n_compared:
        yield f"{unscored} more have no verdict by some recipe, and count in no mean"
    if len(names) > 1:
        swaps = "; ".join(f"{a} and {b}" for a, b in span.swaps)
        yield f"candidates that change places: {swaps or 'none'}"
    yield "false: the share of planted wrong answers that a recipe takes for right"


CAUSE_LINES, NOTE_LINES = 6, 4
_DIFFERS = "*"
_EST = "est."
_METRIC_WIDTH, _JUDGE_WIDTH = 27, 9  # the widest name, the least room for a judge's


def render_brief(summary: Summary, path: str) -> str:
    """Renders the screen for a run in `path`, TABLE_WIDTH wide; control characters are escaped."""
    return escape_controls("\n".join(lines_of(_brief_parts(summary, path))) + "\n")


def opening_parts(summary: Summary) -> Iterator[Content]:
    """What the run is of, the sentence, and the tables of its figures with their legend."""
    models = name_models(summary) or "nobody"
    title = f"{summary.name}: {summary.suite}" if summary.name else summary.suite
    yield from wrap_text(f"{title}: {summary.n_units:,} answers of {models}")
    yield from wrap_text(answer(summary))
    yield ""
    if len(summary.candidates) > 1:
        for number, table in enumerate(_tables_of_candidates(summary)):
            yield from ("", table) if number else (table,)
    elif metrics := _measured_first(summary):
        yield Table(_rows_of_candidate(metrics), left=(0, 4))
    yield from _legend(summary)


def _brief_parts(summary: Summary, path: str) -> Iterator[Content]:
    yield from opening_parts(summary)
    if epochs := list(epoch_table(summary.epochs)):
        yield from ("", *epochs)
    if advice := summary.recommendation:
        yield ""
        which = f"Use {advice.use}" if advice.use else "No recommendation"
        yield from wrap_text(f"{which}: {advice.reason}")
    if lines := [part for line in no_answer_lines(summary) for part in wrap_text(f"{line}.")]:
        yield from ("", *lines)
    if summary.replaced:  # verdicts that judges failed to give, and the most frequent cause
        first, *others = summary.replaced
        n = sum(cause.n_units for cause in summary.replaced)
        cause = f"{first.n_units:,} x {first.cause}" if others else first.cause
        text = f"Judge calls failed on {n:,} answer{'s' * (n != 1)}, which rules scored instead"
        yield from ("", *wrap_text(f"{text}: {cause}"))
    if summary.n_failed_units:
        yield from ("", f"{summary.n_failed_units:,} of {summary.n_units:,} answers failed:")
        such = ", such as answer "
        causes = [f"{of.n_units:,} x {of.cause}{such}{of.unit_id}" for of in summary.causes]
        yield from _whole(causes, "  ", CAUSE_LINES, "other cause")
    if summary.notes:
        yield ""
        yield from _whole([f"Note: {note}" for note in summary.notes], "", NOTE_LINES, "more note")
    yield ""
    cost, unpriced = "", summary.unpriced_calls
    if summary.cost_usd is not None or unpriced:
        calls = "judge call" if unpriced == 1 and not summary.cost_usd else "judge calls"
        if any(sessions.user_models for sessions in summary.sessions):
            calls = "calls of judges and simulated users"
        paid = cost_text(summary.cost_usd, unpriced)
        if (n := summary.killed_sessions) and not unpriced:
            paid = f"about {paid}"
        cost = f", and {calls} for {paid}"
        if unpriced and not summary.cost_usd:
            cost = f"; cost unknown: no price for {unpriced:,} {calls}"
        if n:
            which = "a killed session" if n == 1 else f"{n} killed sessions"
            cost += f" (what {which} paid last is not known)"
    yield f"{summary.total_s:.1f} s in all{cost}. The run is in {path}"
    yield from _next_steps(summary, path)


def _measured_first(summary: Summary) -> list[MetricSummary]:
    """The metric that leads, then in the run's order, estimates after verdicts, unscored last."""

    def rank(metric: MetricSummary) -> tuple[bool, ...]:
        is_other = metric.metric != summary.leads
        return is_other, metric.figure.value is None, is_mostly_estimated(metric)

    return sorted((metric for metric in summary.metrics if not metric.reason), key=rank)


def _rows_of_candidate(metrics: Sequence[MetricSummary]) -> list[Row]:
    rows: list[Row] = [("metric", "figure", "95 % interval", "n")]
    for metric in metrics:
        applicable = metric.n - metric.n_not_applicable
        count = f"{metric.n_scored:,}"
        if metric.n_scored != applicable:
            count += f"/{applicable:,}"
        name, shown = name_figure(metric), format_figure(metric.figure, metric.scale)
        between = ", ".join(metric_ends(metric) or (NOTHING,))
        rows.append((_shorten(name, _METRIC_WIDTH), shown, between, count))
    taken = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))
    room = max(_JUDGE_WIDTH, TABLE_WIDTH - taken)
    judges = ("judged by", *(_format_judges(metric, room) for metric in metrics))
    return append_column(rows, judges)


def _tables_of_candidates(summary: Summary) -> Iterator[Table]:
    """A row a metric, a column a candidate; rows of estimates alone are marked at their name."""
    metrics = {(metric.metric, metric.candidate): metric for metric in summary.metrics}
    names = {metric.metric: name_figure(metric) for metric in _measured_first(summary)}
    judged = {metric.metric for metric in summary.metrics if not metric.n_estimated}
    worse = {(pair.metric, pair.b) for pair in compared_differences(summary) if pair.is_shown}
    labels = ["metric"]
    for metric, name in names.items():
        labels.append(_shorten(name, _METRIC_WIDTH) + (f" {_EST}" if metric not in judged else ""))
    columns = []
    for candidate in (generation.candidate for generation in summary.candidates):
        cells = (_format_cell(metrics.get((name, candidate)), worse, judged) for name in names)
        columns.append((_shorten(candidate, _METRIC_WIDTH), *cells))
    return fit_tables(labels, columns)


def _format_cell(
    metric: MetricSummary | None, worse: set[tuple[str, str]], judged: set[str]
) -> str:
    """A candidate's figure with its interval, and of how many if answers are left out; _EST if any
    of its scores is an estimate, in a row with others that are `judged`; _DIFFERS if it is shown to
    be below the best."""
    if metric is None:
        return NOTHING
    text, ends = format_figure(metric.figure, metric.scale), metric_ends(metric)
    if ends:
        text = f"{text} [{', '.join(ends)}]"
    if metric.n_scored < (n_asked := count_left_out(metric)[0]):
        text = f"{text} n {metric.n_scored:,}/{n_asked:,}"
    if metric.n_estimated and metric.metric in judged:
        text = f"{text} {_EST}"
    return text + (_DIFFERS if (metric.metric, metric.candidate) in worse else " ")


def _format_judges(metric: MetricSummary, width: int = TABLE_WIDTH) -> str:
    """The judge of most units, _EST for any offline estimate, and how many a rule scored."""
    fallbacks = [f"{count:,} {FALLBACKS[way]}" for way, count in fallbacks_of(metric).items()]
    unnamed = {*FALLBACKS} if {*metric.judges} <= WITHOUT_CALL else {*FALLBACKS, *WITHOUT_CALL}
    judges = [name for name in metric.judges if name not in unnamed]
    judges.sort(key=lambda name: -metric.judges[name])
    if not judges:
        why = "no usable verdict" if metric.n_abstained else "not scored"
        why = "not applicable" if metric.n and metric.n == metric.n_not_applicable else why
        return ", ".join(fallbacks) or why
    others = f" +{len(judges) - 1}" if len(judges) > 1 else ""
    others += f" {_EST}" if metric.n_estimated else ""
    others += "".join(f", {count}" for count in fallbacks)
    name = judges[0].partition("+")[0] if is_estimate(judges[0]) else judges[0]
    return f"{_shorten(name, max(width - len(others), _JUDGE_WIDTH))}{others}"


def _legend(summary: Summary) -> list[str]:
    notes = []
    if ratios := {metric.figure.whole for metric in summary.metrics if metric.figure.whole}:
        notes.append(f"micro: one ratio over all {' or '.join(sorted(ratios))} of the run")
    if any(metric.average == "mean" for metric in summary.metrics):
        notes.append(f"{'other figures' if ratios else 'figure'}: the mean of the answers")
    if any(metric.n_estimated for metric in summary.metrics):
        notes.append(f"{_EST}: {estimates_in_words(summary)}")
    if len(summary.candidates) > 1:
        notes.append(_who_judged(_measured_first(summary)))
    notes += describe_temperatures(summary)
    if differences := compared_differences(summary):
        notes.append(
            f"{_DIFFERS} below the best of its row beyond chance (paired, 95 % over all rows)"
            if any(pair.is_shown for pair in differences)
            else "no candidate differs from the best of its row beyond chance (95 % over all rows)"
        )
    text = "; ".join(notes)
    return wrap_text(f"{text[0].upper()}{text[1:]}.") if text else []


def _who_judged(metrics: Sequence[MetricSummary]) -> str:
    by_judge: dict[str, dict[str, None]] = {}
    for metric in metrics:
        by_judge.setdefault(_format_judges(metric), {})[metric.metric] = None
    named = [f"{judge} ({', '.join(names)})" for judge, names in by_judge.items()]
    n = count_span([metric.n_scored for metric in metrics], ",")
    return f"judged by {', '.join(by_judge if len(by_judge) == 1 else named)}; n = {n} each"


def _whole(texts: Sequence[str], indent: str, most: int, what: str) -> Iterator[str]:
    """The first texts that fit into so many lines, at least one, and how many more there are."""
    n_lines = 0
    for at, text in enumerate(texts):
        lines = wrap_text(text, indent)
        if at and n_lines + len(lines) > most:
            n = len(texts) - at
            yield f"  and {n} {what}{'s' * (n > 1)} with --full"
            return
        n_lines += len(lines)
        yield from lines


def _next_steps(summary: Summary, path: str) -> Iterator[str]:
    steps = [
        ("memray-eval view", "see every answer with its scores"),
        ("memray-eval report --full", "print all figures"),
    ]
    if any(may_pass_again(cause.cause) for cause in summary.causes):
        steps.insert(0, ("memray-eval resume", "try the failed answers again"))
    (first, why), (second, and_why) = steps[:2]
    yield f"To {why}, and to {and_why}:"
    yield from (f"  {command} {path}" for command in (first, second))


def _shorten(text: str, width: int) -> str:
    """Cuts a text at a width; line breaks become spaces, and an indent stays."""
    flat = " " * (len(text) - len(text.lstrip(" "))) + " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
