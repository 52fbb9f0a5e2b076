"""Sections of lines and tables, which the console prints and the page sets; how figures look."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple, TypeAlias

from memray_eval.analysis.marks import NOTHING, append_mark, digits_of, mark
from memray_eval.analysis.scores import Intervals
from memray_eval.analysis.statistics import Interval
from memray_eval.types import MetricSummary, SessionFigure, Summary, TurnSummary, TwinDifference

TABLE_WIDTH = 80
SHADES = " ░▒▓█"
Row = Sequence[str]
_SUMMARY_INTERVALS = Intervals()


class Cell(str):
    """A text in a table with its `share` of a scale (0 to 100), which shades it, and a hint."""

    share: int | None
    hint: str

    def __new__(cls, text: str, share: int | None = None, hint: str = "") -> Cell:
        cell = super().__new__(cls, text)
        cell.share, cell.hint = share, hint
        return cell


class Table(NamedTuple):
    """Rows of texts, the head first. Columns of `left` are aligned to the left."""

    rows: Sequence[Row]
    left: Collection[int] = (0,)
    gap: str = "  "
    title: str = ""

    def lines(self) -> Iterator[str]:
        """Its lines as text: a shaded cell begins with a block as dark as its share is high."""
        rows = [[*map(_shade, row)] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        signs = ["<" if number in self.left else ">" for number in range(len(widths))]
        for row in rows:
            cells = zip(row, signs, widths, strict=True)
            yield self.gap.join(f"{text:{sign}{width}}" for text, sign, width in cells).rstrip()


def _shade(text: str) -> str:
    share = getattr(text, "share", None)
    if share is None:
        return text
    return f"{SHADES[min(share * len(SHADES) // 100, len(SHADES) - 1)]}{text:>4}"


Content: TypeAlias = str | Table  # a line, or a table


class Section(NamedTuple):
    """A part of a report; one without a title is a remark on the section before it."""

    title: str
    parts: Sequence[Content]

    def lines(self) -> Iterator[str]:
        return lines_of(self.parts)

    def blocks(self) -> Iterator[Content]:
        """The parts as a page shows them: lines that follow each other are one text."""
        for is_text, parts in groupby(self.parts, lambda part: isinstance(part, str)):
            if not is_text:
                yield from parts
            elif text := "\n".join(map(str, parts)).strip("\n"):
                yield text


def lines_of(parts: Iterable[Content]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            yield from part.lines()


def fit_tables(first: Row, columns: Sequence[Row]) -> Iterator[Table]:
    """Splits columns into tables of TABLE_WIDTH, each with `first` and at least one more."""
    room = TABLE_WIDTH - max(map(len, first))
    shown: list[Row] = []
    left = room
    for column in columns:
        width = max(map(len, column)) + 2
        if shown and width > left:
            yield Table(list(zip(first, *shown, strict=True)))
            shown, left = [], room
        shown.append(column)
        left -= width
    if shown:
        yield Table(list(zip(first, *shown, strict=True)))


def append_column(rows: Sequence[Row], column: Row) -> list[Row]:
    """Rows with another column, unless all of it is empty."""
    if not any(column):
        return list(rows)
    return [(*row, cell) for row, cell in zip(rows, column, strict=True)]


def wrap_text(text: str, indent: str = "") -> list[str]:
    """Wraps a text at TABLE_WIDTH; further lines are indented by two more."""
    more = f"{indent}  "
    return wrap(
        text, TABLE_WIDTH, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False
    )


def share_of(value: float, scale: tuple[float, float]) -> float:
    """The place of a value on a scale, 0 to 1."""
    return (value - scale[0]) / ((scale[1] - scale[0]) or 1.0)


def headline_scale(summary: Summary) -> tuple[float, float]:
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    return scales.get(summary.headline, (0.0, 1.0))


def label(name: str) -> str:
    """A metric's or task's name in words."""
    return name.replace("_", " ")


def hundredths(value: float | None) -> str:
    return figure(value and 100 * value, "z.2f")


def figure(value: float | None, form: str = "z.4f", unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:z.1f} %"


def cost_figure(usd: float | None, unpriced_calls: int) -> str:
    """A sum of judge calls' costs in dollars, of which some calls' may be unknown."""
    if not usd:
        return "unknown" if unpriced_calls else NOTHING
    return f"{usd:.4f}{' and more' * bool(unpriced_calls)}"


def ends(low: float | None, high: float | None, form: str = "+z.4f") -> str:
    """An interval in brackets; "" if there is none."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def bounded(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """A figure with its interval in brackets, if it has one."""
    return f"{figure(value, form)} {ends(low, high, form)}".rstrip()


def metric_ends(
    metric: MetricSummary, intervals: Intervals = _SUMMARY_INTERVALS
) -> tuple[str, str] | None:
    """The ends of the interval of a metric's figure, with the figure's digits."""
    interval, digits = intervals.of_metric(metric), digits_of(metric.scale)
    return interval and (f"{interval.low:z.{digits}f}", f"{interval.high:z.{digits}f}")


def format_interval(mean: float | None, interval: Interval | None, digits: int) -> str:
    """Formats an interval as half its width, or as its ends if it is not symmetric."""
    if mean is None or interval is None:
        return ""
    low, high = interval
    below, above = f"{mean - low:z.{digits}f}", f"{high - mean:z.{digits}f}"
    return f"± {above}" if below == above else f"{low:z.{digits}f} to {high:z.{digits}f}"


def count_span(counts: Collection[int], form: str = "") -> str:
    """The counts of several figures, such as "90" or "88 to 90"."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def outcome_counts(metric: MetricSummary) -> list[tuple[int, str]]:
    """The units of a metric that have no score, by the reason."""
    counts = (
        (metric.n_failed, "failed"),
        (metric.n_abstained, "abstained"),
        (metric.n_no_answer, "without an answer"),
        (metric.n_not_applicable, "not applicable"),
    )
    return [(count, reason) for count, reason in counts if count]


