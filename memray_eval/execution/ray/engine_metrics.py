"""What each vLLM engine says of itself, on the page of its node that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memray_eval.execution.exported_metrics import (
    ENGINE_KV,
    ENGINE_PREEMPTIONS,
    ENGINE_PROMPT_TOKENS,
    ENGINE_REQUESTS,
    ENGINE_SERIES,
    ENGINE_TTFT,
    Exporter,
    Series,
)


class EngineMetrics(Exporter):
    """One of vLLM's stat loggers, which hears of every step. vLLM's own for Ray imports ray.serve,
    which imports grpcio-reflection and more that nothing else here needs."""

    def __init__(
        self, model: str, replica: str, run_id: str, new_recorder: Callable[[Series, str], Any]
    ) -> None:
        super().__init__(run_id, new_recorder, ENGINE_SERIES)
        self._tags = {"model": model, "replica": replica}

    def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        """Takes vLLM's SchedulerStats and IterationStats of a step, each of which may be None."""
        tags = self._tags
        if (step := scheduler_stats) is not None:
            self._set(ENGINE_KV, step.kv_cache_usage, **tags)
            self._set(ENGINE_REQUESTS, step.num_running_reqs, **tags, state="running")
            waiting = step.num_waiting_reqs + step.num_skipped_waiting_reqs
            self._set(ENGINE_REQUESTS, waiting, **tags, state="waiting")
            prefix = step.prefix_cache_stats
            self._count(ENGINE_PROMPT_TOKENS, prefix.hits, **tags, prefix="hit")
            self._count(ENGINE_PROMPT_TOKENS, prefix.queries - prefix.hits, **tags, prefix="miss")
        if iteration_stats is not None:
            self._count(ENGINE_PREEMPTIONS, iteration_stats.num_preempted_reqs, **tags)
            self._observe(ENGINE_TTFT, iteration_stats.time_to_first_tokens_iter, **tags)

    def log(self, *_: Any) -> None: ...

    log_engine_initialized = record_sleep_state = log
