"""The log of a run: `log.jsonl` in its folder, one JSON object a line, and stderr with `-v`. An
entry holds `time` (ISO 8601, UTC), `level`, `logger`, `message` and `process` (HOST:PID); `actor`,
the start of Ray's id, and `exception`, a traceback, if there is one. Keys are replaced by [key]."""

import json
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TypeAlias, cast

from memray_eval.config.environment import API_KEY_VARIABLES
from memray_eval.config.secrets import held_keys, hide_keys
from memray_eval.errors import EvalError, describe_error, reason_of
from memray_eval.execution.waiting import beside
from memray_eval.log_once import ONCE, forget_logged
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.leases import ScratchFolder
from memray_eval.text_processing.values import escape_controls

PACKAGE = "memray_eval"
# What a person was shown while the run went on (a judge is down, a limit was learnt), as entries.
EVENTS = "memray_eval.run"
LOG = "log.jsonl"
ENTRY = "entry"  # the field of a record made of an entry
NAMES = (LOG, "log.1.jsonl", "log.2.jsonl")
MAX_BYTES = 20 << 20  # of a file
MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS = 2_000, 20_000
UPLOAD_S = 60.0
MAX_WAITING = 5_000  # entries in the counter that no driver has fetched
FETCH_S, ANSWER_S = 2.0, 10.0  # between two fetches, and for the last

LogEntry: TypeAlias = dict[str, str]

logger = logging.getLogger(__name__)

_tracebacks = logging.Formatter()
# What pydantic quotes of a value that does not fit: part of a sample or a reply.
_INPUT = re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL)


def make_entry(level: int, logger: str, message: str) -> LogEntry:
    """The entry of what this process has to say now."""
    return entry_of(logging.LogRecord(logger, level, "", 0, message, None, None))


def entry_of(record: logging.LogRecord, actor: str | None = None) -> LogEntry:
    """A log record as data, which other processes can read; of one that a worker sent, its own."""
    if (sent := getattr(record, ENTRY, None)) is not None:
        return cast(LogEntry, sent)
    moment = datetime.fromtimestamp(record.created, UTC)
    entry = {
        "time": moment.isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "logger": record.name,
        "message": _shorten(hide_held_keys(record.getMessage()), MAX_MESSAGE_CHARS),
        "process": f"{socket.gethostname()}:{os.getpid()}",
    }
    if actor:
        entry["actor"] = actor
    if record.exc_info:
        traceback = hide_held_keys(_tracebacks.formatException(record.exc_info))
        traceback = _INPUT.sub("input_value=...", traceback)
        entry["exception"] = _shorten(traceback, MAX_TRACEBACK_CHARS)
    if (key := getattr(record, ONCE, None)) is not None:
        entry[ONCE] = key
    return entry


def hide_held_keys(text: str) -> str:
    """The text without this process's keys and without texts of a key's shape."""
    return hide_keys(text, held_keys(os.environ, set(API_KEY_VARIABLES)))


