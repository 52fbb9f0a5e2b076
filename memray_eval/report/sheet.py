"""A sheet (CSV) of a run's answers for people to label: a stratified draw of answers that the judge
scored, without its scores, and the answers with their labels as they come back."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv

from memray_eval.datasets.labels import parse_label, parse_number, read_placed_rows
from memray_eval.errors import DataError
from memray_eval.report.exports import escape_formulas
from memray_eval.storage.paths import write_atomically
from memray_eval.types import CLUSTER_KEYS, MetricSummary, Record

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


def scored_units(records: Iterator[Record], metric: str) -> dict[str, ScoredUnit]:
    """The answers that have a score of the metric, by the unit's id."""
    units = {}
    for record in records:
        sample = record.sample
        named = next((key for key in CLUSTER_KEYS if sample.metadata.get(key) is not None), None)
        cluster = f"{named}={sample.metadata[named]}" if named else sample.id
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
    for a value that is none, an answer that the run does not have, and no label at all."""
    read: dict[str, SheetLabels] = {}
    for path in paths:
        for place, row in read_placed_rows(path, encoding):
            where, unit_id = f"{path}, {place}", str(row.get(UNIT_ID, "")).strip().lstrip("'")[1:]
            labels = {
                (f"{path.stem} " if len(paths) > 1 else "") + name: parse_label(
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
            before = read.get(unit_id, SheetLabels({}, weight))
            read[unit_id] = SheetLabels(before.labels | labels, weight)
    if not read:
        raise DataError(f"{', '.join(map(str, paths))}: no column `label` holds a label")
    return read
