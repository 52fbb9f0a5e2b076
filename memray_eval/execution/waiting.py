"""Shows what a run waits for before its stages are up, and the stderr that a display writes to."""

import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import IO, Any, TypeAlias

import pyarrow.compute as pc
from rich.console import Console

from memray_eval.analysis.score_table import ScoreTable, score_columns
from memray_eval.config.sections import Budget
from memray_eval.errors import EvalError
from memray_eval.judges.batches.journal import BatchJournal, spent_in_batches
from memray_eval.judges.limits.budget import NO_MONEY, Spending
from memray_eval.log_once import log_once
from memray_eval.results.run_folder import RECORDS, RESPONSES, SPENDING, RunFolder
from memray_eval.text_processing.values import escape_controls

# Around what a run waits for, with its name
Waiting: TypeAlias = Callable[[str], AbstractContextManager[Any]]
no_waiting: Waiting = nullcontext  # says nothing
SOON_S = 0.7  # what is there sooner needs no line
PLAIN_EVERY_S = 60.0  # what is no terminal gets a line so often


@contextmanager
def open_stderr() -> Iterator[IO[str]]:
    """A stream of this process's stderr that outlives a redirection of file descriptor 2."""
    try:
        number = os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # a test's or a notebook's: no file
        yield sys.stderr
        return
    encoding = sys.stderr.encoding
    with open(number, "w", encoding=encoding, errors="backslashreplace") as stream:
        yield stream


def open_console(stream: IO[str]) -> Console | None:
    """A console that draws on a stream; None if it is no terminal that can be drawn on."""
    if not stream.isatty():  # whatever FORCE_COLOR makes rich believe
        return None
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal and not console.is_dumb_terminal else None


def open_cell() -> Callable[[str], None] | None:
    """A function that shows a text in this notebook's cell in place of the last one; None outside
    of a notebook. To be called in the cell's own thread."""
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    handle = ipython.display.display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def beside(
    work: Callable[[threading.Event], None], name: str, timeout_s: float | None = 5.0
) -> Iterator[None]:
    """Runs `work` in a thread while the block runs; sets its event at the end, and joins it."""
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,), daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(timeout=timeout_s)


@contextmanager
def show_waiting(what: str) -> Iterator[None]:
    """Says on stderr that `what` is waited for, if longer than SOON_S: on a terminal in a line that
    counts seconds and goes at the end, else in a line every PLAIN_EVERY_S."""

    def show(is_over: threading.Event) -> None:
        if is_over.wait(SOON_S):
            return
        text, console = f"Waiting for {escape_controls(what)}", open_console(stream)
        if console is not None:
            from rich.progress import Progress, TextColumn

            column = TextColumn("{task.description} ({task.elapsed:.0f} s)", "dim", markup=False)
            options: dict[str, Any] = {"refresh_per_second": 2.0, "redirect_stdout": False}
            with Progress(column, console=console, transient=True, **options) as line:
                line.add_task(text)
                is_over.wait()
            return
        began = time.monotonic() - SOON_S
        print(f"{text} ...", file=stream, flush=True)
        while not is_over.wait(PLAIN_EVERY_S):
            print(f"{text} ({time.monotonic() - began:.0f} s) ...", file=stream, flush=True)

    with open_stderr() as stream, beside(show, "waiting", timeout_s=None):
        yield


_BOOKED = tuple(Spending.model_fields)
_TOKENS = ("input_tokens", "output_tokens")
BOOK_S = 2.0  # how often a session without a budget writes down what its calls cost

logger = logging.getLogger(__name__)


class SpendingBook:
    """The file in the run folder that says what was spent up to now, in all sessions up to this
    one, and how many of them were killed before their last calls were written down."""

    def __init__(self, folder: str, session: int) -> None:
        self._folder, self._session, self._killed = RunFolder(folder), session, 0
        with suppress(OSError, EvalError):
            self._killed = killed_sessions(self._folder, session - 1)

    @contextmanager
    def kept(self, paid: Callable[[], Spending]) -> Iterator[None]:
        """Writes what the session `paid` on top of earlier ones while the block runs, and at its
        end, whatever ends it: a session that is killed in between counts as killed."""
        before = live_spending(self._folder, self._session - 1)

        def write(is_over: threading.Event) -> None:
            while not is_over.wait(BOOK_S):
                with suppress(Exception):  # Ray is busy, or has ended
                    self.write(before + paid(), is_open=True)

        try:
            with beside(write, "spending"):
                yield
        finally:
            # Ray has ended, or the folder is out of reach: the error that ended the session counts
            with suppress(Exception):
                self.write(before + paid())

    def write(self, spent: Spending, is_open: bool = False) -> None:
        """Never raises: calls go on where the folder cannot be written to for a while, and what
        writes records there ends the run where it stays so. An open session may have spent more by
        the time it ends."""
        sessions = {"sessions": self._session, "killed": self._killed + is_open}
        try:
            self._folder.write_json(SPENDING, spent.model_dump() | sessions)
        except (OSError, EvalError) as error:
            key = "spending/" + type(error).__name__
            text = "what the judges cost cannot be written down for a resumed run: %s"
            log_once(logger, logging.WARNING, key, text, error)


def paid_for(calls: Mapping[str, Any]) -> Spending:
    """What calls cost, by their figures, as far as providers have told."""
    return Spending(
        usd=max(0.0, calls.get("cost_usd", 0.0)),
        tokens=max(0, sum(calls.get(kind, 0) for kind in _TOKENS)),
        unpriced_calls=calls.get("unpriced_calls", 0),
    )


def killed_sessions(folder: RunFolder, sessions: int) -> int:
    """How many of the first `sessions` were killed: their last calls are in no book."""
    book = folder.read_spending()
    return int(book.get("killed", 0)) + max(0, sessions - int(book.get("sessions", 0)))


def spending_so_far(folder: RunFolder, sessions: int) -> Spending:
    """The judges' cost in the first `sessions`: every call, whatever came of it."""
    return live_spending(folder, sessions) + spent_in_batches(BatchJournal(folder).load())


def live_spending(folder: RunFolder, sessions: int) -> Spending:
    """The part paid call by call; if a session was killed, at least the scores' cost."""
    book = folder.read_spending()
    booked = Spending.model_validate({key: book[key] for key in _BOOKED if key in book})
    if not killed_sessions(folder, sessions):
        return booked
    in_batches = spent_in_batches(BatchJournal(folder).load())
    by_scores = spending_in_scores(folder).less(in_batches)
    return Spending(**{key: max(getattr(booked, key), getattr(by_scores, key)) for key in _BOOKED})


def spending_in_scores(folder: RunFolder) -> Spending:
    """The cost of the scores of finished units, and of those that wait for the rest of theirs."""
    sums = dict.fromkeys(("cost_usd", "unpriced_calls", *_TOKENS), 0)
    for kind in (RECORDS, RESPONSES):
        for table in folder.read_parts(folder.parts(kind), kind, list(score_columns(*sums))):
            scores = ScoreTable.of(table)
            for name in sums:
                sums[name] += pc.sum(scores.column(name)).as_py() or 0
    return paid_for(sums)


def resume_command(folder: RunFolder, budget: Budget, stopped: str | None) -> str:
    """The command that goes on with a run; one that its budget stopped needs a larger one."""
    command = f"memray-eval resume {shlex.quote(folder.path)}"
    if NO_MONEY not in (stopped or ""):
        return command
    limits = budget.model_dump(exclude_none=True)
    larger = (f" --set budget.{kind}={2 * limit or 1:.12g}" for kind, limit in limits.items())
    return command + "".join(larger)
