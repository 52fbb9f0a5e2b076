"""The models that answered, by their names at the server, with the figures of each if several did
under one name; and answers that begin with a mark of thinking that is not known."""

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
SELECT name, model, metric, count(*), favg(value) FROM rows WHERE model IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""


def find_served_models(table: RunTable) -> tuple[ServedModel, ...]:
    """The models that answered as each candidate and judge, with means; none if none was named."""
    if not holds(table.records, *NAMED):
        return ()
    return (*_find("candidate", table), *_find("judge", table))


def _find(of: Literal["candidate", "judge"], table: RunTable) -> Iterator[ServedModel]:
    batches = [batch for block in table.blocks for batch in _rows(of, block)]
    rows = pa.Table.from_batches(batches, _ROWS)
    with duckdb.connect() as database:
        database.register("rows", rows)
        found = database.execute(_FIGURES).fetchall()
    for (name, model), figures in groupby(found, key=itemgetter(0, 1)):
        by_metric = {metric: (n, mean) for _, _, metric, n, mean in figures}
        units = by_metric.pop(None, (0, None))
        n = units[0] if of == "candidate" else sum(n for n, _ in by_metric.values())
        means = {metric: mean for metric, (_, mean) in by_metric.items() if mean is not None}
        yield ServedModel(of=of, name=name, model=model, n=n, means=means)


def _rows(of: str, block: ScoreTable) -> Iterator[pa.RecordBatch]:
    metric, value = block.column("metric").cast(pa.string()), block.column("value")
    if of == "judge":
        names = [block.column(name).cast(pa.string()) for name in ("judge", "served_model")]
        yield pa.record_batch([*names, metric, value], schema=_ROWS)
        return
    names = [block.units[name] for name in ("candidate", "served_model")]
    nothing = [pa.nulls(block.units.num_rows, kind) for kind in _ROWS.types[2:]]
    yield pa.record_batch([*names, *nothing], schema=_ROWS)
    of_scores = [column.take(pa.array(block.unit)) for column in names]
    yield pa.record_batch([*of_scores, metric, value], schema=_ROWS)


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
