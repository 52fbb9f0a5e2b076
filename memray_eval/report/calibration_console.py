"""Renders how far judges agree with people: a column a judge, and each judge's curve."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv

from memray_eval.analysis.calibration import (
    MIN_CLUSTERS,
    MIN_COVERAGE,
    MIN_LABELS,
    CalibrationReport,
    Coefficient,
    JudgeFigures,
    RaterComparison,
)
from memray_eval.datasets.labels import parse_label, parse_number, read_placed_rows
from memray_eval.errors import DataError
from memray_eval.report.exports import escape_formulas
from memray_eval.report.sections import Row, Section, Table, bounded
from memray_eval.storage.paths import write_atomically
from memray_eval.types import MetricSummary, Record

TITLES = {
    "exact": "exact agreement",
    "kappa": "weighted kappa",
    "alpha_ordinal": "alpha, ordinal",
    "alpha_interval": "alpha, interval",
    "alpha_nominal": "alpha, nominal",
    "spearman": "Spearman",
    "bias": "bias",
    "calibration_error": "calibration gap",
    "flip_rate": "flip rate",
}
PEOPLE = "people"
_UNDEFINED = "-: undefined, for all scores or all labels are the same, or there are none"
MOST_PEOPLE = 20  # listed one by one


def render(report: CalibrationReport) -> str:
    """Renders the whole report as text."""
    lines = (("", section.title, *section.lines()) for section in sections(report))
    return "\n".join(line for part in lines for line in part).strip("\n")


def sections(report: CalibrationReport) -> Iterator[Section]:
    """The figures of judges and people, the suggested judge; each judge's curve; single people."""
    (low, high), (to_low, to_high) = report.scale, report.human_scale
    title = (
        f"{report.metric} ({low:g}-{high:g}) on {report.labelled}: {report.n} labelled responses, "
        f"{report.n_clusters} clusters"
    )
    note = (
        f"Figures on people's scale, {to_low:g}-{to_high:g}, with 95 % bootstrap intervals over "
        "clusters"
    )
    advice = report.suggestion
    tables = [judge.figures for judge in report.judges]
    tables += [report.people.figures] if report.people else []
    kappas = (figures.get(name) for figures in tables for name in ("kappa", "spearman"))
    undefined = [_UNDEFINED] if any(k is not None and k.value is None for k in kappas) else []
    suggested = ["", f"Suggested: {advice.judge or 'none'}, {advice.reason}."] if advice else []
    says = [*map(whether_usable, report.judges)]
    yield Section(title, [*says, "", note, "", _figures_table(report), *undefined, *suggested])
    if report.adjusted:
        rows: list[Row] = [("", "judge", PEOPLE, "answers", "labels", "lambda")]
        for mean in report.adjusted:
            shown = mean.refused or bounded(mean.value, mean.low, mean.high, ".3f")
            counts = f"{mean.n:,}", f"{mean.n_labels:,}", f"{mean.tuning or 0.0:.2f}"
            rows.append((mean.candidate, f"{mean.raw:.3f}", shown, *counts))
        title = f"Mean of all answers, {low:g}-{high:g}, and as people would have it (PPI++, 95 %)"
        yield Section(title, [Table(rows)])
    for judge in report.judges:
        rows = [("from", "to", "n", "judge", PEOPLE)]
        for part in judge.curve:
            ends = f"{part.low:.2f}", f"{part.high:.2f}"
            rows.append((*ends, f"{part.n}", f"{part.judge:.3f}", f"{part.people:.3f}"))
        yield Section(f"Calibration of {judge.judge} by {judge.curve_by}", [Table(rows, left=())])
    if report.raters:
        yield _raters_section(report.raters)


