"""A section a candidate with twins: a table a metric, and what is revealed where it must not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from memray_eval.analysis.marks import append_mark, mark
from memray_eval.report.sections import Content, Row, Section, Table, ends, figure
from memray_eval.types import TwinDifference

_HEAD = ("pair", "n", "first", "second", "second - first")


def twin_sections(twins: Sequence[TwinDifference]) -> Iterator[Section]:
    """Differences between twins, with 95 % intervals, paired."""
    for candidate, group in groupby(twins, lambda twin: twin.candidate):
        yield Section(f"TWINS - {candidate}", list(_parts([*group])))


def _parts(twins: Sequence[TwinDifference]) -> Iterator[Content]:
    yield "The same case with one thing changed: paired differences with 95 % intervals."
    for metric, group in groupby(twins, lambda twin: twin.metric):
        of_metric = list(group)
        marked = mark(2 * sum(twin.n for twin in of_metric), sum(t.estimates for t in of_metric), 0)
        yield from ("", append_mark(metric, marked), Table([_HEAD, *map(_row, of_metric)]))
    for twin in twins:
        if twin.reveals and twin.mean_a is not None and twin.mean_b is not None:
            yield (
                f"{twin.task}, by {twin.metric}: reveals where it must not {1 - twin.mean_a:.3f}, "
                f"where it may {twin.mean_b:.3f}"
            )


def _row(twin: TwinDifference) -> Row:
    difference = twin.why and f"- ({twin.why})"
    return (
        f"{twin.attribute or twin.task}: {', '.join(twin.sides)}",
        f"{twin.n:,}",
        figure(twin.mean_a, "z.3f"),
        figure(twin.mean_b, "z.3f"),
        difference
        or f"{figure(twin.difference, '+z.3f')} {ends(twin.low, twin.high, '+z.3f')}".rstrip(),
    )
