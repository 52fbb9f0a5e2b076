"""Renders what a run found on one screen: one table of metrics and candidates, why units failed,
notes, where the run is, and what to do next. `report/console.py` renders all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import wrap

from memray_eval.analysis.intervals import Intervals
from memray_eval.analysis.marks import NOTHING, digits_of, fallbacks_of, format_figure, name_figure
from memray_eval.judges.prices import cost_text
from memray_eval.report.adjusted_lines import adjusted_lines
from memray_eval.report.answer import answer
from memray_eval.report.answered import no_answer_lines
from memray_eval.report.tables import TABLE_WIDTH, align_columns
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import FALLBACKS, JURORS, WITHOUT_CALL, MetricSummary, Summary, is_estimate

CAUSES_SHOWN, NOTE_LINES = 3, 4
_PLAIN = Intervals()
_DIFFERS = "*"
_EST = "est."
_NAME_WIDTH, _JUDGE_WIDTH = 27, 9  # the widest name, the least room for a judge's


def render_brief(summary: Summary, path: str) -> str:
    """Renders the screen for a run whose folder is `path`: at most TABLE_WIDTH columns wide, but
    for names and paths that are longer. Control characters are escaped."""
    return escape_controls("\n".join(_lines(summary, path)) + "\n")


def _lines(summary: Summary, path: str) -> Iterator[str]:
    names = [one.candidate for one in summary.candidates]
    models = ", ".join(
        one.candidate if one.candidate == one.model else f"{one.candidate} ({one.model})"
        for one in summary.candidates
    )
    stopped = f", stopped when decided ({summary.decided.rule})" if summary.decided else ""
    yield from _wrap(
        f"{summary.suite}: {summary.n_units:,} answers of {models or 'nobody'}{stopped}"
    )
    yield from _wrap(answer(summary))
    yield ""
    if len(names) > 1:
        yield from _tables_of_several(summary, names)
    elif summary.metrics:
        yield from align_columns(_table_of_one(summary.metrics), left=(0, 4))
    yield from _legend(summary)
    if adjusted := [part for line in adjusted_lines(summary) for part in _wrap(line)]:
        yield from ("", "Adjusted to people's labels:", *adjusted)
    if advice := summary.recommendation:
        yield ""
        which = f"Use {advice.use}" if advice.use else "No recommendation"
        yield from _wrap(f"{which}: {advice.reason}")
    if lines := [part for line in no_answer_lines(summary) for part in _wrap(f"{line}.")]:
        yield from ("", *lines)
    yield from _replaced_verdicts(summary)
    yield from _failures(summary)
    notes = [line for note in summary.notes for line in _wrap(f"Note: {note}")]
    if notes:
        yield ""
        yield from notes[:NOTE_LINES]
        if len(notes) > NOTE_LINES:
            yield f"  ... {len(notes) - NOTE_LINES} more lines of notes with --full"
    yield ""
    cost, unpriced = "", summary.unpriced_calls
    if summary.cost_usd is not None or unpriced:
        cost = f", and judge calls for {cost_text(summary.cost_usd, unpriced)}"
    yield f"{summary.total_s:.1f} s in all{cost}. The run is in {path}"
    yield from _next_steps(summary, path)


def _table_of_one(metrics: Sequence[MetricSummary]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("metric", "figure", "95 % interval", "n")]
    for one in metrics:
        applicable = one.n - one.n_not_applicable
        count = f"{one.n_scored:,}"
        if one.n_scored != applicable:
            count += f"/{applicable:,}"
        rows.append(
            (
                _shorten(name_figure(one), _NAME_WIDTH),
                format_figure(one.figure, one.scale),
                _format_interval(one),
                count,
            )
        )
    taken = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))
    room = max(_JUDGE_WIDTH, TABLE_WIDTH - taken)
    judges = ("judged by", *(_format_judges(one, room) for one in metrics))
    return [(*row, judge) for row, judge in zip(rows, judges, strict=True)]


def _tables_of_several(summary: Summary, names: Sequence[str]) -> Iterator[str]:
    """A row a metric and a column a candidate, in as many tables as the width needs. Where all
    figures of a row are estimates its name says so, else each of them."""
    found = {(one.metric, one.candidate): one for one in summary.metrics}
    metrics = {one.metric: name_figure(one) for one in summary.metrics}
    judged = {one.metric for one in summary.metrics if not one.n_estimated}
    worse = {(pair.metric, pair.b) for pair in summary.differences if pair.is_shown}
    labels = (
        "metric",
        *(
            _shorten(name, _NAME_WIDTH) + (f" {_EST}" if metric not in judged else "")
            for metric, name in metrics.items()
        ),
    )
    columns = [
        (
            _shorten(candidate, _NAME_WIDTH),
            *(_format_cell(found.get((name, candidate)), worse, judged) for name in metrics),
        )
        for candidate in names
    ]
    while columns:
        taken, room = 1, TABLE_WIDTH - max(map(len, labels)) - 2 - max(map(len, columns[0]))
        while taken < len(columns) and (room := room - max(map(len, columns[taken])) - 2) >= 0:
            taken += 1
        shown, columns = columns[:taken], columns[taken:]
        yield from align_columns(list(zip(labels, *shown, strict=True)))
        if columns:
            yield ""


def _format_cell(one: MetricSummary | None, worse: set[tuple[str, str]], judged: set[str]) -> str:
    """A candidate's figure with its interval; _EST where any of its scores is an estimate, in a row
    with others that are `judged`; _DIFFERS where it is shown to be below the best."""
    if one is None:
        return NOTHING
    figure, between = format_figure(one.figure, one.scale), _format_interval(one)
    mark = _DIFFERS if (one.metric, one.candidate) in worse else ""
    text = f"{figure} [{between}]" if between != NOTHING else figure
    if one.n_estimated and one.metric in judged:
        text = f"{text} {_EST}"
    return text + (mark or " ")


def _format_interval(one: MetricSummary) -> str:
    found = _PLAIN.of_metric(one)
    digits = digits_of(one.scale)
    return NOTHING if found is None else f"{found.low:z.{digits}f}, {found.high:z.{digits}f}"


def _format_judges(one: MetricSummary, width: int = TABLE_WIDTH) -> str:
    """Who scored most units, _EST where any of them is an offline estimate, and how many a rule
    scored in place of a judge that failed."""
    stood_in = [f"{count:,} {FALLBACKS[way]}" for way, count in fallbacks_of(one).items()]
    judges = sorted(
        (
            name
            for name in one.judges
            if name not in FALLBACKS and (name not in WITHOUT_CALL or {*one.judges} <= WITHOUT_CALL)
        ),
        key=lambda name: -one.judges[name],
    )
    if not judges and not stood_in:
        return "not applicable" if one.n == one.n_not_applicable and one.n else "nobody"
    if not judges:
        return ", ".join(stood_in)
    others = f" +{len(judges) - 1}" if len(judges) > 1 else ""
    others += f" {_EST}" if one.n_estimated else ""
    others += "".join(f", {told}" for told in stood_in)
    name = judges[0].partition("+")[0] if is_estimate(judges[0]) else judges[0]
    return f"{_shorten(name, max(width - len(others), _JUDGE_WIDTH))}{others}"


def _legend(summary: Summary) -> Iterator[str]:
    told = []
    has_mean = any(one.average == "mean" for one in summary.metrics)
    if ratios := {one.figure.whole for one in summary.metrics if one.figure.whole}:
        told.append(f"micro: one ratio over all {' or '.join(sorted(ratios))} of the run")
    if has_mean:
        told.append(f"{'other figures' if ratios else 'figure'}: the mean of the answers")
    if any(one.n_estimated for one in summary.metrics):
        told.append(f"{_EST}: an estimate by rules, not a judge's verdict")
    if len(summary.candidates) > 1:
        told.append(_who_judged(summary.metrics))
    told += describe_temperatures(summary)
    if summary.differences:
        told.append(
            f"{_DIFFERS} below the best of its row beyond chance (paired, 95 % over all rows)"
            if any(pair.is_shown for pair in summary.differences)
            else "no candidate differs from the best of its row beyond chance (95 % over all rows)"
        )
    if told:
        text = "; ".join(told)
        yield from _wrap(f"{text[0].upper()}{text[1:]}.")


def _who_judged(metrics: Sequence[MetricSummary]) -> str:
    by_judge: dict[str, list[str]] = {}
    for one in metrics:
        mine = by_judge.setdefault(_format_judges(one), [])
        if one.metric not in mine:
            mine.append(one.metric)
    parts = [
        judge if len(by_judge) == 1 else f"{judge} ({', '.join(names)})"
        for judge, names in by_judge.items()
    ]
    counts = sorted({one.n_scored for one in metrics})
    n = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"judged by {', '.join(parts)}; n {n} a figure"


def describe_temperatures(summary: Summary) -> list[str]:
    """At which temperature the judges of the figures were asked: once where it is the same."""
    judges = {name for one in summary.metrics for jury in one.judges for name in jury.split(JURORS)}
    told = {name: at for name, at in summary.temperatures.items() if name in judges}
    if not told:
        return []
    names = ", ".join(f"{name} at {at}" for name, at in told.items())
    is_same = len(set(told.values())) == 1
    return [f"judged at {next(iter(told.values()))}" if is_same else names]


def _replaced_verdicts(summary: Summary) -> Iterator[str]:
    """How many verdicts judges failed to give, and the most frequent cause."""
    if not summary.replaced:
        return
    first, *others = summary.replaced
    n, most = sum(one.n_units for one in summary.replaced), f"{first.n_units:,} x " * bool(others)
    yield ""
    yield from _wrap(
        f"Judge calls failed on {n:,} answer{'s' * (n != 1)}, which rules scored instead: {most}"
        f"{first.cause}"
    )


def _failures(summary: Summary) -> Iterator[str]:
    if not summary.n_failed_units:
        return
    yield ""
    yield f"{summary.n_failed_units:,} of {summary.n_units:,} units failed:"
    for cause in summary.causes[:CAUSES_SHOWN]:
        said = f": {cause.example}" if cause.example != cause.cause else ""
        yield _shorten(f"  {cause.n_units:,} x {cause.cause}", TABLE_WIDTH)
        yield _shorten(f"    such as {cause.unit_id}{said}", TABLE_WIDTH)
    if (rest := len(summary.causes) - CAUSES_SHOWN) > 0:
        yield f"  and {rest} other causes; --full lists them"


def _next_steps(summary: Summary, path: str) -> Iterator[str]:
    steps = [
        ("memray-eval resume", "try the failed units again", summary.n_failed_units > 0),
        ("memray-eval view", "see every answer with its scores", True),
        ("memray-eval report --full", "print all figures", True),
    ]
    first, second = islice(((words, why) for words, why, holds in steps if holds), 2)
    yield f"To {first[1]}, and to {second[1]}:"
    yield from (f"  {words} {path}" for words, _ in (first, second))


def _wrap(text: str) -> list[str]:
    return wrap(text, TABLE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _shorten(text: str, width: int) -> str:
    """Cuts a text at a width; line breaks become spaces, and an indent stays."""
    flat = " " * (len(text) - len(text.lstrip(" "))) + " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
