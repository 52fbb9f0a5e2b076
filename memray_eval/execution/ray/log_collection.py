"""How log records of Ray's workers reach the run's counter: a handler in each worker sends them
there in batches. The driver fetches them (execution/run_log.py)."""

from __future__ import annotations

import copy
import logging
import math
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from memray_eval.execution.run_counter import RunCounter
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
WARNING_S = 0.2  # how long a library's warning does
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
    """Sends a worker's records to the run's counter: warnings at once, others within BATCH_S."""

    urgent_from: float = logging.WARNING

    def __init__(self, counter: RunCounter, batch_s: float = BATCH_S) -> None:
        super().__init__()
        self.counter = counter
        self._batch_s = batch_s
        self._actor = (ray.get_runtime_context().get_actor_id() or "")[:12]
        self._batch: list[LogEntry] = []
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:  # under the handler's lock
        with suppress(Exception):  # a log costs nobody a score
            self._batch.append(entry_of(record, self._actor))
            if record.levelno >= self.urgent_from or len(self._batch) >= MAX_WAITING:
                self._send()
            elif self._timer is None:
                self._timer = threading.Timer(self._batch_s, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        with self.lock or threading.RLock():
            self._send()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._batch = self._batch, []
        if batch:
            with suppress(Exception):  # a run that is over, Ray going down: a log ends nothing
                self.counter.logs.add(batch)


class LibraryHandler(WorkerHandler):
    """Sends what a library warns of to the run's counter, each kind of message once a run. Always
    from a thread of its own: Ray may warn while it holds what sending needs."""

    urgent_from = math.inf

    def __init__(self, counter: RunCounter) -> None:
        super().__init__(counter, WARNING_S)
        self._sent: set[str] = set()  # kinds; other workers may have sent them too

    def emit(self, record: logging.LogRecord) -> None:
        key = _kind_of(record.name, str(record.msg))
        if key in self._sent or len(self._sent) >= MOST_KINDS:
            return
        self._sent.add(key)
        marked = copy.copy(record)
        setattr(marked, ONCE, key)
        super().emit(marked)


_library_handler: LibraryHandler | None = None


def send_logs_to(counter: RunCounter, level: int) -> None:
    """Has this process, a worker, send its log records to a run's counter from now on, and the
    warnings of Ray and vLLM. The driver, which writes them itself, is left as it is."""
    global _library_handler
    package = logging.getLogger(PACKAGE)
    if any(isinstance(handler, FileHandler) for handler in package.handlers):
        return
    package.setLevel(level)
    handlers = [handler for handler in package.handlers if isinstance(handler, WorkerHandler)]
    if any(handler.counter == counter for handler in handlers):
        return
    for handler in handlers:  # of another run: Ray keeps idle workers
        package.removeHandler(handler)
    package.addHandler(WorkerHandler(counter))
    forget_logged()
    if _library_handler is None:
        _catch_library_warnings()
    _library_handler = LibraryHandler(counter)


def send_warnings() -> None:
    """Sends the warnings of libraries that wait in this process."""
    if _library_handler is not None:
        _library_handler.flush()


def _catch_library_warnings() -> None:
    """Hands each warning of a library to `_library_handler` as it is made. A handler on their
    loggers would be lost: Ray Data sets its own up anew with each task, Ray Data LLM's and vLLM's
    are set up when they are imported, and none hands anything on to the root."""
    make = logging.getLogRecordFactory()

    def make_and_send(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        with suppress(Exception):  # records may be made of anything: logging.makeLogRecord
            if record.levelno >= logging.WARNING and record.name.partition(".")[0] in LIBRARIES:
                assert _library_handler is not None
                _library_handler.handle(record)
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
