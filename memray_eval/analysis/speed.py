"""Measures speed beside quality, by candidate and task (seed 004's benchmark), in DuckDB, a narrow
row per unit. A unit written twice counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import (
    MEAN,
    STDERR,
    ScoreTable,
    fields_of_shares,
    is_fallback,
    read_score_tables,
)
from memray_eval.analysis.scores import count_epochs, first_of_each, unit_keys
from memray_eval.analysis.statistics import SETTINGS, median_interval
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.ports import FloatArray
from memray_eval.stages.rates import ANSWER_TOKENS_PER_S
from memray_eval.types import Performance, SpeedRatio, is_estimate

_TEXTS = ("unit_id", "candidate", "task", "prompt_type")
_FIGURES = ("output_tokens", "ttft_s", "duration_s")
_COLUMNS = (*_TEXTS, *_FIGURES, "error")
_ROWS = pa.schema(
    dict.fromkeys(_TEXTS, pa.string())
    | {"output_tokens": pa.int64(), "ttft_s": pa.float64(), "duration_s": pa.float64()}
    | {"is_answered": pa.bool_(), "part": pa.float64(), "whole": pa.float64()}
    | dict.fromkeys(("is_estimate", "is_fallback"), pa.bool_())
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
    one, and without a standard error if samples have several answers."""
    low, high = headline.scale if headline else (0.0, 1.0)
    with duckdb.connect() as database:
        rows = _unit_rows(records, headline)
        database.register("unit_rows", pa.RecordBatchReader.from_batches(_ROWS, rows))
        performance = (
            database.sql(_PERFORMANCE, params={"low": low, "high": high})
            .to_arrow_table()
            .to_pylist()
        )
    apart = {"quality_stderr": None} if count_epochs(records) > 1 else {}
    return tuple(Performance(**row | apart) for row in performance)


def speed_ratios(records: pads.Dataset, candidates: Sequence[str]) -> tuple[SpeedRatio, ...]:
    """Compares the speeds of every pair of candidates on the prompts that both answered. The level
    holds for all intervals together, of medians by order statistics."""
    pairs = list(combinations(candidates, 2))
    level = SETTINGS.for_all(len(pairs)).level
    speeds = {name: _speeds(records, name) for name in candidates} if pairs else {}
    ratios = []
    for a, b in pairs:
        (keys_a, of_a), (keys_b, of_b) = speeds[a], speeds[b]
        at = pc.index_in(keys_b, value_set=keys_a)
        both = of_b[at.is_valid().to_numpy(zero_copy_only=False)] / of_a[at.drop_null().to_numpy()]
        if both.size:
            ratios.append(median_ratio(a, b, both, level))
    return tuple(ratios)


def median_ratio(a: str, b: str, ratios: FloatArray, level: float = SETTINGS.level) -> SpeedRatio:
    """The median of the ratios of two candidates' speeds, with its interval."""
    low, high = median_interval(ratios, level) or (None, None)
    median = float(np.median(ratios))
    return SpeedRatio(a=a, b=b, n=ratios.size, level=level, ratio=median, low=low, high=high)


def _speeds(records: pads.Dataset, candidate: str) -> tuple[pa.Array, FloatArray]:
    """The keys of a candidate's units, and the output tokens per second of each answer."""
    is_timed = pc.field("error").is_null() & (pc.field("candidate") == candidate)
    is_timed &= (pc.field("duration_s") > 0) & (pc.field("output_tokens") > 0)
    columns = ["sample_id", "task", "output_tokens", "duration_s"]
    table = records.to_table(columns, filter=is_timed)
    table = table.take(first_of_each(unit_keys(table)))
    of = pc.divide(table["output_tokens"].cast(pa.float64()), table["duration_s"])
    return unit_keys(table).combine_chunks(), of.to_numpy()


def _unit_rows(records: pads.Dataset, headline: Metric | None) -> Iterator[pa.RecordBatch]:
    metrics = (headline,) if headline else ()
    fields = (*fields_of_shares(metrics), "judge")
    for table in read_score_tables(records, _COLUMNS, fields):
        of_units = [table.units[name] for name in (*_TEXTS, *_FIGURES)]
        is_answered = table.units["error"].is_null()
        values = _headline_values(table, metrics)
        yield pa.record_batch([*of_units, is_answered, *values], schema=_ROWS)


def _headline_values(table: ScoreTable, metrics: Sequence[Metric]) -> Iterator[pa.Array]:
    """Four columns, one row per unit: what it adds to the metric's figure, part and whole (null
    without a value), whether it is an estimate, and whether it is a fallback."""
    of_metric = table.codes([metric.name for metric in metrics]) == 0
    scored = table.only(of_metric & ~np.isnan(table.values))
    every = slice(None)
    for column in scored.shares(metrics):
        of_units = scored.by_unit(every, column)
        yield pa.array(of_units, mask=np.isnan(of_units))
    is_judged = any(isinstance(metric, JudgedMetric) for metric in metrics)
    for belongs in (is_estimate, is_fallback):
        yield pa.array(scored.has(scored.is_judge(belongs) & is_judged))
