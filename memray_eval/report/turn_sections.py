"""The sections on sessions: metrics over their turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from memray_eval.analysis.marks import NOTHING, append_mark, digits_of, mark
from memray_eval.report.sections import Row, Section, ends, figure, fit_tables
from memray_eval.types import SessionFigure, TurnSummary

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