def whether_usable(judge: JudgeFigures) -> str:
    """Whether a judge may be used, and by what figures."""
    kappa = f"weighted kappa {format_figure(judge.figures.get('kappa'))}"
    figures = f"{kappa}, {judge.coverage:.1%} scored"
    name = f"{judge.judge} ({judge.judged_by})" if judge.judged_by else judge.judge
    if judge.may_be_used:
        return f"{name} may be used: {figures}."
    needs = f"its interval must lie above 0, and {MIN_COVERAGE:.0%} be scored"
    if judge.coverage >= MIN_COVERAGE and not judge.is_measured:
        figures += f", {judge.n_scored} labels in {judge.n_clusters} clusters"
        needs = f"{MIN_LABELS} labels in {MIN_CLUSTERS} clusters are needed"
    return f"{name} is not to be used: {figures}; {needs}."


def _raters_section(raters: RaterComparison) -> Section:
    """Macro F1 of the judges, then of people, the highest first."""
    people = sorted(raters.people, key=lambda person: -(person.macro_f1.value or 0.0))
    values = [person.macro_f1.value for person in people if person.macro_f1.value is not None]
    rows: list[Row] = [("", "macro F1", "pairs", "above people")]
    for judge in raters.judges:
        above = f"{sum(value < (judge.macro_f1.value or 0.0) for value in values)} of {len(values)}"
        rows.append((judge.rater, format_figure(judge.macro_f1), f"{judge.n:,}", above))
    mean = Coefficient(value=raters.people_mean)
    rows.append((f"{PEOPLE}, weighted by pairs", format_figure(mean), "", ""))
    for person in people[:MOST_PEOPLE]:
        rows.append((person.rater, format_figure(person.macro_f1), f"{person.n:,}", ""))
    rest = [f"... of {len(people)} (--json has all)"] if len(people) > MOST_PEOPLE else []
    return Section("Macro F1 against other raters of the same response", [Table(rows), *rest])


def _figures_table(report: CalibrationReport) -> Table:
    columns: list[Row] = [("", "scored", *TITLES.values(), "cost")]
    for judge in report.judges:
        scored = f"{judge.n_scored} of {judge.n} ({judge.coverage:.1%})"
        figures = (format_figure(judge.figures.get(name)) for name in TITLES)
        cost = "unknown" if judge.cost_usd is None else f"${judge.cost_usd:.4f}"
        columns.append((judge.judge, scored, *figures, cost))
    if people := report.people:
        figures = (format_figure(people.figures.get(name)) for name in TITLES)
        columns.append((PEOPLE, str(people.n), *figures, ""))
    return Table(list(zip(*columns, strict=True)))


def format_figure(figure: Coefficient | None) -> str:
    """A figure with its interval, or "-" for one that is undefined."""
    figure = figure or Coefficient(value=None)
    return bounded(figure.value, figure.low, figure.high, ".3f")


SEED = 0
UNIT_ID, WEIGHT = "unit_id", "weight"
_LABEL = re.compile(r"label(_.*|\d+)?")  # a column for each rater
MOST_CHARACTERS = 2000  # of a memory or reference in a cell


class ScoredUnit(NamedTuple):
    """An answer that was scored: who answered, its stratum's task, and the judge's score."""

    candidate: str
    task: str
    cluster: str
    value: float
    judge: str


def scored_units(
    records: Iterator[Record], metric: str, cluster_by: str | None = None
) -> dict[str, ScoredUnit]:
    """The answers that have a score of the metric, by the unit's id; `cluster_by` is a key of the
    samples' metadata, and whose sample does not have it is a cluster of its own."""
    units = {}
    for record in records:
        sample = record.sample
        named = sample.metadata.get(cluster_by) if cluster_by else None
        cluster = sample.id if named is None else f"{cluster_by}={named}"
        for score in record.scores:
            if score.metric == metric and score.value is not None:
                who = record.candidate.name, sample.task, cluster
                units[record.unit_id] = ScoredUnit(*who, score.value, score.judge)
    return units


