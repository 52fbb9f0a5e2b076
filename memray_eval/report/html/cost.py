"""Measures what a run cost: latencies of generation, and each judge's calls, tokens and money.

Only the columns needed are read, a batch at a time, so that memory does not grow with the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import ScoreTable, read_score_tables
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

PERCENTILES = (50, 90, 95, 99)
_OF_UNITS = ("candidate", "ttft_s", "duration_s")
_OF_SCORES = (
    *("cached", "cost_usd", "unpriced_calls", "saved_usd", "latency_s"),
    *("input_tokens", "output_tokens", "cached_input_tokens"),
)


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


class Spending(Frozen):
    latencies: tuple[Latency, ...]
    judges: tuple[JudgeSpending, ...]


@dataclass
class _JudgeTotals:
    scores: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    saved_usd: float = 0.0
    latency_s: float = 0.0
    timed: int = 0

    def add(self, table: ScoreTable, rows: pa.Array) -> None:
        """Adds the marked scores."""
        figures = {name: _to_floats(table.column(name).filter(rows)) for name in _OF_SCORES}
        latency = figures["latency_s"]
        self.scores += int(pc.sum(rows).as_py())
        self.cached += int(figures["cached"].sum())
        self.input_tokens += int(figures["input_tokens"].sum())
        self.output_tokens += int(figures["output_tokens"].sum())
        self.cached_input_tokens += int(figures["cached_input_tokens"].sum())
        self.cost_usd += float(figures["cost_usd"].sum())
        self.unpriced_calls += int(figures["unpriced_calls"].sum())
        self.saved_usd += float(figures["saved_usd"].sum())
        self.latency_s += float(latency.sum())
        self.timed += int((latency > 0).sum())


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


def measure_cost(records: pads.Dataset) -> Spending:
    """Sums up the time, tokens and money in the records."""
    times, judges = _LatencyValues(), defaultdict[str, _JudgeTotals](_JudgeTotals)
    for table in read_score_tables(records, _OF_UNITS, ("judge", *_OF_SCORES)):
        times.add(table.units)
        by = table.column("judge")
        for judge in filter(None, pc.unique(by).to_pylist()):
            judges[judge].add(table, pc.fill_null(pc.equal(by, judge), False))
    return Spending(
        latencies=tuple(times.latencies()),
        judges=tuple(
            JudgeSpending(
                judge=name,
                scores=judge.scores,
                cached=judge.cached,
                input_tokens=judge.input_tokens,
                output_tokens=judge.output_tokens,
                cached_input_tokens=judge.cached_input_tokens,
                cost_usd=judge.cost_usd,
                unpriced_calls=judge.unpriced_calls,
                saved_usd=judge.saved_usd,
                latency_s_mean=judge.latency_s / judge.timed if judge.timed else None,
            )
            for name, judge in sorted(judges.items(), key=lambda item: -item[1].scores)
        ),
    )


def _to_floats(column: pa.Array) -> FloatArray:
    """Converts a column to floats, without its nulls."""
    return np.asarray(pc.drop_null(column).cast(pa.float64()).to_numpy(zero_copy_only=False))
