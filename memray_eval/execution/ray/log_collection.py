"""How log records of Ray's workers reach the run's counter: a handler in each worker sends them
there in batches. The driver fetches them (execution/run_log.py)."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ray

from memray_eval.execution.progress import STAGES, RunTelemetry, Snapshot
from memray_eval.execution.ray.exported_metrics import ExportingCounter
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_log import (
    PACKAGE,
    LogEntry,
    RunLog,
    entry_of,
    hide_held_keys,
    make_entry,
)
from memray_eval.judges.call_metrics import CallMetricsSnapshot
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

logger = logging.getLogger(__name__)


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
            entry = make_entry(
                logging.getLevelNamesMapping()[match["level"]], "vllm", hide_held_keys(text)
            )
            entries.append(entry | {ONCE: _kind_of("vllm", match["message"])})
    return entries


def _kind_of(logger: str, message: str) -> str:
    """Messages that differ in their figures alone are of one kind."""
    return f"{logger}/{re.sub(r'[0-9.]+', '0', message)}"


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

    def __init__(
        self, run_id: str = "", stages: Sequence[str] = STAGES, most_caught: float = math.inf
    ) -> None:
        self._counter = ExportingCounter(run_id, stages, most_caught)

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

    def take_logs(self) -> tuple[list[LogEntry], int]:
        entries, n_dropped = ray.get(self.send("logs.take"), timeout=ANSWER_S)
        return entries, n_dropped
