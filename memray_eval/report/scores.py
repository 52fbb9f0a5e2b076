"""A run's scores as columns: of the records only ids, metric names and values are decoded. And the
texts of a few units."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.ports import FloatArray
from memray_eval.report.statistics import Clusters
from memray_eval.types import FALLBACKS, is_estimate

_SCORE = "scores.list.element"
_UNIT = ("sample_id", "task", "suite", "candidate")
# Of metadata: those whose units belong together, the first that there is.
CLUSTER_KEYS = ("user", "user_id", "context", "context_id", "document", "document_id")
_LOOKED_AT = 1000  # samples; where none of these names such a key, none is looked for
CLUSTER_COLUMNS = ("sample_id", "task", "scenario", "prompt_type", "language")
METADATA = "metadata"
ESTIMATED, REPLACED = 1, 2
Kinds: TypeAlias = npt.NDArray[np.int8]
_BETWEEN = "\x1f"  # of a unit's sample id and task, in its key


@dataclass(frozen=True)
class Scores:
    """One candidate's scores: `units` with a row a unit (key, sample_id, task, cluster), each
    metric's value a unit, NaN where it has none, and the suites the samples are of. `kinds` says by
    metric which units' values are no judge's: ESTIMATED where they are offline estimates, REPLACED
    where a rule gave them because the judge failed, 0 elsewhere."""

    units: pa.Table
    values: Mapping[str, FloatArray]
    suites: tuple[str, ...]
    kinds: Mapping[str, Kinds] = field(default_factory=dict)


def candidates_of(records: pads.Dataset) -> list[str]:
    """The names of the candidates that a run's records are of, sorted."""
    return sorted(records.to_table(columns=["candidate"])["candidate"].unique().to_pylist())


def find_cluster(records: pads.Dataset) -> str | None:
    """The first of CLUSTER_KEYS by which the samples' metadata put them into groups, two or more;
    None where each stands alone, or all belong to one."""
    read = records.to_table(columns=["sample_id", METADATA])
    texts = read.group_by("sample_id").aggregate([(METADATA, "min")])[f"{METADATA}_min"]
    named = _top_keys(texts[:_LOOKED_AT])
    for key in CLUSTER_KEYS:
        if key in named:
            found = [
                cluster for cluster in clusters_of(texts, METADATA, key) if cluster is not None
            ]
            if 1 < len(set(found)) < len(found):
                return key
    return None


def _top_keys(texts: pa.ChunkedArray) -> set[str]:
    return {key for text in texts.to_pylist() for key in json.loads(text or "{}")}


def read_scores(records: pads.Dataset, candidate: str, cluster: str | None = None) -> Scores:
    """One candidate's scores, of Parquet files with RECORD_SCHEMA. A unit written twice counts
    once. `cluster` is one of CLUSTER_COLUMNS, or a key of the samples' metadata, with or without
    "metadata." before it."""
    column = cluster if cluster is None or cluster in CLUSTER_COLUMNS else METADATA
    extra = () if column is None or column in _UNIT else (column,)
    read = [_read_file(file, candidate, (*_UNIT, *extra)) for file in records.get_fragments()]
    units = pa.concat_tables([table for table, _, _ in read])
    names = list(dict.fromkeys(name for _, values, _ in read for name in values))
    values = {
        name: np.concatenate([v.get(name, np.full(len(t), np.nan)) for t, v, _ in read])
        for name in names
    }
    kinds = {
        name: np.concatenate([k.get(name, np.zeros(len(t), np.int8)) for t, _, k in read])
        for name in names
    }
    keys = pc.binary_join_element_wise(
        units["sample_id"], pc.fill_null(units["task"], ""), _BETWEEN
    )
    groups = (
        [None] * len(units)
        if column is None or cluster is None
        else clusters_of(units[column], column, cluster)
    )
    kept = first_of_each(keys)
    table = pa.table(
        {
            "key": keys,
            "sample_id": units["sample_id"],
            "task": pc.fill_null(units["task"], ""),
            "cluster": pa.array(groups, pa.string()),
        }
    )
    suites = units["suite"].unique().drop_null().to_pylist()
    return Scores(
        units=table.take(kept),
        values={name: figures[kept] for name, figures in values.items()},
        suites=tuple(sorted(suites)),
        kinds={name: kind[kept] for name, kind in kinds.items()},
    )


