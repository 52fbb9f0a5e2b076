"""The reduce stage: written records to a summary, by DuckDB over Arrow columns. A unit written twice counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow.dataset as pads

from memray_eval.metric import Metric, Outcomes, summarise
from memray_eval.types import GenerationSummary, MetricSummary

# A retried write task may leave a unit in two files; the units are the same, so any one of them will do.
_UNITS = "CREATE TEMP TABLE units AS SELECT DISTINCT ON (unit_id) * FROM (SELECT {columns} FROM records)"
_COLUMNS = (
    "unit_id, candidate, model, error, finish_reason, prompt_tokens, output_tokens, ttft_s, duration_s, "
    "list_transform(scores, lambda s: {'metric': s.metric, 'status': s.status, 'value': s.value, 'parts': s.parts, "
    "'judge': s.judge}) AS scores"
)
_SCORES = "CREATE TEMP TABLE outcomes AS SELECT candidate, unnest(scores, recursive := true) FROM units"
_GENERATION = """
SELECT candidate, any_value(model), count(*), count(error), coalesce(sum(prompt_tokens), 0), coalesce(sum(output_tokens), 0),
       avg(ttft_s), quantile_cont(ttft_s, 0.95), avg(duration_s)
FROM units GROUP BY candidate ORDER BY candidate
"""
_FINISH = "SELECT finish_reason, count(*) FROM units WHERE candidate = ? AND finish_reason IS NOT NULL GROUP BY 1 ORDER BY 1"
_FAILED_UNITS = """
SELECT count(*) FROM units WHERE error IS NOT NULL OR len(list_filter(scores, lambda s: s.status = 'error')) > 0
"""


@dataclass(frozen=True)
class Reduced:
    """What the records amount to."""

    n_units: int
    n_failed_units: int
    generation: tuple[GenerationSummary, ...]
    metrics: tuple[MetricSummary, ...]


def reduce_records(records: pads.Dataset, metrics: Sequence[Metric], generation_s: float | None) -> Reduced:
    """Aggregates per candidate and metric. `generation_s` is the stage's wall time, for tokens per second."""
    with duckdb.connect() as database:
        database.register("records", records)
        database.execute(_UNITS.format(columns=_COLUMNS))
        database.execute(_SCORES)
        generation = tuple(_generation(database, generation_s))
        return Reduced(
            n_units=sum(candidate.n for candidate in generation),
            n_failed_units=_one(database, _FAILED_UNITS),
            generation=generation,
            metrics=tuple(
                summarise(metric, _outcomes(database, metric, candidate.candidate))
                for metric in metrics
                for candidate in generation
            ),
        )


def _generation(database: Any, generation_s: float | None) -> Iterator[GenerationSummary]:
    for name, model, n, failed, prompt, output, ttft, ttft_p95, duration in database.execute(_GENERATION).fetchall():
        yield GenerationSummary(
            candidate=name,
            model=model,
            n=n,
            n_failed=failed,
            prompt_tokens=int(prompt),
            output_tokens=int(output),
            output_tokens_per_s=int(output) / generation_s if generation_s else None,
            ttft_s_mean=ttft,
            ttft_s_p95=ttft_p95,
            duration_s_mean=duration,
            finish_reasons=dict(database.execute(_FINISH, [name]).fetchall()),
        )


def _outcomes(database: Any, metric: Metric, candidate: str) -> Outcomes:
    where = [metric.name, candidate]
    counted = "SELECT {0}, count(*) FROM outcomes WHERE metric = ? AND candidate = ? {1} GROUP BY 1 ORDER BY 1"
    parts = "".join(f", coalesce(parts['{part}'], 0.0) AS \"{part}\"" for part in metric.columns)
    figures = database.execute(
        f"SELECT value{parts} FROM outcomes WHERE metric = ? AND candidate = ? AND status = 'scored'", where
    ).fetchnumpy()
    return Outcomes(
        candidate=candidate,
        by_status=dict(database.execute(counted.format("status", ""), where).fetchall()),
        by_judge=dict(database.execute(counted.format("judge", "AND status = 'scored'"), where).fetchall()),
        columns={name: np.asarray(figures[name], dtype=np.float64) for name in ("value", *metric.columns)},
    )


def _one(database: Any, query: str) -> int:
    return int(database.execute(query).fetchone()[0])
