"""What a run's workers report on Ray. A handler in each worker sends its log records to the run's
counter, an actor, in batches; the driver fetches them (execution/run_log.py). Counts go there too,
and it exports what Prometheus can read of the run, through Ray's own metrics.

SERIES has each metric's name and its meaning. The run's counter alone exports them, ENGINE_SERIES
each engine. Ray puts `ray_` before a name, `_total` behind a counter's, and makes a histogram's sum
of the middles of its buckets."""

import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import ray
from ray.util.metrics import Counter, Gauge, Histogram

from memray_eval.execution.run_counter import RunCounter, RunTelemetry, Snapshot
from memray_eval.execution.run_log import PACKAGE, LogEntry, RunLog, entry_of, make_entry
from memray_eval.judges.call_metrics import CallMetricsSnapshot, Calls
from memray_eval.log_once import ONCE, forget_logged
from memray_eval.provider_http.parameters import ParameterStanding, ParameterStep

SEND_S = 0.2  # how long a record may wait in its worker
LOOK_S = 2.0  # between two looks at what an engine printed
MOST_KINDS = 1_000  # of warnings of libraries that a worker sends
LIBRARIES = ("ray", "vllm")  # whose warnings are the run's too
# A warning in the output of a process that vLLM started: (EngineCore_DP0 pid=7) WARNING 11-23 ...
_ENGINE_WARNING = re.compile(
    r"\((?P<process>[\w.]+) pid=(?P<pid>\d+)\) (?P<level>WARNING|ERROR|CRITICAL) \S+ \S+ "
    r"\[(?P<place>[^\]]+)\] (?P<message>.*)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class WorkerHandler(logging.Handler):
    """Sends a worker's records to the run's counter, and what libraries warn of, each kind of
    message once a run: always from another thread, as Ray may warn while it holds what sending
    needs."""

    def __init__(self, counter: RunCounter) -> None:
        super().__init__()
        self.counter = counter
        self._actor = (ray.get_runtime_context().get_actor_id() or "")[:12]
        self._batch: list[LogEntry] = []
        self._timer: threading.Timer | None = None
        self._sent: set[str] = set()  # kinds; other workers may have sent them too

    def emit(self, record: logging.LogRecord) -> None:  # under the handler's lock
        with suppress(Exception):  # a log costs nobody a score
            once = {}
            if record.name.partition(".")[0] in LIBRARIES:
                once = {ONCE: _kind_of(record.name, str(record.msg))}
                if once[ONCE] in self._sent or len(self._sent) >= MOST_KINDS:
                    return
                self._sent.add(once[ONCE])
            self._batch.append(entry_of(record, self._actor) | once)
            if self._timer is None:
                self._timer = threading.Timer(SEND_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        with self.lock or threading.RLock():
            self._timer, batch, self._batch = None, self._batch, []
        if batch:
            with suppress(Exception):  # a run that is over, Ray going down: a log ends nothing
                self.counter.logs.add(batch)


_handler: WorkerHandler | None = None


def send_logs_to(counter: RunCounter, level: int) -> None:
    """Has this process, a worker, send its log records to a run's counter from now on, and the
    warnings of Ray and vLLM. The driver, which writes them itself, is left as it is."""
    global _handler
    package = logging.getLogger(PACKAGE)
    if any(isinstance(handler, RunLog) for handler in package.handlers):
        return
    package.setLevel(level)
    if _handler is None:
        _catch_library_warnings()
    elif _handler.counter == counter:
        return
    else:  # of another run: Ray keeps idle workers
        package.removeHandler(_handler)
    _handler = WorkerHandler(counter)
    package.addHandler(_handler)
    forget_logged()


def _catch_library_warnings() -> None:
    """Hands each warning of a library to `_handler` as it is made. A handler on their loggers would
    be lost: Ray Data sets its own up anew with each task, Ray Data LLM's and vLLM's are set up when
    they are imported, and none hands anything on to the root."""
    make = logging.getLogRecordFactory()

    def make_and_send(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        with suppress(Exception):  # records may be made of anything: logging.makeLogRecord
            if record.levelno >= logging.WARNING and record.name.partition(".")[0] in LIBRARIES:
                assert _handler is not None
                _handler.handle(record)
        return record

    logging.setLogRecordFactory(make_and_send)


def follow_engine_output(counter: RunCounter, path: str) -> None:
    """Sends the warnings of the processes that vLLM starts to the run's counter, as they come:
    they have no logger here, and print to this worker's output, the file at `path`."""

    def follow() -> None:
        rest = ""
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as output:
            while True:
                lines, newline, rest = (rest + output.read()).rpartition("\n")
                if entries := engine_warnings(lines + newline):
                    with suppress(Exception):  # the run is over
                        counter.logs.add(entries)
                time.sleep(LOOK_S)

    if Path(path).is_file():
        threading.Thread(target=follow, daemon=True, name="engine-output").start()


def engine_warnings(output: str) -> list[LogEntry]:
    """The warnings of vLLM's processes in a piece of a worker's output."""
    entries = []
    for line in output.splitlines():
        if match := _ENGINE_WARNING.match(_COLOUR.sub("", line)):
            text = f"{match['process']} (pid {match['pid']}), {match['place']}: {match['message']}"
            entry = make_entry(logging.getLevelNamesMapping()[match["level"]], "vllm", text)
            entries.append(entry | {ONCE: _kind_of("vllm", match["message"])})
    return entries


def _kind_of(logger: str, message: str) -> str:
    """Messages that differ in their figures alone are of one kind."""
    return f"{logger}/{re.sub(r'[0-9.]+', '0', message)}"


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

    def __init__(self, run_id: str = "", *values: Any) -> None:
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


ANSWER_S = 10.0
# The methods of a counter that return nothing
REPORTS = (
    "count", "add", "add_unasked", "record_failure", "record_failed_unit",
    "add_line", "stop",
)  # fmt: skip
# Its parts, and theirs
PARTS = {"logs": ["add"], "engines": ["enter", "end"], "parameters": ["restore"]}


@ray.remote(num_cpus=0, max_restarts=-1)
class ProgressCounter:
    """The run's counter; also the process that exports the run's metrics."""

    def __init__(self, *values: Any) -> None:
        self._counter = ExportingCounter(*values)

    def call(self, method: str, *values: Any, **named: Any) -> Any:
        return attrgetter(method)(self._counter)(*values, **named)


@dataclass(frozen=True)
class RemoteCounter:
    """A RunCounter in an actor, as other processes have it. A worker that receives it sends what it
    logs, from `log_level` on (the driver's), to the counter."""

    actor: Any
    log_level: int = field(default_factory=logging.getLogger("memray_eval").getEffectiveLevel)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        send_logs_to(cast(RunCounter, self), self.log_level)

    def __getattr__(self, name: str) -> Any:
        """Reports to the counter, without waiting until it has heard."""
        if name in PARTS:
            return SimpleNamespace(
                **{method: partial(self.send, f"{name}.{method}") for method in PARTS[name]}
            )
        if name not in REPORTS:
            raise AttributeError(name)
        return partial(self.send, name)

    def send(self, method: str, *values: Any, **named: Any) -> Any:
        # A block is done: its process may end before the time of a record that waits is up
        if method == "add" and _handler is not None:
            _handler.flush()
        return self.actor.call.remote(method, *values, **named)

    def stopping(self) -> str | None:
        return cast("str | None", ray.get(self.send("stopping")))

    async def is_stopping(self) -> bool:
        return await self.send("stopping") is not None

    async def negotiate(self, step: ParameterStep) -> ParameterStanding:
        with suppress(ray.exceptions.RayError):  # it is being restarted: a call learns by itself
            return cast(ParameterStanding, await self.send("parameters.take", step))
        return ParameterStanding(dict(step.changes))

    async def report_calls(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot]) -> None:
        with suppress(ray.exceptions.RayError):  # figures about the run must not end it
            await self.send("record_calls", member, snapshots)

    def snapshot(self, lines_since: int, within_s: float) -> Snapshot | None:
        with suppress(ray.exceptions.RayError):
            return cast(Snapshot, ray.get(self.send("snapshot", lines_since), timeout=within_s))
        return None

    def telemetry(self) -> RunTelemetry:
        return cast(RunTelemetry, ray.get(self.send("telemetry")))

    def take_logs(self) -> list[LogEntry]:
        return cast(list[LogEntry], ray.get(self.send("logs.take"), timeout=ANSWER_S))
