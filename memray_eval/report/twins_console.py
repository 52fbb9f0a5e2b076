"""A section a candidate with twins: a table a metric, and what is revealed where it must not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from memray_eval.analysis.marks import append_mark, mark
from memray_eval.report.sections import Content, Row, Section, Table, bounded, figure
from memray_eval.types import TwinDifference

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