class Text(NamedTuple):
    """What a unit was asked and what came of it; `error` where its generation failed."""

    query: str
    response: str
    error: str


def read_texts(
    records: pads.Dataset, candidate: str, units: Collection[tuple[str, str]]
) -> dict[tuple[str, str], Text]:
    """The texts of one candidate's units, by sample id and task."""
    ids = pa.array({sample_id for sample_id, _ in units}, pa.string())
    wanted = (pc.field("candidate") == candidate) & pc.field("sample_id").isin(ids)
    found: dict[tuple[str, str], Text] = {}
    for batch in records.to_batches(
        columns=["sample_id", "task", "query", "response", "error"], filter=wanted
    ):
        for row in batch.to_pylist():
            unit = (row["sample_id"], row["task"] or "")
            if unit in units:
                found.setdefault(
                    unit, Text(row["query"] or "", row["response"] or "", row["error"] or "")
                )
    return found


def _read_file(
    file: pads.ParquetFileFragment, candidate: str, columns: Sequence[str]
) -> tuple[pa.Table, dict[str, FloatArray], dict[str, Kinds]]:
    wanted = [*columns, *(f"{_SCORE}.{name}" for name in ("metric", "value", "judge"))]
    with file.open() as stream:
        table = pq.ParquetFile(stream).read(columns=wanted)
    table = table.filter(pc.equal(table["candidate"], candidate))
    scores = table["scores"].combine_chunks()
    unit, each = pc.list_parent_indices(scores).to_numpy(), scores.flatten()
    coded = pc.struct_field(each, "metric").dictionary_encode()
    codes, figures = (
        coded.indices.to_numpy(),
        pc.struct_field(each, "value").to_numpy(zero_copy_only=False),
    )
    judges = pc.struct_field(each, "judge").dictionary_encode()
    of_judge = np.array([_kind(judge) for judge in judges.dictionary.to_pylist()] + [0], np.int8)
    kind = of_judge[judges.indices.fill_null(-1).to_numpy()]
    values, kinds = {}, {}
    for code, name in enumerate(coded.dictionary.to_pylist()):
        rows = codes == code
        values[name], kinds[name] = np.full(len(table), np.nan), np.zeros(len(table), np.int8)
        values[name][unit[rows]], kinds[name][unit[rows]] = figures[rows], kind[rows]
    return table.drop_columns(["scores"]), values, kinds


def _kind(judge: str) -> int:
    return ESTIMATED if is_estimate(judge) else REPLACED if judge in FALLBACKS else 0


def first_of_each(keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The rows that no earlier one has the key of, in order."""
    rows = (
        pa.table({"key": keys, "row": np.arange(len(keys))})
        .group_by("key")
        .aggregate([("row", "min")])
    )
    return np.sort(rows["row_min"].to_numpy())


def clusters_of(column: pa.ChunkedArray, name: str, field: str) -> list[str | None]:
    """The cluster of each unit; None where it names none."""
    if name != METADATA:
        return [text or None for text in column.to_pylist()]
    path = field.removeprefix(f"{METADATA}.").split(".")
    found = []
    for text in column.to_pylist():
        value: Any = json.loads(text or "{}")
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        found.append(
            None
            if value is None
            else value
            if isinstance(value, str)
            else json.dumps(value, sort_keys=True)
        )
    return found


def number_clusters(names: pa.ChunkedArray) -> Clusters:
    """A number a cluster; a unit that names none is a cluster of its own."""
    codes: Clusters = (
        names.combine_chunks()
        .dictionary_encode()
        .indices.fill_null(-1)
        .to_numpy()
        .astype(np.intp, copy=True)
    )
    alone = np.flatnonzero(codes < 0)
    codes[alone] = codes.max() + 1 + np.arange(alone.size)
    return codes