def _shorten(text: str, most: int) -> str:
    """The text in valid Unicode, its middle left out if it is too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class RunLog(RotatingFileHandler):
    """A session's log: log.jsonl of the run folder, and the full ones before it. It holds the
    driver's records and, once followed, the entries of workers. Locally they are in the file at
    once; elsewhere they are uploaded every UPLOAD_S and at the end. `lost` is why entries of a
    local file were not written; an upload is tried again."""

    def __init__(
        self,
        folder: RunFolder,
        held: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
        upload_s: float = UPLOAD_S,
    ) -> None:
        self._folder, self._held = folder, dict(held or {})
        self._upload_s, self._uploaded_s = upload_s, time.monotonic()
        self._fetching = ExitStack()
        self._copies: ScratchFolder | None = None
        self.lost: str | None = None
        path = Path(os.devnull)  # there is no room for a log
        if folder.local_path is not None:
            path = folder.local_path / LOG
        else:
            with suppress(OSError):
                self._copies = ScratchFolder("log")
                path = self._copies.path / LOG
                for name in NAMES:  # what earlier sessions logged is kept
                    with suppress(EvalError):
                        path.with_name(name).write_bytes(folder.read(name))
        n_full = len(NAMES) - 1
        super().__init__(path, maxBytes=max_bytes, backupCount=n_full, encoding="utf-8", delay=True)

    def write(self, entries: Iterable[LogEntry]) -> None:
        """Writes what workers logged, and shows it where the log is shown."""
        for entry in entries:
            for handler in (self, *terminal_handlers()):
                handler.handle(logging.makeLogRecord({ENTRY: entry}))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a log costs nobody a score
            entry = entry_of(record).items()
            shown = {key: hide_keys(of, self._held) for key, of in entry if key != ONCE}
            super().emit(logging.makeLogRecord({"msg": json.dumps(shown, ensure_ascii=False)}))
            if time.monotonic() - self._uploaded_s > self._upload_s:
                self._upload(LOG)

    def handleError(self, record: logging.LogRecord) -> None:
        if self._copies is None and isinstance(error := sys.exception(), OSError):
            self.lost = self.lost or f"the run's log cannot be written: {reason_of(error)}"

    def rotation_filename(self, default_name: str) -> str:
        return str(Path(default_name).with_name(NAMES[int(default_name.rpartition(".")[2])]))

    def doRollover(self) -> None:
        super().doRollover()
        self._upload(*NAMES[1:])

    def _upload(self, *names: str) -> None:
        if self._copies is not None:
            self._uploaded_s = time.monotonic()
            for name in names:
                with suppress(OSError, EvalError):  # there may be none yet
                    self._folder.write(name, (self._copies.path / name).read_bytes())

    def follow(self, take_logs: Callable[[], list[LogEntry]], stop: Callable[[str], None]) -> None:
        """Fetches what workers log until the end; stops a run whose log cannot be written."""

        def fetch(is_over: threading.Event) -> None:
            is_last = False
            while not is_last:
                is_last = is_over.wait(FETCH_S)
                with suppress(Exception):  # the counter is out of reach: it is asked again
                    self.write(take_logs())
                    if self.lost is not None:
                        stop(self.lost)

        self._fetching.enter_context(beside(fetch, "run-log", ANSWER_S))

    def end(self) -> None:
        """Fetches what is left."""
        self._fetching.close()

    def close(self) -> None:
        """Writes the log to the run folder without Ray: also for a process that ends at once."""
        self._upload(LOG)
        with suppress(OSError):  # the disk is full
            super().close()
        if self._copies is not None:
            self._copies.close()


class TerminalHandler(logging.Handler):
    """Shows records on stderr that are severe enough, and that the progress display shows not."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            entry, levels = entry_of(record), logging.getLevelNamesMapping()
            if entry["logger"] != EVENTS and levels.get(entry["level"], logging.INFO) >= self.level:
                head = f"{entry['time'][11:23]} {entry['level']:<7} {entry['logger']}: "
                traceback = f"\n{entry['exception']}" if "exception" in entry else ""
                text = escape_controls(f"{head}{entry['message']}{traceback}")
                print(text, file=sys.stderr, flush=True)


def show_log(verbosity: int) -> None:
    """Shows the package's log on stderr from now on: INFO with 1, DEBUG with more."""
    logger = logging.getLogger(PACKAGE)
    for handler in terminal_handlers():
        logger.removeHandler(handler)
    if verbosity:
        level = logging.INFO if verbosity == 1 else logging.DEBUG
        handler = TerminalHandler(level)
        logger.addHandler(handler)
        logger.setLevel(level)


def terminal_handlers() -> list[TerminalHandler]:
    handlers = logging.getLogger(PACKAGE).handlers
    return [handler for handler in handlers if isinstance(handler, TerminalHandler)]


class CollectedLogs:
    """The entries of workers that the driver has not fetched; an entry with a key is kept once."""

    def __init__(self) -> None:
        self._waiting: list[LogEntry] = []
        self._once: set[str] = set()

    def add(self, entries: list[LogEntry]) -> None:
        for entry in entries:
            key = entry.get(ONCE)
            if key not in self._once:
                self._once |= {key} if key is not None else set()
                self._waiting.append(entry)
        if len(self._waiting) > MAX_WAITING:
            text = "log records of workers were dropped: there were too many"
            self._waiting[MAX_WAITING:] = [make_entry(logging.WARNING, __name__, text)]

    def take(self) -> list[LogEntry]:
        """The entries that wait, which are forgotten."""
        taken, self._waiting = self._waiting, []
        return taken


@contextmanager
def keep_run_log(
    folder: RunFolder, session: int = 1, held: Mapping[str, str] | None = None
) -> Iterator[RunLog]:
    """Writes a session's log to the run's folder, without the values of `held`, key variables."""
    package = logging.getLogger(PACKAGE)
    level_before = package.level
    if not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    log = RunLog(folder, held)
    package.addHandler(log)
    forget_logged()
    try:
        logger.info("session %d of run %s begins", session, folder.run_id)
        yield log
    except BaseException as error:
        log.end()  # what workers logged comes before the end
        what = describe_error(error)
        logger.error("session %d of run %s ended early: %s", session, folder.run_id, what)
        raise
    else:
        # The run is finished: a Ctrl-C from here on only leaves out what was not fetched yet.
        with suppress(KeyboardInterrupt):
            log.end()
        logger.info("session %d of run %s has ended", session, folder.run_id)
    finally:
        package.removeHandler(log)
        package.setLevel(level_before)
        with suppress(KeyboardInterrupt):
            log.close()
