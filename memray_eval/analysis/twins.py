"""Twins of the memory suite: samples of one case that differ in one thing, compared pair by pair.
They have the same task and `case` in their metadata, and differ in `kind`; the second is the
`twin`, `b` of two people who differ in `attribute` (`user_ATTRIBUTE` in memory), or of large
memories the one of N entries that is `N-absent`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.scores import ESTIMATED, METADATA, Scores, read_all_scores
from memray_eval.analysis.statistics import paired
from memray_eval.types import TwinDifference
from memray_eval.types.samples import EXPECTS

CONDUCTS = ("memory_conduct", "judged_conduct")  # 0 where it must not be told: it was revealed
METRICS = (*CONDUCTS, "memory_utilization", "helpfulness")
SECOND = frozenset({"twin", "b"})
LEAST = 5  # pairs: of fewer an interval says nothing
Pair: TypeAlias = tuple[str, str]  # sample ids


class _Kind(NamedTuple):
    """Pairs compared together. `reveals`: the first side must not be told what the second must."""

    task: str
    attribute: str
    sides: tuple[str, str]
    reveals: bool


def twin_differences(
    records: pads.Dataset, candidates: Sequence[str], metrics: Sequence[str]
) -> tuple[TwinDifference, ...]:
    """The second side less the first, by candidate, metric and kind of pair."""
    compared = [name for name in METRICS if name in metrics]
    pairs = _find_pairs(records) if compared else {}
    scores = read_all_scores(records, candidates, metrics=compared) if pairs else {}
    return tuple(
        _compare(of_candidate, pairs[kind], name, metric, kind)
        for name, of_candidate in scores.items()
        for metric in compared
        if not np.isnan(of_candidate.values.get(metric, np.nan)).all()
        for kind in sorted(pairs)
    )


def _compare(
    scores: Scores, pairs: Sequence[Pair], name: str, metric: str, kind: _Kind
) -> TwinDifference:
    values, units = scores.values[metric], (scores.units[key] for key in ("sample_id", "task"))
    keys = zip(*(column.to_pylist() for column in units), strict=True)
    row_of = {key: row for row, key in enumerate(keys) if not np.isnan(values[row])}
    rows = [[row_of.get((sample_id, kind.task)) for sample_id in pair] for pair in pairs]
    rows_a, rows_b = np.array([r for r in rows if None not in r], np.intp).reshape(-1, 2).T
    is_estimate = scores.kinds[metric][np.concatenate([rows_a, rows_b])] == ESTIMATED
    twin = TwinDifference(
        candidate=name, metric=metric, n=rows_a.size, estimates=int(is_estimate.sum()),
        **kind._asdict() | {"reveals": kind.reveals and metric in CONDUCTS},
    )  # fmt: skip
    if rows_a.size < LEAST:
        return twin.model_copy(update={"why": f"fewer than {LEAST} pairs"})
    a, b = scores.of_figure(metric, rows_a), scores.of_figure(metric, rows_b)
    if a is None or b is None:
        return twin.model_copy(update={"why": "nothing to divide by"})
    fields = {"mean_a", "mean_b", "difference", "low", "high"}
    return twin.model_copy(update=paired(a, b).model_dump(include=fields))


def _find_pairs(records: pads.Dataset) -> dict[_Kind, list[Pair]]:
    table = records.to_table(columns=["sample_id", "task", METADATA])
    cases: defaultdict[tuple[str, ...], dict[str, tuple[str, dict[str, Any]]]] = defaultdict(dict)
    for sample_id, task, text in zip(*(column.to_pylist() for column in table), strict=True):
        about = json.loads(text) if text and '"kind"' in text else {}
        if {"case", "kind"} <= about.keys():
            kind, entries = str(about["kind"]), str(about.get("entries", ""))
            cases[task or "", str(about["case"]), entries][kind] = sample_id, about
    pairs: defaultdict[_Kind, list[Pair]] = defaultdict(list)
    for (task, *_), sides in cases.items():
        seconds = (kind for kind in sides if kind in SECOND or kind.endswith("-absent"))
        second = next(seconds, None)
        if second is None or len(sides) != 2:
            continue
        first = next(kind for kind in sides if kind != second)
        (id_a, about_a), (id_b, about_b) = sides[first], sides[second]
        must_not, must = (about.get(EXPECTS) or {} for about in (about_a, about_b))
        reveals = must_not.keys() == {"not"} and "say" in must
        attribute = str(about_b.get("attribute", ""))
        pairs[_Kind(task, attribute, (first, second), reveals)].append((id_a, id_b))
    return {_name_people(records, kind, ids[0]): ids for kind, ids in pairs.items()}


def _name_people(records: pads.Dataset, kind: _Kind, pair: Pair) -> _Kind:
    """The kind with what two people are, such as woman and man, in place of a and b."""
    if not kind.attribute:
        return kind
    is_side = pc.field("sample_id").isin(list(pair))
    table = records.to_table(columns=["sample_id", "memory"], filter=is_side)
    memories = dict(zip(*(column.to_pylist() for column in table), strict=True))
    people = (json.loads(memories[side] or "{}").get(f"user_{kind.attribute}") for side in pair)
    first, second = (str(is_ or side) for is_, side in zip(people, kind.sides, strict=True))
    return kind._replace(sides=(first, second))
