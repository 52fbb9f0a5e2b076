"""Temperature sweeps: each metric against temperature, for candidates that differ only in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from memray_eval.analysis.marks import NOTHING, append_mark, mark, name_figure
from memray_eval.report.tables import TABLE_WIDTH, align_columns
from memray_eval.types import Sweep


def sweep_lines(sweeps: Sequence[Sweep]) -> Iterator[tuple[str, list[str]]]:
    """Renders a title and a table for each set of candidates, with a row per metric and a column
    per temperature, split where it gets too wide."""
    for _, group in groupby(sweeps, key=lambda sweep: sweep.candidates):
        of_set = list(group)
        yield (
            f"TEMPERATURE SWEEP - {of_set[0].model}, prompt {of_set[0].prompt}",
            list(_table_lines(of_set)),
        )


def _table_lines(sweeps: Sequence[Sweep]) -> Iterator[str]:
    counts = [n for sweep in sweeps for n in sweep.n]
    span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    yield from wrap(
        f"Candidates: {', '.join(sweeps[0].candidates)}", TABLE_WIDTH, break_on_hyphens=False
    )
    yield f"Figure ± standard error in the metric's own scale; {span} scored a cell"
    names = ["temperature", *map(name_figure, sweeps)]
    columns = [
        [f"{temperature:g}", *(_format_cell(sweep, place) for sweep in sweeps)]
        for place, temperature in enumerate(sweeps[0].temperatures)
    ]
    for shown in _split_by_width(columns, TABLE_WIDTH - max(map(len, names))):
        yield from align_columns(list(zip(names, *shown, strict=True)))


def _split_by_width(columns: Sequence[list[str]], room: int) -> Iterator[list[list[str]]]:
    """Splits the columns into groups that fit the room, each of one column at least."""
    shown: list[list[str]] = []
    left = room
    for column in columns:
        width = max(map(len, column)) + 2
        if shown and width > left:
            yield shown
            shown, left = [], room
        shown.append(column)
        left -= width
    yield shown


def _format_cell(sweep: Sweep, place: int) -> str:
    mean, stderr = sweep.means[place], sweep.stderrs[place]
    if mean is None:
        return NOTHING
    return append_mark(
        f"{mean:.4f} ± {NOTHING if stderr is None else format(stderr, '.4f')}",
        sweep_mark(sweep, place),
    )


def sweep_mark(sweep: Sweep, place: int) -> str:
    """The mark of a sweep's figure; "" for summaries of older versions, which lack the counts."""
    if not sweep.estimates:
        return ""
    return mark(sweep.n[place], sweep.estimates[place], sweep.fallbacks[place])
