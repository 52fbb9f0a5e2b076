"""The models that answered, by their names at the server, with the figures of each if several did
under one name; and answers that begin with a mark of thinking that is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Literal

import duckdb
import pyarrow as pa

from memray_eval.analysis.score_table import RunTable, ScoreTable, holds, score_columns
from memray_eval.types import ServedModel

# A row without a metric stands for the unit itself, the others for its scores
_ROWS = pa.schema(
    [*((name, pa.string()) for name in ("name", "model", "metric")), ("value", pa.float64())]
)
NAMED = ("served_model", *score_columns("served_model"))
_FIGURES = """
SELECT name, model, metric, count(*), favg(value) FROM rows GROUP BY ALL ORDER BY ALL
"""


def find_served_models(table: RunTable) -> tuple[ServedModel, ...]:
    """The models that answered as each candidate and judge, and the means of what each answered or
    scored; none if no server named its model."""
    if not holds(table.records, *NAMED):
        return ()
    return (*_find("candidate", table), *_find("judge", table))


def _find(of: Literal["candidate", "judge"], table: RunTable) -> Iterator[ServedModel]:
    rows = pa.Table.from_batches([_rows(of, block) for block in table.blocks], _ROWS)
    with duckdb.connect() as database:
        database.register("rows", rows)
        found = database.execute(_FIGURES).fetchall()
    for (name, model), figures in groupby(found, key=itemgetter(0, 1)):
        by_metric = {metric: (n, mean) for _, _, metric, n, mean in figures}
        units = by_metric.pop(None, (0, None))
        n = units[0] if of == "candidate" else sum(n for n, _ in by_metric.values())
        means = {metric: mean for metric, (_, mean) in by_metric.items() if mean is not None}
        yield ServedModel(of=of, name=name, model=model, n=n, means=means)


def _rows(of: str, block: ScoreTable) -> pa.RecordBatch:
    scores = [block.column(name).cast(kind) for name, kind in
              (("metric", pa.string()), ("value", pa.float64()))]  # fmt: skip
    if of == "judge":
        names = [block.column(name).cast(pa.string()) for name in ("judge", "served_model")]
    else:
        units = pa.record_batch([block.units[name] for name in ("candidate", "served_model")],
                                names=_ROWS.names[:2])  # fmt: skip
        nothing = [pa.nulls(units.num_rows, field.type) for field in list(_ROWS)[2:]]
        names = [pa.concat_arrays([column, column.take(pa.array(block.unit))]) for column in units]
        scores = [pa.concat_arrays(pair) for pair in zip(nothing, scores, strict=True)]
    rows = pa.record_batch([*names, *scores], schema=_ROWS)
    return rows.filter(rows["model"].is_valid())


def count_unknown_marks(table: RunTable) -> dict[str, int]:
    """Counts the answers that begin with each unknown mark of thinking, the most frequent first."""
    if not holds(table.records, "unknown_mark"):
        return {}
    marks = Counter(table.to_table(["unknown_mark"])["unknown_mark"].drop_null().to_pylist())
    return dict(sorted(marks.items(), key=lambda mark: (-mark[1], mark[0])))


def split_names(served: Sequence[ServedModel]) -> Iterator[list[ServedModel]]:
    """The models of each candidate and judge that answered as more than one."""
    for _, models in groupby(served, key=lambda model: (model.of, model.name)):
        if len(several := list(models)) > 1:
            yield several
