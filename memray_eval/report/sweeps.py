"""Temperature sweeps: each metric against temperature, for candidates that differ only in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from memray_eval.analysis.marks import NOTHING, append_mark, mark, name_figure
from memray_eval.report.sections import (
    TABLE_WIDTH,
    Part,
    Section,
    count_span,
    figure,
    fit_tables,
)
from memray_eval.types import Candidate, MetricSummary, Sweep


def temperature_sweeps(
    candidates: Sequence[Candidate], metrics: Sequence[MetricSummary]
) -> tuple[Sweep, ...]:
    """Makes a sweep for every metric and every set of candidates that differ only in name and
    temperature, if the set has two temperatures or more. Ordered by the set's first candidate, then
    by metric as given."""
    sets: defaultdict[Candidate, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.sampling.temperature is None:  # the server's own, whatever that is
            continue
        sampling = candidate.sampling.model_copy(update={"temperature": 0.0})
        sets[candidate.model_copy(update={"name": "-", "sampling": sampling})].append(candidate)
    by_key = {(metric.metric, metric.candidate): metric for metric in metrics}
    names = dict.fromkeys(metric.metric for metric in metrics)
    return tuple(
        _make_sweep(rising, [by_key[name, candidate.name] for candidate in rising])
        for rising in (sorted(alike, key=_temperature) for alike in sets.values())
        if len(set(map(_temperature, rising))) > 1
        for name in names
        if all((name, candidate.name) in by_key for candidate in rising)
    )


def sweep_sections(sweeps: Sequence[Sweep]) -> Iterator[Section]:
    """A section for each set of candidates: a row per metric and a column per temperature."""
    for _, group in groupby(sweeps, key=lambda sweep: sweep.candidates):
        of_set = list(group)
        title = f"TEMPERATURE SWEEP - {of_set[0].model}, prompt {of_set[0].prompt}"
        yield Section(title, list(_parts(of_set)))


def _temperature(candidate: Candidate) -> float:
    return candidate.sampling.temperature or 0.0


def _make_sweep(candidates: Sequence[Candidate], points: Sequence[MetricSummary]) -> Sweep:
    return Sweep(
        metric=points[0].metric,
        model=candidates[0].model,
        prompt=candidates[0].prompt,
        candidates=tuple(candidate.name for candidate in candidates),
        temperatures=tuple(map(_temperature, candidates)),
        average=points[0].figure.average,
        means=tuple(point.figure.value for point in points),
        stderrs=tuple(point.figure.stderr for point in points),
        n=tuple(point.n_scored for point in points),
        estimates=tuple(point.n_estimated for point in points),
        fallbacks=tuple(point.n_fallbacks for point in points),
    )


def _parts(sweeps: Sequence[Sweep]) -> Iterator[Part]:
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
