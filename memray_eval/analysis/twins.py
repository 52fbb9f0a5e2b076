"""Twins of the memory suite: samples of one case that differ in one thing, compared pair by pair.

The sides of a pair have the same task and `case` in their metadata, and differ in `kind`; the
second is the `twin`, or `b` of two people. `attribute` is what two people differ in,
`user_ATTRIBUTE` in memory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.scores import (
    ESTIMATED,
    LOOKED_AT,
    METADATA,
    Scores,
    read_all_scores,
    unit_keys,
)
from memray_eval.analysis.statistics import paired
from memray_eval.types import TwinDifference
from memray_eval.types.samples import EXPECTS

METRICS = ("memory_conduct", "judged_conduct", "memory_utilization", "helpfulness")
SECOND = ("twin", "b")
LEAST = 5  # pairs: of fewer an interval says nothing


class _Side(NamedTuple):
    key: str
    sample_id: str
    about: Mapping[str, Any]


class _Kind(NamedTuple):
    """What pairs are compared together. `reveals`: a reply to the first side must not say what one
    to the second must."""

    task: str
    attribute: str
    sides: tuple[str, str]
    reveals: bool


def twin_differences(
    records: pads.Dataset, candidates: Sequence[str], metrics: Sequence[str]
) -> tuple[TwinDifference, ...]:
    """The second side less the first, by candidate, metric and kind of pair, if the samples have
    twins."""
    compared = [name for name in METRICS if name in metrics]
    if not compared or not (pairs := _find_pairs(records)):
        return ()
    scores = read_all_scores(records, candidates, metrics=compared)
    return tuple(
        _compare(scores[name], pairs[kind], name, metric, kind)
        for name in candidates
        for metric in compared
        if metric in scores[name].values and not np.isnan(scores[name].values[metric]).all()
        for kind in sorted(pairs)
    )


def _compare(
    scores: Scores, pairs: Sequence[tuple[_Side, _Side]], name: str, metric: str, kind: _Kind
) -> TwinDifference:
    row_of = {key: row for row, key in enumerate(scores.units["key"].to_pylist())}
    values, kinds = scores.values[metric], scores.kinds[metric]
    rows = [(row_of.get(a.key), row_of.get(b.key)) for a, b in pairs]
    both = [
        (a, b)
        for a, b in rows
        if a is not None and b is not None and not np.isnan(values[[a, b]]).any()
    ]
    rows_a, rows_b = np.array(both, dtype=np.intp).reshape(-1, 2).T
    found = TwinDifference(
        candidate=name,
        metric=metric,
        task=kind.task,
        attribute=kind.attribute,
        sides=kind.sides,
        reveals=kind.reveals,
        n=len(both),
        estimates=int((kinds[[*rows_a, *rows_b]] == ESTIMATED).sum()) if both else 0,
    )
    if len(both) < LEAST:
        return found.model_copy(update={"why": f"fewer than {LEAST} pairs"})
    a, b = scores.of_figure(metric, rows_a), scores.of_figure(metric, rows_b)
    if a is None or b is None:
        return found.model_copy(update={"why": "no key is required or wrongly used"})
    measured = paired(a, b)
    fields = ("mean_a", "mean_b", "difference", "low", "high")
    return found.model_copy(update={field: getattr(measured, field) for field in fields})


def _find_pairs(records: pads.Dataset) -> dict[_Kind, list[tuple[_Side, _Side]]]:
    cases: defaultdict[tuple[str, str], dict[str, _Side]] = defaultdict(dict)
    for task, side in _read_sides(records):
        cases[task, str(side.about["case"])][str(side.about["kind"])] = side
    pairs: defaultdict[_Kind, list[tuple[_Side, _Side]]] = defaultdict(list)
    for (task, _), sides in cases.items():
        second = next((kind for kind in SECOND if kind in sides), None)
        if second is None or len(sides) != 2:
            continue
        first = next(kind for kind in sides if kind != second)
        a, b = sides[first], sides[second]
        must_not, must = (side.about.get(EXPECTS) or {} for side in (a, b))
        reveals = must_not.keys() == {"not"} and "say" in must
        kind = _Kind(task, str(b.about.get("attribute", "")), (first, second), reveals)
        pairs[kind].append((a, b))
    return {_name_people(records, kind, found[0]): found for kind, found in pairs.items()}


def _read_sides(records: pads.Dataset) -> Iterator[tuple[str, _Side]]:
    """The task and side of each unit of a case; of no unit if none of the first names one."""
    looked_at = records.head(LOOKED_AT, columns=[METADATA])[METADATA].to_pylist()
    if not any({"case", "kind"} <= json.loads(text or "{}").keys() for text in looked_at):
        return
    table = records.to_table(columns=["sample_id", "task", METADATA])
    keys = unit_keys(table).to_pylist()
    columns = (table[name].to_pylist() for name in ("task", "sample_id", METADATA))
    for key, task, sample_id, text in zip(keys, *columns, strict=True):
        about = json.loads(text or "{}")
        if {"case", "kind"} <= about.keys():
            yield task or "", _Side(key, sample_id, about)


def _name_people(records: pads.Dataset, kind: _Kind, pair: tuple[_Side, _Side]) -> _Kind:
    """The kind with what two people are, such as woman and man, in place of a and b."""
    if not kind.attribute:
        return kind
    ids = [side.sample_id for side in pair]
    is_side = pc.field("sample_id").isin(ids)
    table = records.to_table(columns=["sample_id", "memory"], filter=is_side)
    memory_of = dict(zip(table["sample_id"].to_pylist(), table["memory"].to_pylist(), strict=True))
    memories = [json.loads(memory_of[sample_id] or "{}") for sample_id in ids]
    first, second = (
        str(memory.get(f"user_{kind.attribute}", side))
        for memory, side in zip(memories, kind.sides, strict=True)
    )
    return kind._replace(sides=(first, second))