_NAMES = ("metric", "sessions", "turns", "not scored", "mean", "", "worst turn", "", "last turn",
          "", "trend a turn", "")  # fmt: skip
_LEGEND = (
    "worst, last turn: the mean over sessions of each one's lowest and last.",
    "trend: the slope within sessions (fixed effects); it needs two scored turns.",
    "[95 % interval]: a session is one cluster in each; none if there is but one.",
)


def turn_sections(summaries: Sequence[TurnSummary]) -> Iterator[Section]:
    """A section for each candidate's sessions."""
    whole = (row for row in summaries if row.task is None)
    for candidate, rows in groupby(whole, lambda row: row.candidate):
        columns: list[Row] = []
        for row in rows:  # each figure has its interval below it
            digits, figures = digits_of(row.scale), (row.mean, row.worst, row.last)
            counts = (f"{n:,}" for n in (row.n_sessions, row.n_turns, row.n_unscored))
            name = append_mark(row.metric, mark(row.n_turns, row.estimates, row.fallbacks))
            cells = [cell for shown in figures for cell in _cells(shown, f"z.{digits}f")]
            columns.append((name, *counts, *cells, *_cells(row.trend, f"+z.{digits + 1}f")))
        yield Section(f"SESSIONS - {candidate}", [*fit_tables(_NAMES, columns), *_LEGEND])


def _cells(shown: SessionFigure | None, form: str) -> tuple[str, str]:
    if shown is None:
        return NOTHING, ""
    return figure(shown.value, form), ends(shown.low, shown.high, form)


def twin_sections(twins: Sequence[TwinDifference]) -> Iterator[Section]:
    """Differences between twins, with 95 % intervals, paired."""
    for candidate, group in groupby(twins, lambda twin: twin.candidate):
        yield Section(f"TWINS - {candidate}", list(_parts([*group])))


def _parts(twins: Sequence[TwinDifference]) -> Iterator[Content]:
    yield "The same case with one thing changed: paired differences with 95 % intervals."
    for metric, group in groupby(twins, lambda twin: twin.metric):
        rows = list(group)
        marked = mark(2 * sum(row.n for row in rows), sum(row.estimates for row in rows), 0)
        table: list[Row] = [("pair", "n", "first", "second", "second - first")]
        for row in rows:
            difference = bounded(row.difference, row.low, row.high, "+z.3f")
            sides = f"{row.attribute or row.task}: {', '.join(row.sides)}"
            means = figure(row.mean_a, "z.3f"), figure(row.mean_b, "z.3f")
            why = f" ({row.why})" if row.why else ""
            table.append((sides, f"{row.n:,}", *means, f"{difference}{why}"))
        yield from ("", append_mark(metric, marked), Table(table))
        for row in rows:
            if row.reveals and row.mean_a is not None:
                must_not = f"reveals where it must not {1 - row.mean_a:.3f}"
                yield f"{row.task}: {must_not}, where it may {figure(row.mean_b, 'z.3f')}"
