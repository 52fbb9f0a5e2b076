"""What Prometheus can read of a run, through Ray's own metrics; SERIES has each name and its
meaning. The run's counter alone exports them, ENGINE_SERIES each engine. Ray puts `ray_` before a
name, `_total` behind a counter's, and makes a histogram's sum of the middles of its buckets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from ray.util.metrics import Counter, Gauge, Histogram

from memray_eval.execution.progress import RunTelemetry
from memray_eval.execution.run_counter import RunCounter
from memray_eval.judges.call_metrics import CallMetricsSnapshot, Calls

RUN = "run_id"  # a tag of all of them
WAITS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
EXPORT_S = 1.0  # of calls, at least between two exports
# Ray's class of each kind, and its method
KINDS = {"counter": (Counter, "inc"), "gauge": (Gauge, "set"), "histogram": (Histogram, "observe")}


class Series(NamedTuple):
    """One metric: its bare name, its tags beside `run_id`, what it says, a histogram's buckets."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    tags: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()


# fmt: off
SERIES = (
    Series("counter", "memray_units", ("stage", "outcome"), "Units that a stage is done with; "
           "outcome: ok or failed. At the stage write, failed at any stage."),
    Series("counter", "memray_judge_calls", ("judge", "outcome"), "Calls to a judge that ended; "
           "outcome: ok, malformed, refused, truncated, throttled, unavailable, error or "
           "abandoned; and cached: a verdict that was remembered instead."),
    Series("counter", "memray_tokens", ("judge", "kind"),
           "A judge's tokens; kind: in, out, or cached (those of in that were cached)."),
    Series("counter", "memray_cost_usd", ("judge",), "US dollars that judge calls cost."),
    Series("gauge", "memray_in_flight", ("judge",), "Calls that a judge has not answered yet."),
    Series("gauge", "memray_calls_waiting", ("judge",),
           "Calls that wait for their time slot, or for a judge that is down."),
    Series("histogram", "memray_limiter_wait_seconds", ("judge",),
           "What calls waited for their time slot, or for a judge that was down.", WAITS_S),
)
ENGINE = ("model", "replica")
ENGINE_SERIES = (
    Series("gauge", "memray_vllm_kv_cache", ENGINE,
           "The share of an engine's KV cache that is in use."),
    Series("gauge", "memray_vllm_requests", (*ENGINE, "state"),
           "Prompts at an engine; state: running, waiting."),
    Series("counter", "memray_vllm_preemptions", ENGINE,
           "Prompts that an engine put back for want of KV cache, to compute them again."),
    Series("counter", "memray_vllm_prompt_tokens", (*ENGINE, "prefix"),
           "Tokens of new prompts; prefix: hit (an engine's prefix cache had them) or miss."),
    Series("counter", "memray_vllm_output_tokens", ENGINE, "Tokens that an engine made."),
    Series("histogram", "memray_vllm_ttft_seconds", ENGINE,
           "From a prompt's arrival at an engine to its first token.", FIRST_TOKEN_S),
)
# fmt: on


class Recorders:
    """Ray's metrics of some series in one of its workers, tagged with the run."""

    def __init__(self, run_id: str, exported: Sequence[Series] = SERIES) -> None:
        self._recorders = dict[str, Callable[[float, dict[str, str]], None]]()
        self._counters = {of.name for of in exported if of.kind == "counter"}
        for of in exported:
            kind, method = KINDS[of.kind]
            more = {"boundaries": list(of.buckets)} if of.buckets else {}
            recorder = kind(of.name, of.description, tag_keys=(*of.tags, RUN), **more)
            recorder.set_default_tags({RUN: run_id})
            self._recorders[of.name] = getattr(recorder, method)

    def record(self, name: str, *amounts: float, **tags: str) -> None:
        """Tells a metric, named without `memray_`, of some amounts."""
        name = f"memray_{name}"
        for amount in amounts:
            if amount > 0 or name not in self._counters:  # Ray refuses a counter's 0
                self._recorders[name](amount, tags)


class ExportingCounter(RunCounter):
    """A RunCounter that exports what it is told."""

    def __init__(self, run_id: str, *values: Any) -> None:
        super().__init__(*values)
        self._record = Recorders(run_id).record
        self._unexported = defaultdict[str, list[CallMetricsSnapshot]](list)
        self._exported_at = 0.0

    def add(self, stage: str, rows: int, started: float, ended: float, failed: int = 0) -> None:
        super().add(stage, rows, started, ended, failed)
        self._record("units", rows - failed, stage=stage, outcome="ok")
        self._record("units", failed, stage=stage, outcome="failed")

    def record_calls(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot]) -> None:
        super().record_calls(member, snapshots)
        for judge, snapshot in snapshots.items():
            self._unexported[judge].append(snapshot)
        if time.time() - self._exported_at >= EXPORT_S:
            self._export_calls()

    def telemetry(self) -> RunTelemetry:
        self._export_calls()
        return super().telemetry()

    def _export_calls(self) -> None:
        """Exports the calls reported since it last did: recorders cost more than what they hear."""
        record, now = self._record, time.time()
        for judge, snapshots in self._unexported.items():
            calls = sum((snapshot.calls for snapshot in snapshots), Calls())
            for outcome, ended in (*calls.outcomes.items(), ("cached", calls.cached)):
                record("judge_calls", ended, judge=judge, outcome=outcome)
            record("tokens", calls.input_tokens, judge=judge, kind="in")
            record("tokens", calls.output_tokens, judge=judge, kind="out")
            record("tokens", calls.cached_input_tokens, judge=judge, kind="cached")
            record("cost_usd", calls.cost_usd, judge=judge)
            waits_s = (wait_s for snapshot in snapshots for wait_s in snapshot.waits_s)
            record("limiter_wait_seconds", *waits_s, judge=judge)
        for judge, (in_flight, waiting) in self._calls.under_way(now).items():
            record("in_flight", in_flight, judge=judge)
            record("calls_waiting", waiting, judge=judge)
        self._unexported.clear()
        self._exported_at = now


class EngineMetrics:
    """One of vLLM's stat loggers, which hears of every step. vLLM's own for Ray imports ray.serve,
    which imports grpcio-reflection and more that nothing else here needs."""

    def __init__(self, model: str, replica: str, run_id: str) -> None:
        record = Recorders(run_id, ENGINE_SERIES).record
        self._record = partial(record, model=model, replica=replica)

    def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        """Takes vLLM's SchedulerStats and IterationStats of a step, each of which may be None."""
        record = self._record
        if (step := scheduler_stats) is not None:
            record("vllm_kv_cache", step.kv_cache_usage)
            record("vllm_requests", step.num_running_reqs, state="running")
            waiting = step.num_waiting_reqs + step.num_skipped_waiting_reqs
            record("vllm_requests", waiting, state="waiting")
            prefix = step.prefix_cache_stats
            record("vllm_prompt_tokens", prefix.hits, prefix="hit")
            record("vllm_prompt_tokens", prefix.queries - prefix.hits, prefix="miss")
        if iteration_stats is not None:
            record("vllm_preemptions", iteration_stats.num_preempted_reqs)
            record("vllm_output_tokens", iteration_stats.num_generation_tokens)
            record("vllm_ttft_seconds", *iteration_stats.time_to_first_tokens_iter)

    def log(self, *_: Any) -> None: ...

    log_engine_initialized = record_sleep_state = log
