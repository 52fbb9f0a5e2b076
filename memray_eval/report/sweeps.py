"""Temperature sweeps: each metric against temperature, for candidates that differ only in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from memray_eval.analysis.marks import NOTHING, append_mark, mark, name_figure
from memray_eval.report.sections import (
    TABLE_WIDTH,
    Content,
    Section,
    count_span,
    figure,
    fit_tables,
)
from memray_eval.types import Sweep


def sweep_sections(sweeps: Sequence[Sweep]) -> Iterator[Section]:
    """A section for each set of candidates: a row per metric and a column per temperature."""
    for _, group in groupby(sweeps, key=lambda sweep: sweep.candidates):
        of_set = list(group)
        title = f"TEMPERATURE SWEEP - {of_set[0].model}, prompt {of_set[0].prompt}"
        yield Section(title, list(_parts(of_set)))


def _parts(sweeps: Sequence[Sweep]) -> Iterator[Content]:
    span = count_span([n for sweep in sweeps for n in sweep.n])
    names = f"Candidates: {', '.join(sweeps[0].candidates)}"
    yield from wrap(names, TABLE_WIDTH, break_on_hyphens=False)
    yield f"Figure ± standard error in the metric's own scale; {span} scored a cell"
    columns = [
        [f"{temperature:g}", *(_format_cell(sweep, number) for sweep in sweeps)]
        for number, temperature in enumerate(sweeps[0].temperatures)
    ]
    yield from fit_tables(["temperature", *map(name_figure, sweeps)], columns)


def _format_cell(sweep: Sweep, number: int) -> str:
    mean, stderr = sweep.means[number], sweep.stderrs[number]
    if mean is None:
        return NOTHING
    return append_mark(f"{mean:.4f} ± {figure(stderr, '.4f')}", sweep_mark(sweep, number))


def sweep_mark(sweep: Sweep, number: int) -> str:
    """The mark of a sweep's figure; "" for summaries of older versions, which lack the counts."""
    if not sweep.estimates:
        return ""
    return mark(sweep.n[number], sweep.estimates[number], sweep.fallbacks[number])
