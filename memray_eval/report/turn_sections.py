"""The sections on sessions, metrics over their turns, and on twins: a table a metric, and what is
revealed where it must not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from memray_eval.analysis.marks import NOTHING, append_mark, digits_of, mark
from memray_eval.report.sections import (
    Content,
    Row,
    Section,
    Table,
    bounded,
    ends,
    figure,
    fit_tables,
)
from memray_eval.types import SessionFigure, TurnSummary, TwinDifference

_NAMES = ("sessions", "turns", "not scored", "mean", "", "worst turn", "", "last turn", "",
          "trend a turn", "")  # fmt: skip
_LEGEND = (
    "worst, last turn: the mean over sessions of each one's lowest and last.",
    "trend: the slope within sessions (fixed effects); it needs two scored turns.",
    "[95 % interval]: a session is one cluster in each; none if there is but one.",
)


def turn_sections(summaries: Sequence[TurnSummary]) -> Iterator[Section]:
    """A section for each candidate's sessions."""
    whole = (row for row in summaries if row.task is None)
    for candidate, rows in groupby(whole, lambda row: row.candidate):
        tables = fit_tables(("metric", *_NAMES), list(map(_column, rows)))
        yield Section(f"SESSIONS - {candidate}", [*tables, *_LEGEND])


def _column(row: TurnSummary) -> Row:
    """The figures of a metric, each with its interval below it."""
    form = f"z.{digits_of(row.scale)}f"
    figures = [cell for shown in (row.mean, row.worst, row.last) for cell in _cells(shown, form)]
    counts = (f"{n:,}" for n in (row.n_sessions, row.n_turns, row.n_unscored))
    name = append_mark(row.metric, mark(row.n_turns, row.estimates, row.fallbacks))
    slope = _cells(row.trend, f"+z.{digits_of(row.scale) + 1}f")
    return (name, *counts, *figures, *slope)


def _cells(shown: SessionFigure | None, form: str) -> tuple[str, str]:
    if shown is None:
        return NOTHING, ""
    return figure(shown.value, form), ends(shown.low, shown.high, form)


_HEAD = ("pair", "n", "first", "second", "second - first")


def twin_sections(twins: Sequence[TwinDifference]) -> Iterator[Section]:
    """Differences between twins, with 95 % intervals, paired."""
    for candidate, group in groupby(twins, lambda twin: twin.candidate):
        yield Section(f"TWINS - {candidate}", list(_parts([*group])))


def _parts(twins: Sequence[TwinDifference]) -> Iterator[Content]:
    yield "The same case with one thing changed: paired differences with 95 % intervals."
    for metric, group in groupby(twins, lambda twin: twin.metric):
        rows = list(group)
        marked = mark(2 * sum(row.n for row in rows), sum(row.estimates for row in rows), 0)
        yield from ("", append_mark(metric, marked), Table([_HEAD, *map(_row, rows)]))
        for row in rows:
            if row.reveals and row.mean_a is not None:
                must_not = f"reveals where it must not {1 - row.mean_a:.3f}"
                yield f"{row.task}: {must_not}, where it may {figure(row.mean_b, 'z.3f')}"


def _row(twin: TwinDifference) -> Row:
    difference = bounded(twin.difference, twin.low, twin.high, "+z.3f")
    return (
        f"{twin.attribute or twin.task}: {', '.join(twin.sides)}",
        f"{twin.n:,}",
        figure(twin.mean_a, "z.3f"),
        figure(twin.mean_b, "z.3f"),
        f"{difference} ({twin.why})" if twin.why else difference,
    )
