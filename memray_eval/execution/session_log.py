"""The log of one session of a run: what this process logs, and what its workers sent to the run's
counter."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from memray_eval.errors import describe_error
from memray_eval.execution.run_counter import RunReports
from memray_eval.execution.run_log import PACKAGE, FileHandler, RunLogFile, terminal_handlers
from memray_eval.log_once import forget_logged
from memray_eval.results.run_folder import RunFolder

FETCH_S, ANSWER_S = 2.0, 10.0

logger = logging.getLogger(__name__)


class RunLog:
    """The log of one session of a run, as the driver keeps it: its own records and, once it follows
    the run's counter, those of the workers."""

    def __init__(self, file: RunLogFile) -> None:
        self._file, self._is_over = file, threading.Event()
        self._counter: RunReports | None = None
        self._thread = threading.Thread(target=self._fetch_until_over, daemon=True, name="run-log")

    def follow(self, counter: RunReports) -> None:
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
        assert self._counter is not None
        entries, n_dropped = self._counter.take_logs()
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
