"""Measures speed beside quality, by candidate and task (seed 004's benchmark).

Only the columns that a figure needs are decoded. They are streamed to DuckDB, which keeps one
narrow row per unit. A unit written twice counts once."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.disagreements import is_fallback, map_names
from memray_eval.analysis.pooled import MEAN, STDERR, shares
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.stages.rates import ANSWER_TOKENS_PER_S
from memray_eval.types import Performance, is_estimate

_SCORE = "scores.list.element"
_TEXTS = ("unit_id", "candidate", "task", "prompt_type")
_FIGURES = ("output_tokens", "ttft_s", "duration_s")
_COLUMNS = (
    *_TEXTS,
    *_FIGURES,
    "error",
    *(f"{_SCORE}.{name}" for name in ("metric", "value", "judge")),
)
_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("output_tokens", pa.int64()),
        ("ttft_s", pa.float64()),
        ("duration_s", pa.float64()),
        ("is_answered", pa.bool_()),
        ("part", pa.float64()),
        ("whole", pa.float64()),
        ("is_estimate", pa.bool_()),
        ("is_fallback", pa.bool_()),
    ]
)

# The time of a failed answer does not count. A sample without a task goes by its prompt type.
_PERFORMANCE = f"""
WITH units AS (
    SELECT DISTINCT ON (unit_id) candidate, is_estimate, is_fallback,
           coalesce(nullif(task, ''), prompt_type, '') AS task,
           (part - $low * whole) * 100 / ($high - $low) AS part, whole,
           is_answered AND output_tokens IS NOT NULL AND duration_s > 0 AS is_timed,
           CASE WHEN is_answered THEN output_tokens END AS tokens,
           CASE WHEN is_answered THEN ttft_s END AS ttft_s,
           CASE WHEN is_answered THEN duration_s END AS duration_s
    FROM unit_rows)
SELECT candidate, task, count(*) AS n,
       sum(duration_s) AS duration_s_total, avg(duration_s) AS duration_s_mean,
       coalesce(sum(tokens), 0)::BIGINT AS output_tokens,
       {ANSWER_TOKENS_PER_S} AS tokens_per_s,
       avg(ttft_s) AS ttft_s_mean, quantile_cont(ttft_s, 0.95) AS ttft_s_p95,
       count(part) AS n_scored, {MEAN} AS quality, {STDERR} AS quality_stderr,
       count_if(is_estimate) AS estimates, count_if(is_fallback) AS fallbacks
FROM units GROUP BY GROUPING SETS ((candidate), (candidate, task))
HAVING grouping(task) = 1 OR task != ''
ORDER BY candidate, task NULLS FIRST
"""


def measure_speed(records: pads.Dataset, headline: Metric | None) -> tuple[Performance, ...]:
    """Reads Parquet files with RECORD_SCHEMA and returns, for each candidate, a row over all its
    tasks (task None), then one per task. Quality is that of the `headline` metric, None without
    one."""
    low, high = headline.scale if headline else (0.0, 1.0)
    with duckdb.connect() as database:
        rows = _unit_rows(records, headline)
        database.register("unit_rows", pa.RecordBatchReader.from_batches(_ROWS, rows))
        found = (
            database.sql(_PERFORMANCE, params={"low": low, "high": high})
            .to_arrow_table()
            .to_pylist()
        )
    return tuple(Performance(**row) for row in found)


def _unit_rows(records: pads.Dataset, headline: Metric | None) -> Iterator[pa.RecordBatch]:
    is_pooled = headline is not None and headline.pooled is not None
    wanted = (*_COLUMNS, f"{_SCORE}.parts") if is_pooled else _COLUMNS
    for file in records.get_fragments():
        with file.open() as stream:
            for batch in pq.ParquetFile(stream, pre_buffer=True).iter_batches(columns=wanted):
                columns = [
                    *(batch[name] for name in (*_TEXTS, *_FIGURES)),
                    batch["error"].is_null(),
                ]
                yield pa.record_batch(
                    [*columns, *_headline_values(batch["scores"], headline)], schema=_ROWS
                )


def _headline_values(scores: pa.ListArray, metric: Metric | None) -> list[pa.Array]:
    """Returns four columns, one row per unit: what it adds to the metric's figure, part and whole
    (null without a value), whether it is an estimate, and whether it is a fallback."""
    each, unit = scores.flatten(), pc.list_parent_indices(scores)
    name = metric.name if metric else ""
    wanted = pc.and_(
        pc.equal(pc.struct_field(each, "metric"), name), pc.struct_field(each, "value").is_valid()
    )
    rows, of_metric = unit.filter(wanted).to_numpy(), each.filter(wanted)
    found, kinds = np.full((2, len(scores)), np.nan), np.zeros((2, len(scores)), dtype=np.bool_)
    pooled = {0: metric.pooled} if metric and metric.pooled else {}
    found[:, rows] = shares(of_metric, np.zeros(len(of_metric), np.intp), pooled)
    if isinstance(metric, JudgedMetric):
        judges = pc.struct_field(each, "judge").filter(wanted)
        kinds[0, rows] = map_names(judges, is_estimate) > 0
        kinds[1, rows] = map_names(judges, is_fallback) > 0
    return [*(pa.array(each, mask=np.isnan(each)) for each in found), *map(pa.array, kinds)]
