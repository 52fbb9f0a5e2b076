"""The sections on sessions: metrics over their turns, and over the turns before one question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from memray_eval.analysis.marks import NOTHING, append_mark, digits_of, mark
from memray_eval.report.sections import Row, Section, Table, ends, figure, fit_tables
from memray_eval.types import SessionFigure, TurnSummary

_NAMES = ("sessions", "turns", "not scored", "mean", "", "worst turn", "", "last turn", "",
          "trend a turn", "")  # fmt: skip
_LEGEND = (
    "worst, last turn: the mean over sessions of each one's lowest and last.",
    "trend: the slope within sessions (fixed effects); it needs two scored turns.",
    "[95 % interval]: a session is one cluster in each; none if there is but one.",
)
_LEGEND_BEFORE = (
    "trend: the slope a turn before the question, within conversations (fixed",
    "effects), of which there are n. [95 % interval], clustered by question. Higher",
    "values are better: if risk grows, the trend is below 0.",
)


def turn_sections(summaries: Sequence[TurnSummary]) -> Iterator[Section]:
    """A section for each candidate's sessions, and one for its questions after so many turns."""
    for (candidate, over), group in groupby(summaries, lambda row: (row.candidate, row.over)):
        rows = [row for row in group if over == "turns_before" or row.task is None]
        if over == "turn":
            tables = fit_tables(("metric", *_NAMES), list(map(_column, rows)))
            yield Section(f"SESSIONS - {candidate}", [*tables, *_LEGEND])
        else:
            title = f"TREND OVER TURNS BEFORE - {candidate}"
            yield Section(title, [_trends(rows), *_LEGEND_BEFORE])


def _column(row: TurnSummary) -> Row:
    """The figures of a metric, each with its interval below it."""
    form = f"z.{digits_of(row.scale)}f"
    figures = [cell for shown in (row.mean, row.worst, row.last) for cell in _cells(shown, form)]
    counts = (f"{n:,}" for n in (row.n_sessions, row.n_turns, row.n_unscored))
    return (_name(row), *counts, *figures, *_cells(row.trend, _slope(row)))


def _trends(rows: Sequence[TurnSummary]) -> Table:
    """A row a metric and task."""
    table: list[Row] = [("metric", "task", "n", "mean", "", "trend", "")]
    for row in rows:
        mean = _cells(row.mean, f"z.{digits_of(row.scale)}f")
        n = f"{row.n_sessions:,}"
        table.append((_name(row), row.task or NOTHING, n, *mean, *_cells(row.trend, _slope(row))))
    return Table(table, left=(0, 1))


def _name(row: TurnSummary) -> str:
    return append_mark(row.metric, mark(row.n_turns, row.estimates, row.fallbacks))


def _slope(row: TurnSummary) -> str:
    return f"+z.{digits_of(row.scale) + 1}f"


def _cells(shown: SessionFigure | None, form: str) -> tuple[str, str]:
    if shown is None:
        return NOTHING, ""
    return figure(shown.value, form), ends(shown.low, shown.high, form)
