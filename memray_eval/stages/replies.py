"""What servers say of their replies: which model answered, and how its figures differ where several
did under one name. Rows are read only of files that hold such names; a unit written twice counts
once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.stages.judge import UNKNOWN
from memray_eval.types import JURORS, ServedModel

_OF_SCORE = "scores.list.element.served_model"
_SCORES = tuple(f"scores.list.element.{name}" for name in ("metric", "value", "judge"))
_COUNTS = "SELECT candidate, served_model, count(DISTINCT unit_id) FROM rows GROUP BY ALL"
_SUMS = """
WITH scores AS (SELECT unit_id, candidate, served_model, unnest(scores) AS one FROM rows),
     each AS (SELECT DISTINCT ON (unit_id, one.metric) * FROM scores)
SELECT {name}, {model}, one.metric, count(*), count(one.value), fsum(one.value)
FROM each WHERE {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_Model = tuple[str, str]  # who was asked, and the model that answered


def find_served_models(records: pads.Dataset) -> tuple[ServedModel, ...]:
    """The models that answered as each candidate and judge, by their names at the server. Means
    are there of a candidate's where several did. Empty where no server named any."""
    files = list(records.get_fragments())
    counts = Counter[_Model]()
    sums: defaultdict[_Model, Counter[str]] = defaultdict(Counter)
    scored: defaultdict[_Model, Counter[str]] = defaultdict(Counter)
    for name, model, n in _ask(files, "served_model", _COUNTS):
        if model is not None:
            counts[name, model] += n
    if _has_several(counts):
        sql = _SUMS.format(name="candidate", model="served_model")
        for name, model, metric, _, n_scored, total in _ask(files, "served_model", sql, *_SCORES):
            scored[name, model][metric] += n_scored
            sums[name, model][metric] += total or 0.0
    found = _list_models("candidate", counts, scored, sums)
    counts, scored, sums = Counter(), defaultdict(Counter), defaultdict(Counter)
    sql = _SUMS.format(name="one.judge", model="one.served_model")
    for judge, model, metric, n, n_scored, total in _ask(files, _OF_SCORE, sql, *_SCORES):
        for juror in _pair_jurors(judge, model):
            counts[juror] += n
            scored[juror][metric] += n_scored
            sums[juror][metric] += total or 0.0
    return (*found, *_list_models("judge", counts, scored, sums))


def count_unknown_marks(records: pads.Dataset) -> dict[str, int]:
    """How many answers begin with each mark that looks like one of thinking and is not known, the
    most frequent first."""
    sql = (
        "SELECT unknown_mark, count(DISTINCT unit_id) AS n FROM rows WHERE unknown_mark IS NOT "
        "NULL GROUP BY ALL ORDER BY n DESC, unknown_mark"
    )
    return dict(_ask(list(records.get_fragments()), "unknown_mark", sql))


def _pair_jurors(judges: str, models: str) -> Sequence[_Model]:
    """Each of a score's judges with the model that answered as it; a judge that was asked several
    times may have answered as several models."""
    names, served = judges.split(JURORS), models.split(JURORS)
    if len(names) == 1:
        pairs = [(judges, model) for model in served]
    elif len(names) == len(served):
        pairs = list(zip(names, served, strict=True))
    else:
        pairs = [(judges, models)]
    return [(name, model) for name, model in pairs if model != UNKNOWN]


def _has_several(counts: Mapping[_Model, int]) -> bool:
    return len({name for name, _ in counts}) < len(counts)


def _list_models(
    of: str,
    counts: Mapping[_Model, int],
    scored: Mapping[_Model, Mapping[str, int]],
    sums: Mapping[_Model, Mapping[str, float]],
) -> tuple[ServedModel, ...]:
    return tuple(
        ServedModel.model_validate(
            {
                "of": of,
                "name": one[0],
                "model": one[1],
                "n": counts[one],
                "means": {
                    metric: sums[one][metric] / n for metric, n in scored.get(one, {}).items() if n
                },
            }
        )
        for one in sorted(counts)
    )


def _ask(
    files: Sequence[pads.ParquetFileFragment], named: str, sql: str, *more: str
) -> list[tuple[Any, ...]]:
    """What a query says of the rows of the files that hold a value in the column `named`."""
    columns = ["unit_id", "candidate", *dict.fromkeys(("served_model", named, *more))]
    holding = [file for file in files if _holds(file.metadata, named)]
    batches = _read(holding, columns)
    if (first := next(batches, None)) is None:
        return []
    with duckdb.connect() as database:
        reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
        database.register("rows", reader)
        return database.execute(sql).fetchall()


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _read(
    files: Sequence[pads.ParquetFileFragment], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for file in files:
        with file.open() as stream:
            yield from pq.ParquetFile(stream, pre_buffer=True).iter_batches(columns=columns)


def _holds(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether a file holds a value in a column, by the statistics that Parquet keeps of it."""
    schema = metadata.schema
    places = [place for place in range(len(schema)) if schema.column(place).path == name]
    columns = [
        metadata.row_group(group).column(place)
        for group in range(metadata.num_row_groups)
        for place in places
    ]
    return any(
        not one.is_stats_set or one.statistics.null_count < one.num_values for one in columns
    )
