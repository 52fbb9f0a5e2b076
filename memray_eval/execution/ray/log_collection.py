"""How log records of Ray's workers reach the run's log: a handler in each worker sends them to the
run's counter in batches, and the driver fetches them from there."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray

from memray_eval.errors import describe_error
from memray_eval.execution.run_log import (
    PACKAGE,
    FileHandler,
    LogEntry,
    RunLogFile,
    entry_of,
    hide_held_keys,
    make_entry,
    terminal_handlers,
)
from memray_eval.log_once import ONCE, forget_logged
from memray_eval.results.run_folder import RunFolder

BATCH_S = 1.0  # how long a record below WARNING may wait in its worker
MAX_WAITING = 5_000  # entries in the counter that no driver has fetched
FETCH_S, ANSWER_S = 2.0, 10.0
LIBRARIES = ("ray.llm", "vllm")  # whose loggers hand nothing on to the root
# A warning in the output of a process that vLLM started: (EngineCore_DP0 pid=7) WARNING 11-23 ...
_ENGINE_WARNING = re.compile(
    r"\((?P<process>[\w.]+) pid=(?P<pid>\d+)\) (?P<level>WARNING|ERROR|CRITICAL) \S+ \S+ "
    r"\[(?P<place>[^\]]+)\] (?P<message>.*)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

logger = logging.getLogger(__name__)


class WorkerHandler(logging.Handler):
    """Sends a worker's records to the run's counter: warnings and errors at once, the others
    within BATCH_S."""

    def __init__(self, counter: Any) -> None:
        super().__init__()
        self.counter = counter
        self._actor = (ray.get_runtime_context().get_actor_id() or "")[:12]
        self._batch: list[LogEntry] = []
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:  # under the handler's lock
        with suppress(Exception):  # a log costs nobody a score
            self._batch.append(entry_of(record, self._actor))
            if record.levelno >= logging.WARNING or len(self._batch) >= MAX_WAITING:
                self._send()
            elif self._timer is None:
                self._timer = threading.Timer(BATCH_S, self.flush)
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
                self.counter.record_logs.remote(batch)


class LibraryHandler(WorkerHandler):
    """Sends what a library warns of to the run's counter, each kind of message once a run."""

    def __init__(self, counter: Any) -> None:
        super().__init__(counter)
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        setattr(record, ONCE, _kind_of(record.name, str(record.msg)))
        super().emit(record)


def send_logs_to(counter: Any, level: int) -> None:
    """Has this process, a worker, send its log records to a run's counter from now on, and the
    warnings of vLLM and of Ray's stage around it. The driver, which writes them itself, is left as
    it is."""
    package = logging.getLogger(PACKAGE)
    if any(isinstance(handler, FileHandler) for handler in package.handlers):
        return
    package.setLevel(level)
    if _replace_handler(package, WorkerHandler, counter):
        forget_logged()
    for name in LIBRARIES:
        _replace_handler(logging.getLogger(name), LibraryHandler, counter)


def _replace_handler(logger: logging.Logger, kind: type[WorkerHandler], counter: Any) -> bool:
    """Whether the logger had no handler for this counter. One of another run goes: Ray keeps idle
    workers."""
    mine = [handler for handler in logger.handlers if isinstance(handler, WorkerHandler)]
    if any(handler.counter == counter for handler in mine):
        return False
    for handler in mine:
        logger.removeHandler(handler)
    logger.addHandler(kind(counter))
    return True


def follow_engine_output(counter: Any, path: str) -> None:
    """Sends the warnings of the processes that vLLM starts to the run's counter, as they come:
    they have no logger here, and print to this worker's output, the file at `path`."""

    def follow() -> None:
        rest = ""
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as output:
            while True:
                lines, newline, rest = (rest + output.read()).rpartition("\n")
                if entries := engine_warnings(lines + newline):
                    with suppress(Exception):  # the run is over
                        counter.record_logs.remote(entries)
                time.sleep(FETCH_S)

    if Path(path).is_file():
        threading.Thread(target=follow, daemon=True, name="engine-output").start()


