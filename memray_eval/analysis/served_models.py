"""The models that answered, by their names at the server, with the figures of each if several did
under one name; and answers that begin with a mark of thinking that is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.score_table import column_statistics, read_blocks, score_columns
from memray_eval.analysis.scores import first_of_each
from memray_eval.types import ServedModel

_COLUMNS = ("candidate", *score_columns("metric", "value", "judge"))
# A row without a metric stands for the unit itself, the others for its scores
_FIGURES = """
WITH rows AS (
    SELECT candidate, served_model, unnest(list_prepend(NULL, scores)) AS score FROM units)
SELECT {name}, {model}, score.metric, count(*), favg(score.value) FROM rows
WHERE {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_MARKS = """
SELECT unknown_mark, count(*) AS n FROM units WHERE unknown_mark IS NOT NULL
GROUP BY 1 ORDER BY n DESC, 1
"""


def find_served_models(records: pads.Dataset) -> tuple[ServedModel, ...]:
    """The models that answered as each candidate and judge, and the means of what each answered or
    scored; none if no server named its model."""
    return (
        *_find("candidate", records, "served_model", name="candidate", model="served_model"),
        *_find("judge", records, *score_columns("served_model"), name="score.judge",
               model="score.served_model"),
    )  # fmt: skip


def _find(
    of: Literal["candidate", "judge"], records: pads.Dataset, column: str, **names: str
) -> Iterator[ServedModel]:
    columns = dict.fromkeys(("served_model", column, *_COLUMNS))
    rows = _ask(records, column, _FIGURES.format(**names), *columns)
    for (name, model), figures in groupby(rows, key=itemgetter(0, 1)):
        by_metric = {metric: (n, mean) for _, _, metric, n, mean in figures}
        units = by_metric.pop(None, (0, None))
        n = units[0] if of == "candidate" else sum(n for n, _ in by_metric.values())
        means = {metric: mean for metric, (_, mean) in by_metric.items() if mean is not None}
        yield ServedModel(of=of, name=name, model=model, n=n, means=means)


def count_unknown_marks(records: pads.Dataset) -> dict[str, int]:
    """Counts the answers that begin with each unknown mark of thinking, the most frequent first."""
    return dict(_ask(records, "unknown_mark", _MARKS, "unknown_mark"))


def _ask(records: pads.Dataset, named: str, sql: str, *columns: str) -> list[tuple[Any, ...]]:
    """Queries the units in the files that hold a value in the column `named`; a unit that was
    written twice counts once. Nothing is read if no file does."""
    files = list(records.get_fragments())
    holding = [_holds(file.metadata, named) for file in files]
    if not any(holding):
        return []
    ids = records.to_table(columns=["unit_id"])["unit_id"]
    is_first = np.zeros(len(ids), np.bool_)
    is_first[first_of_each(ids)] = True

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for file, is_wanted in zip(files, holding, strict=True):
            if not is_wanted:
                row += file.metadata.num_rows
                continue
            for batch in read_blocks(file, columns):
                yield batch.filter(pa.array(is_first[row : row + len(batch)]))
                row += len(batch)

    rest = batches()
    first = next(rest)
    with duckdb.connect() as database:
        units = pa.RecordBatchReader.from_batches(first.schema, chain([first], rest))
        database.register("units", units)
        rows: list[tuple[Any, ...]] = database.execute(sql).fetchall()
        return rows


def _holds(metadata: pq.FileMetaData, name: str) -> bool:
    kept = column_statistics(metadata, [name])
    return any(
        column is None or not column.has_null_count or column.null_count < n for column, n in kept
    )


def split_names(served: Sequence[ServedModel]) -> Iterator[list[ServedModel]]:
    """The models of each candidate and judge that answered as more than one."""
    for _, models in groupby(served, key=lambda model: (model.of, model.name)):
        if len(several := list(models)) > 1:
            yield several
