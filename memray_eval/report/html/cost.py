"""Measures what a run cost: latencies of generation, and each judge's calls, tokens and money.

Only the columns needed are read, a batch at a time, so that memory does not grow with the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import ScoreTable, read_score_tables
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

PERCENTILES = (50, 90, 95, 99)
_OF_UNITS = ("candidate", "ttft_s", "duration_s")
_COUNTS = ("cached", "unpriced_calls", "input_tokens", "output_tokens", "cached_input_tokens")
_OF_SCORES = (*_COUNTS, "cost_usd", "saved_usd", "latency_s")
_Totals: TypeAlias = defaultdict[str, float]


class Latency(Frozen):
    """The PERCENTILES, in seconds, over one candidate's answers that were measured."""

    candidate: str
    of: str
    n: int
    seconds: tuple[float, ...]


class JudgeSpending(Frozen):
    """The scores of one judge: how many were remembered (`cached`), and what the others cost; of
    their input tokens, how many a provider's prompt cache held, and what it saved. The mean latency
    is over the scores that took any time."""

    judge: str
    scores: int
    cached: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cost_usd: float
    unpriced_calls: int
    saved_usd: float
    latency_s_mean: float | None


class RunCost(Frozen):
    latencies: tuple[Latency, ...]
    judges: tuple[JudgeSpending, ...]


@dataclass
class _LatencyValues:
    columns: dict[tuple[str, str], list[FloatArray]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, units: pa.RecordBatch) -> None:
        for candidate in pc.unique(units.column("candidate")).to_pylist():
            of_it = units.filter(pc.equal(units.column("candidate"), candidate))
            for column, what in (("ttft_s", "first token"), ("duration_s", "whole answer")):
                if (values := _to_floats(of_it.column(column))).size:
                    self.columns[candidate, what].append(values)

    def latencies(self) -> Iterator[Latency]:
        for (candidate, what), parts in sorted(self.columns.items()):
            values = np.concatenate(parts)
            seconds = tuple(float(value) for value in np.percentile(values, PERCENTILES))
            yield Latency(candidate=candidate, of=what, n=values.size, seconds=seconds)


def measure_cost(records: pads.Dataset) -> RunCost:
    """Sums up the time, tokens and money in the records."""
    times = _LatencyValues()
    judges: defaultdict[str, _Totals] = defaultdict(lambda: defaultdict(float))
    for table in read_score_tables(records, _OF_UNITS, ("judge", *_OF_SCORES)):
        times.add(table.units)
        by = table.column("judge")
        for judge in filter(None, pc.unique(by).to_pylist()):
            _add_scores(judges[judge], table, pc.equal(by, judge))
    most_first = sorted(judges.items(), key=lambda item: -item[1]["scores"])
    return RunCost(
        latencies=tuple(times.latencies()),
        judges=tuple(_judge_spending(judge, totals) for judge, totals in most_first),
    )


def _add_scores(totals: _Totals, table: ScoreTable, rows: pa.Array) -> None:
    """Adds the marked scores."""
    totals["scores"] += pc.sum(rows).as_py()
    for name in _OF_SCORES:
        figures = _to_floats(table.column(name).filter(rows))
        totals[name] += float(figures.sum())
        if name == "latency_s":
            totals["timed"] += int((figures > 0).sum())


def _judge_spending(judge: str, totals: _Totals) -> JudgeSpending:
    return JudgeSpending(
        judge=judge,
        scores=int(totals["scores"]),
        **{name: int(totals[name]) for name in _COUNTS},
        cost_usd=totals["cost_usd"],
        saved_usd=totals["saved_usd"],
        latency_s_mean=totals["latency_s"] / totals["timed"] if totals["timed"] else None,
    )


def _to_floats(column: pa.Array) -> FloatArray:
    """Converts a column to floats, without its nulls."""
    return np.asarray(pc.drop_null(column).cast(pa.float64()).to_numpy(zero_copy_only=False))