def draw(units: Mapping[str, ScoredUnit], limit: int, seed: int = SEED) -> dict[str, float]:
    """Draws answers, each with its weight, 1 / the chance to be drawn: systematically from a random
    start, which takes the same share of each candidate's answers to each task."""
    rng, n = random.Random(seed), min(limit, len(units))
    ordered = sorted(sorted(units), key=lambda unit_id: (*units[unit_id][:2], rng.random()))
    step = len(units) / n
    start = rng.random() * step
    drawn = [ordered[min(int(start + k * step), len(units) - 1)] for k in range(n)]
    rng.shuffle(drawn)
    return dict.fromkeys(drawn, step)


def write_sheet(
    path: str, records: Iterator[Record], drawn: Mapping[str, float], metric: MetricSummary
) -> None:
    """Writes the drawn answers, in the order of the draw, with empty columns for two raters."""
    low, high = metric.scale
    scale = f"a number from {low:g} to {high:g}; empty: not labelled"
    rows = {}
    for record in records:
        if record.unit_id in drawn:
            sample, response = record.sample, record.response
            rows[record.unit_id] = {
                UNIT_ID: f"u{record.unit_id}",  # a spreadsheet takes some digests for numbers
                "metric": metric.metric, "scale": scale, "query": sample.query,
                "memory": _shorten(sample.memory), "reference": _shorten(sample.answers),
                "response": response.text if response else "", "label": "", "label_2": "",
            }  # fmt: skip
    table = pa.Table.from_pylist([rows[unit_id] for unit_id in drawn])
    columns = [escape_formulas(column.combine_chunks()) for column in table.columns]
    names = [*table.column_names, WEIGHT]
    with write_atomically(path) as stream:
        stream.write(b"\xef\xbb\xbf")  # Excel takes a file without it for its own code page
        pacsv.write_csv(pa.table([*columns, pa.array(drawn.values())], names=names), stream)


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if value else ""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


class SheetLabels(NamedTuple):
    """The labels of an answer by rater, and its weight."""

    labels: dict[str, float | None]
    weight: float


def read_sheets(
    paths: Sequence[Path],
    units: Mapping[str, ScoredUnit],
    metric: str,
    scale: tuple[float, float],
    words: Mapping[str, float],
    encoding: str = "",
) -> dict[str, SheetLabels]:
    """Reads filled sheets of one draw, a rater for each column `label...` of each. Raises DataError
    for a value that is none, an answer that the run does not have, one that a rater labelled twice
    and differently, and no label at all."""
    read: dict[str, SheetLabels] = {}
    stems = [path.stem for path in paths]
    for path in paths:
        rater = path.stem if stems.count(path.stem) == 1 else str(path)
        for place, row in read_placed_rows(path, encoding):
            where, unit_id = f"{path}, {place}", str(row.get(UNIT_ID, "")).strip().lstrip("'")[1:]
            labels = {
                (f"{rater} " if len(paths) > 1 else "") + name: parse_label(
                    where, row[name], name, words, scale
                )
                for name in row
                if name is not None and _LABEL.fullmatch(name)
            }
            if all(label is None for label in labels.values()):
                continue
            if row.get("metric", metric) != metric:
                raise DataError(f"{where}: a label of {row['metric']}, and --metric is {metric}")
            if unit_id not in units:
                raise DataError(
                    f"{where}: {UNIT_ID} {row.get(UNIT_ID)!r} is no answer of this run that "
                    f"{metric} scored; label the sheet that `calibrate --sheet` wrote of it"
                )
            weight = parse_number(str(row.get(WEIGHT, 1.0)).replace(",", "."), {})
            if weight is None or not 0 < weight < math.inf:
                raise DataError(f"{where}: {WEIGHT!r} holds {row[WEIGHT]!r}, no number above 0")
            before = read.get(unit_id, SheetLabels({}, weight)).labels
            for name, label in before.items():
                if labels.get(name) is None:
                    labels[name] = label
                elif label is not None and label != labels[name]:
                    raise DataError(
                        f"{where}: {name!r} is {labels[name]:g}, and {label:g} in an earlier row "
                        "of this answer; keep one of them"
                    )
            read[unit_id] = SheetLabels(labels, weight)
    if not read:
        raise DataError(f"{', '.join(map(str, paths))}: no column `label` holds a label")
    return read
