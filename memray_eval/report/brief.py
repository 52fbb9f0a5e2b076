"""Renders a run's result on one screen: one table of metrics and candidates, why units failed,
notes, where the run is, and what to do next. `report/console.py` renders all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memray_eval.analysis.marks import (
    NOTHING,
    count_left_out,
    fallbacks_of,
    format_figure,
    name_figure,
)
from memray_eval.errors import may_pass_again
from memray_eval.judges.prices import cost_text
from memray_eval.report.answer import (
    answer,
    compared_differences,
    estimates_in_words,
    is_mostly_estimated,
    no_answer_lines,
)
from memray_eval.report.console import describe_temperatures, name_models
from memray_eval.report.sections import (
    TABLE_WIDTH,
    Content,
    Row,
    Table,
    append_column,
    count_span,
    fit_tables,
    lines_of,
    metric_ends,
    wrap_text,
)
from memray_eval.report.tables import epoch_table
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import FALLBACKS, WITHOUT_CALL, MetricSummary, Summary, is_estimate

CAUSE_LINES, NOTE_LINES = 6, 4
_DIFFERS = "*"
_EST = "est."
_NAME_WIDTH, _JUDGE_WIDTH = 27, 9  # the widest name, the least room for a judge's


def render_brief(summary: Summary, path: str) -> str:
    """Renders the screen for a run in `path`, TABLE_WIDTH wide; control characters are escaped."""
    return escape_controls("\n".join(lines_of(_parts(summary, path))) + "\n")


def opening_parts(summary: Summary) -> Iterator[Content]:
    """What the run is of, the sentence, and the tables of its figures with their legend."""
    models = name_models(summary) or "nobody"
    title = f"{summary.name}: {summary.suite}" if summary.name else summary.suite
    yield from wrap_text(f"{title}: {summary.n_units:,} answers of {models}")
    yield from wrap_text(answer(summary))
    yield ""
    yield from _tables(summary)
    yield from _legend(summary)


def _parts(summary: Summary, path: str) -> Iterator[Content]:
    yield from opening_parts(summary)
    if epochs := list(epoch_table(summary.epochs)):
        yield from ("", *epochs)
    if advice := summary.recommendation:
        yield ""
        which = f"Use {advice.use}" if advice.use else "No recommendation"
        yield from wrap_text(f"{which}: {advice.reason}")
    if lines := [part for line in no_answer_lines(summary) for part in wrap_text(f"{line}.")]:
        yield from ("", *lines)
    yield from _replaced_verdicts(summary)
    yield from _failures(summary)
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
            paid = f"at least {paid}"
        cost = f", and {calls} for {paid}"
        if unpriced and not summary.cost_usd:
            cost = f"; cost unknown: no price for {unpriced:,} {calls}"
        if n:
            which = "a killed session" if n == 1 else f"{n} killed sessions"
            cost += f" (without the last seconds of {which})"
    yield f"{summary.total_s:.1f} s in all{cost}. The run is in {path}"
    yield from _next_steps(summary, path)


def _tables(summary: Summary) -> Iterator[Content]:
    if len(summary.candidates) <= 1:
        if metrics := _measured_first(summary):
            yield Table(_rows_of_candidate(metrics), left=(0, 4))
        return
    for number, table in enumerate(_tables_of_candidates(summary)):
        if number:
            yield ""
        yield table


def _measured_first(summary: Summary) -> list[MetricSummary]:
    """The metric that leads, then in the run's order, estimates after verdicts, unscored last;
    without what needs a judge."""

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
        rows.append((_shorten(name, _NAME_WIDTH), shown, between, count))
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
        labels.append(_shorten(name, _NAME_WIDTH) + (f" {_EST}" if metric not in judged else ""))
    columns = []
    for candidate in (generation.candidate for generation in summary.candidates):
        cells = (_format_cell(metrics.get((name, candidate)), worse, judged) for name in names)
        columns.append((_shorten(candidate, _NAME_WIDTH), *cells))
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
    left_out = {*FALLBACKS} if {*metric.judges} <= WITHOUT_CALL else {*FALLBACKS, *WITHOUT_CALL}
    judges = [name for name in metric.judges if name not in left_out]
    judges.sort(key=lambda name: -metric.judges[name])
    if not judges and not fallbacks:
        is_idle = metric.n and metric.n == metric.n_not_applicable
        if is_idle:
            return "not applicable"
        return "no usable verdict" if metric.n_abstained else "not scored"
    if not judges:
        return ", ".join(fallbacks)
    others = f" +{len(judges) - 1}" if len(judges) > 1 else ""
    others += f" {_EST}" if metric.n_estimated else ""
    others += "".join(f", {count}" for count in fallbacks)
    name = judges[0].partition("+")[0] if is_estimate(judges[0]) else judges[0]
    return f"{_shorten(name, max(width - len(others), _JUDGE_WIDTH))}{others}"


def _legend(summary: Summary) -> list[str]:
    notes = []
    has_mean = any(metric.average == "mean" for metric in summary.metrics)
    if ratios := {metric.figure.whole for metric in summary.metrics if metric.figure.whole}:
        notes.append(f"micro: one ratio over all {' or '.join(sorted(ratios))} of the run")
    if has_mean:
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
    parts = [
        judge if len(by_judge) == 1 else f"{judge} ({', '.join(names)})"
        for judge, names in by_judge.items()
    ]
    n = count_span([metric.n_scored for metric in metrics], ",")
    return f"judged by {', '.join(parts)}; n = {n} each"


def _replaced_verdicts(summary: Summary) -> Iterator[str]:
    """The number of verdicts that judges failed to give, and the most frequent cause."""
    if not summary.replaced:
        return
    first, *others = summary.replaced
    n = sum(cause.n_units for cause in summary.replaced)
    most = f"{first.n_units:,} x " if others else ""
    yield ""
    yield from wrap_text(
        f"Judge calls failed on {n:,} answer{'s' * (n != 1)}, which rules scored instead: {most}"
        f"{first.cause}"
    )


def _failures(summary: Summary) -> Iterator[str]:
    if not summary.n_failed_units:
        return
    yield ""
    yield f"{summary.n_failed_units:,} of {summary.n_units:,} answers failed:"
    causes = [f"{of.n_units:,} x {of.cause}, such as answer {of.unit_id}" for of in summary.causes]
    yield from _whole(causes, "  ", CAUSE_LINES, "other cause")


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
