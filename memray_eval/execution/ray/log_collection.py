"""How log records of Ray's workers reach the run's counter: a handler in each worker sends them
there in batches. The driver fetches them (execution/run_log.py)."""

from __future__ import annotations

import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray

from memray_eval.execution.run_counter import StageReports
from memray_eval.execution.run_log import (
    MAX_WAITING,
    PACKAGE,
    FileHandler,
    LogEntry,
    entry_of,
    hide_held_keys,
    make_entry,
)
from memray_eval.log_once import ONCE, forget_logged

BATCH_S = 1.0  # how long a record below WARNING may wait in its worker
LAST_BATCH_S = 1.0  # how long a worker that ends waits for its last records to be sent
URGENT = ("WARNING", "ERROR", "CRITICAL")
LOOK_S = 2.0  # between two looks at what an engine printed
MAX_KINDS = 1_000  # of warnings of libraries that a worker sends
LIBRARIES = ("ray", "vllm")  # whose warnings are the run's too
# A warning in the output of a process that vLLM started: (EngineCore_DP0 pid=7) WARNING 11-23 ...
_ENGINE_WARNING = re.compile(
    r"\((?P<process>[\w.]+) pid=(?P<pid>\d+)\) (?P<level>WARNING|ERROR|CRITICAL) \S+ \S+ "
    r"\[(?P<place>[^\]]+)\] (?P<message>.*)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

logger = logging.getLogger(__name__)


class WorkerHandler(logging.Handler):
    """Queues a worker's records, and sends them to the run's counter from a thread of its own:
    warnings and errors at once, the others within BATCH_S. Ray may warn while it holds what
    sending needs, so nothing is sent where it is logged."""

    def __init__(self, counter: StageReports) -> None:
        super().__init__()
        self.counter = counter
        self._actor = (ray.get_runtime_context().get_actor_id() or "")[:12]
        self._queue: SimpleQueue[LogEntry | None] = SimpleQueue()  # None: stopped
        self._kinds: set[str] = set()  # of libraries' warnings; other workers may have sent them
        self._sender = threading.Thread(
            target=self._send_until_stopped, daemon=True, name="worker-log"
        )
        self._sender.start()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a log costs nobody a score
            self._queue.put(entry_of(record, self._actor))

    def emit_of_library(self, record: logging.LogRecord) -> None:
        """Sends what a library warns of, each kind of message once a run."""
        kind = _kind_of(record.name, str(record.msg))
        if kind not in self._kinds and len(self._kinds) < MAX_KINDS:
            self._kinds.add(kind)
            with suppress(Exception):
                self._queue.put(entry_of(record, self._actor) | {ONCE: kind})

    def stop(self) -> None:
        """Has what is queued sent, and nothing after it."""
        self._queue.put(None)

    def close(self) -> None:  # when this process ends
        self.stop()
        self._sender.join(timeout=LAST_BATCH_S)
        super().close()

    def _send_until_stopped(self) -> None:
        batch: list[LogEntry | None] = []
        while None not in batch:
            batch = self._next_batch()
            if entries := [entry for entry in batch if entry is not None]:
                with suppress(Exception):  # a run that is over, Ray going down: a log ends nothing
                    self.counter.record_logs(entries)

    def _next_batch(self) -> list[LogEntry | None]:
        """Waits for an entry, and for those that follow it, up to an urgent one."""
        batch, until = [self._queue.get()], time.monotonic() + BATCH_S
        with suppress(Empty):
            while (last := batch[-1]) and last["level"] not in URGENT and len(batch) < MAX_WAITING:
                batch.append(self._queue.get(timeout=max(0.0, until - time.monotonic())))
        return batch


_handler: WorkerHandler | None = None  # of the run that this process works for


def send_logs_to(counter: StageReports, level: int) -> None:
    """Has this process, a worker, send its log records to a run's counter from now on, and the
    warnings of Ray and vLLM. The driver, which writes them itself, is left as it is."""
    global _handler
    package = logging.getLogger(PACKAGE)
    if any(isinstance(handler, FileHandler) for handler in package.handlers):
        return
    package.setLevel(level)
    if _handler is None:
        _catch_library_warnings()
    elif _handler.counter == counter:
        return
    else:  # of another run: Ray keeps idle workers
        package.removeHandler(_handler)
        _handler.stop()
    _handler = WorkerHandler(counter)
    package.addHandler(_handler)
    forget_logged()


def _catch_library_warnings() -> None:
    """Hands each warning of a library to the worker's handler as it is made. A handler on their
    loggers would be lost: Ray Data sets its own up anew with each task, Ray Data LLM's and vLLM's
    are set up when they are imported, and none hands anything on to the root."""
    make = logging.getLogRecordFactory()

    def make_and_send(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        with suppress(Exception):  # records may be made of anything: logging.makeLogRecord
            is_library = record.name.partition(".")[0] in LIBRARIES
            if _handler is not None and is_library and record.levelno >= logging.WARNING:
                _handler.emit_of_library(record)
        return record

    logging.setLogRecordFactory(make_and_send)


def follow_engine_output(counter: StageReports, path: str) -> None:
    """Sends the warnings of the processes that vLLM starts to the run's counter, as they come:
    they have no logger here, and print to this worker's output, the file at `path`."""

    def follow() -> None:
        rest = ""
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as output:
            while True:
                lines, newline, rest = (rest + output.read()).rpartition("\n")
                if entries := engine_warnings(lines + newline):
                    with suppress(Exception):  # the run is over
                        counter.record_logs(entries)
                time.sleep(LOOK_S)

    if Path(path).is_file():
        threading.Thread(target=follow, daemon=True, name="engine-output").start()


def engine_warnings(output: str) -> list[LogEntry]:
    """What processes of vLLM warn of in a piece of a worker's output."""
    entries = []
    for line in output.splitlines():
        if parts := _ENGINE_WARNING.match(_COLOUR.sub("", line)):
            text = f"{parts['process']} (pid {parts['pid']}), {parts['place']}: {parts['message']}"
            entry = make_entry(
                logging.getLevelNamesMapping()[parts["level"]], "vllm", hide_held_keys(text)
            )
            entries.append(entry | {ONCE: _kind_of("vllm", parts["message"])})
    return entries


def _kind_of(logger: str, message: str) -> str:
    """Messages that differ in their figures alone are of one kind."""
    return f"{logger}/{re.sub(r'[0-9.]+', '0', message)}"
