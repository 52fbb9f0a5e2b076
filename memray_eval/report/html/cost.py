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

from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

PERCENTILES = (50, 90, 95, 99)
_COLUMNS = ["candidate", "ttft_s", "duration_s", "scores"]


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

    def add(self, scores: pa.StructArray) -> None:
        latency = _to_floats(scores.field("latency_s"))
        self.scores += len(scores)
        self.cached += int(pc.sum(scores.field("cached")).as_py() or 0)
        self.input_tokens += int(_to_floats(scores.field("input_tokens")).sum())
        self.output_tokens += int(_to_floats(scores.field("output_tokens")).sum())
        self.cached_input_tokens += int(_to_floats(scores.field("cached_input_tokens")).sum())
        self.cost_usd += float(_to_floats(scores.field("cost_usd")).sum())
        self.unpriced_calls += int(_to_floats(scores.field("unpriced_calls")).sum())
        self.saved_usd += float(_to_floats(scores.field("saved_usd")).sum())
        self.latency_s += float(latency.sum())
        self.timed += int((latency > 0).sum())


@dataclass
class _LatencyValues:
    columns: dict[tuple[str, str], list[FloatArray]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, batch: pa.RecordBatch) -> None:
        for candidate in pc.unique(batch.column("candidate")).to_pylist():
            of_it = batch.filter(pc.equal(batch.column("candidate"), candidate))
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
    for batch in records.to_batches(columns=_COLUMNS):
        times.add(batch)
        scores = batch.column("scores").flatten()
        by = scores.field("judge")
        for judge in pc.unique(by).to_pylist():
            if judge:
                judges[judge].add(scores.filter(pc.equal(by, judge)))
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
