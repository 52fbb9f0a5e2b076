"""Prints a summary as the sections of seed 000, then those of seeds 001 and 004."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap

from memray_eval.analysis.marks import (
    NOTHING,
    append_mark,
    count_left_out,
    fallbacks_of,
    left_out,
    mark,
    metric_mark,
)
from memray_eval.analysis.recipes import KINDS, RecipeSpan
from memray_eval.analysis.recommendation import quality_interval, round_up, swap_sides
from memray_eval.metric import EVIDENCE, TRUST, UNVERIFIED
from memray_eval.report.answer import no_answer_lines
from memray_eval.report.decisions import decision_sections
from memray_eval.report.pairs_console import percent
from memray_eval.report.sections import (
    Content,
    Row,
    Section,
    Table,
    ends,
    figure,
    format_interval,
    lines_of,
    outcome_counts,
    turn_sections,
    twin_sections,
    wrap_text,
)
from memray_eval.report.tables import (
    arm_sections,
    curve_sections,
    disagreements_line,
    epoch_sections,
    generation_sections,
    heat_sections,
    served_sections,
    sweep_sections,
    task_table,
)
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import (
    FALLBACKS,
    Cause,
    MetricSummary,
    Performance,
    Recommendation,
    Summary,
    SummaryLine,
    split_jurors,
)

WIDTH = 70
_DOUBLE, _SINGLE = "=" * WIDTH, "-" * WIDTH
CAUSES_SHOWN, LISTED = 5, "summary.json lists them"
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
        yield from cause_lines(summary.causes, CAUSES_SHOWN, LISTED)
    if summary.replaced:
        n_replaced = sum(cause.n_units for cause in summary.replaced)
        yield f"Verdicts Replaced: {n_replaced}, as judges failed"
        yield from cause_lines(summary.replaced, CAUSES_SHOWN, LISTED)
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


def cause_lines(causes: Sequence[Cause], shown: int, where: str) -> Iterator[str]:
    """Lists causes of failures, the most frequent first, with an example; `where` others are."""
    for cause in causes[:shown]:
        yield f"  {cause.n_units:,} x {cause.cause}"
        example = f": {cause.example}" if cause.example != cause.cause else ""
        yield f"    such as answer {cause.unit_id}{example}"
    if (rest := len(causes) - shown) > 0:
        yield f"  and {rest} other causes; {where}"


def name_models(summary: Summary) -> str:
    """The candidates, each with its model unless that is its name."""
    return ", ".join(
        shown.candidate if shown.candidate == shown.model else f"{shown.candidate} ({shown.model})"
        for shown in summary.candidates
    )


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
            shown = format_figure(line, metric)
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


def format_figure(line: SummaryLine, metric: MetricSummary) -> str:
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
    judges = ", ".join(metric.judges)
    if len(metric.judges) > 1:
        judges = ", ".join(f"{judge} {count}" for judge, count in metric.judges.items())
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


def render_recipes(span: RecipeSpan) -> str:
    """A row a recipe, then what differs between them."""
    return "\n".join(lines_of(_parts(span))) + "\n"


def _parts(span: RecipeSpan) -> Iterator[Content]:
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