def engine_warnings(output: str) -> list[LogEntry]:
    """What processes of vLLM warn of in a piece of a worker's output."""
    entries = []
    for line in output.splitlines():
        if found := _ENGINE_WARNING.match(_COLOUR.sub("", line)):
            text = f"{found['process']} (pid {found['pid']}), {found['place']}: {found['message']}"
            entry = make_entry(
                logging.getLevelNamesMapping()[found["level"]], "vllm", hide_held_keys(text)
            )
            entries.append(entry | {ONCE: _kind_of("vllm", found["message"])})
    return entries


def _kind_of(logger: str, message: str) -> str:
    """Messages that differ in their figures alone are of one kind."""
    return f"{logger}/{re.sub(r'[0-9.]+', '0', message)}"


class CollectedLogs:
    """The entries that workers have sent and the driver has not fetched; part of the run's counter.
    An entry that is to be logged once is kept once a run."""

    def __init__(self) -> None:
        self._waiting: list[LogEntry] = []
        self._once: set[str] = set()
        self._n_dropped = 0

    def add(self, entries: list[LogEntry]) -> None:
        for entry in entries:
            key = entry.get(ONCE)
            if key is not None and key in self._once:
                continue
            if key is not None:
                self._once.add(key)
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(entry)
            else:
                self._n_dropped += 1

    def take(self) -> tuple[list[LogEntry], int]:
        """The entries that wait, and how many there was no room for; both are forgotten."""
        taken = self._waiting, self._n_dropped
        self._waiting, self._n_dropped = [], 0
        return taken


class RunLog:
    """The log of one session of a run, as the driver keeps it: its own records and, once it follows
    the run's counter, those of the workers."""

    def __init__(self, file: RunLogFile) -> None:
        self._file, self._counter, self._is_over = file, None, threading.Event()
        self._thread = threading.Thread(target=self._fetch_until_over, daemon=True, name="run-log")

    def follow(self, counter: Any) -> None:
        self._counter = counter
        self._thread.start()

    def end(self) -> None:
        """Fetches what is left."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=ANSWER_S)

    def close(self) -> None:
        """Writes what was logged where the run folder lies, without Ray: for a process that ends at
        once."""
        self._file.close()

    def _fetch_until_over(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(FETCH_S)
            with suppress(Exception):  # the counter is out of reach: it is asked again, or is gone
                self._fetch()

    def _fetch(self) -> None:
        counter: Any = self._counter
        entries, n_dropped = ray.get(counter.take_logs.remote(), timeout=ANSWER_S)
        self._file.write(entries)
        for handler in terminal_handlers():
            for entry in entries:
                handler.show(entry)
        if n_dropped:
            logger.warning("%d log records of workers were dropped: there were too many", n_dropped)


@contextmanager
def keep_run_log(
    folder: RunFolder, session: int = 1, held: Mapping[str, str] | None = None
) -> Iterator[RunLog]:
    """Writes the log of a run's session to its folder while the block runs: how it begins and ends,
    and what the package logs in between, here and in the workers. `held` are key variables whose
    values must not be in it."""
    package = logging.getLogger(PACKAGE)
    level_before = package.level
    if not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    file = RunLogFile(folder, held)
    handler, log = FileHandler(file), RunLog(file)
    package.addHandler(handler)
    forget_logged()
    try:
        logger.info("session %d of run %s begins", session, folder.run_id)
        yield log
    except BaseException as error:
        log.end()  # what workers logged stands before the end
        what = describe_error(error)
        logger.error("session %d of run %s ended early: %s", session, folder.run_id, what)
        raise
    else:
        # The run is finished: a Ctrl-C from here on only leaves out what was not fetched yet.
        with suppress(KeyboardInterrupt):
            log.end()
        logger.info("session %d of run %s has ended", session, folder.run_id)
    finally:
        package.removeHandler(handler)
        package.setLevel(level_before)
        with suppress(KeyboardInterrupt):
            file.close()
