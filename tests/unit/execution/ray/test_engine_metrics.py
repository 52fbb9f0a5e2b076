"""What an engine's steps become for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from memray_eval.execution.exported_metrics import ENGINE_SERIES, RUN, EngineMetrics, Series

OURS = {"model": "org/m", "replica": "0a1b"}


class Recorder:
    def __init__(self, series: Series, run_id: str, seen: list[tuple[Any, ...]]) -> None:
        self._series, self._seen, self.run_id = series, seen, run_id

    def _note(self, amount: float, tags: Mapping[str, str]) -> None:
        assert {*tags, RUN} == {*self._series.tags, RUN}
        assert OURS.items() <= tags.items()
        own = tuple(value for tag, value in tags.items() if tag not in OURS)
        self._seen.append((self._series.name.removeprefix("memray_vllm_"), *own, amount))

    def inc(self, amount: float, tags: Mapping[str, str]) -> None:
        assert self._series.kind == "counter"
        assert amount > 0
        self._note(amount, tags)

    def set(self, amount: float, tags: Mapping[str, str]) -> None:
        assert self._series.kind == "gauge"
        self._note(amount, tags)

    def observe(self, amount: float, tags: Mapping[str, str]) -> None:
        assert self._series.kind == "histogram"
        self._note(amount, tags)


def scheduled(queries: int = 0, hits: int = 0) -> SimpleNamespace:
    """A step of vLLM's scheduler (its SchedulerStats)."""
    return SimpleNamespace(
        kv_cache_usage=0.25,
        num_running_reqs=3,
        num_waiting_reqs=2,
        num_skipped_waiting_reqs=1,
        prefix_cache_stats=SimpleNamespace(queries=queries, hits=hits),
    )


def iteration(preempted: int = 0, ttfts_s: tuple[float, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(num_preempted_reqs=preempted, time_to_first_tokens_iter=[*ttfts_s])


GAUGES = [("kv_cache", 0.25), ("requests", "running", 3), ("requests", "waiting", 3)]


@pytest.mark.parametrize(
    ("step", "tokens", "expected"),
    [
        (None, None, []),
        (scheduled(), None, GAUGES),
        (
            scheduled(queries=100, hits=60),
            iteration(preempted=2, ttfts_s=(0.5, 0.7)),
            [
                *GAUGES,
                ("prompt_tokens", "hit", 60),
                ("prompt_tokens", "miss", 40),
                ("preemptions", 2),
                ("ttft_seconds", 0.5),
                ("ttft_seconds", 0.7),
            ],
        ),
        (scheduled(queries=8), iteration(), [*GAUGES, ("prompt_tokens", "miss", 8)]),
    ],
)
def test_a_step_is_recorded(step: Any, tokens: Any, expected: list[tuple[Any, ...]]) -> None:
    seen = list[tuple[Any, ...]]()
    recorders = list[Recorder]()

    def new_recorder(series: Series, run_id: str) -> Recorder:
        recorders.append(Recorder(series, run_id, seen))
        return recorders[-1]

    metrics = EngineMetrics("org/m", "0a1b", "run-1", new_recorder)
    metrics.record(step, tokens, mm_cache_stats=None, engine_idx=0)
    assert seen == expected
    assert {recorder.run_id for recorder in recorders} == {"run-1"}
    assert len(recorders) == len(ENGINE_SERIES)
