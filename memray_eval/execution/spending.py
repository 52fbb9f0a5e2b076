"""What a run's judge calls have cost over its sessions: for a resumed one's budget."""

from __future__ import annotations

import asyncio
import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow.compute as pc

from memray_eval.analysis.score_table import ScoreTable, score_columns
from memray_eval.config.sections import Budget
from memray_eval.errors import EvalError
from memray_eval.execution.waiting import beside
from memray_eval.judges.batches.journal import BatchJournal, spent_in_batches
from memray_eval.judges.limits.budget import NO_MONEY, Spending
from memray_eval.log_once import log_once
from memray_eval.results.run_folder import RECORDS, RESPONSES, SPENDING, RunFolder

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
                    self.write_now(before + paid(), is_open=True)

        try:
            with beside(write, "spending"):
                yield
        finally:
            # Ray has ended, or the folder is out of reach: the error that ended the session counts
            with suppress(Exception):
                self.write_now(before + paid())

    async def write(self, spent: Spending) -> None:
        """Never raises: calls go on where the folder cannot be written to for a while, and what
        writes records there ends the run where it stays so."""
        await asyncio.to_thread(self.write_now, spent)

    def write_now(self, spent: Spending, is_open: bool = False) -> None:
        """As `write`; an open session may have spent more by the time it ends."""
        sessions = {"sessions": self._session, "killed": self._killed + is_open}
        try:
            self._folder.write_json(SPENDING, spent.model_dump() | sessions)
        except (OSError, EvalError) as error:
            key = "spending/" + type(error).__name__
            text = "what the judges cost cannot be written down for a resumed run: %s"
            log_once(logger, logging.WARNING, key, text, error)


def paid_for(calls: Mapping[str, Any]) -> Spending:
    """What one session paid, by its counter's figures of judge calls."""
    return Spending(
        usd=calls.get("cost_usd", 0.0),
        tokens=sum(calls.get(kind, 0) for kind in _TOKENS),
        unpriced_calls=calls.get("unpriced_calls", 0),
    )


def killed_sessions(folder: RunFolder, sessions: int) -> int:
    """How many of the first `sessions` were killed: their last calls are in no book."""
    book = folder.read_spending()
    return int(book.get("killed", 0)) + max(0, sessions - int(book.get("sessions", 0)))


def spending_so_far(folder: RunFolder, sessions: int) -> Spending:
    """The judges' cost in the first `sessions` of a run: every call, also those that came to
    nothing and those of units that were not finished."""
    return live_spending(folder, sessions) + _in_batches(folder)


def _in_batches(folder: RunFolder) -> Spending:
    return spent_in_batches(BatchJournal(folder).load())


def live_spending(folder: RunFolder, sessions: int) -> Spending:
    """The part paid call by call; if a session was killed, at least the scores' cost."""
    book = folder.read_spending()
    booked = Spending.model_validate({key: book[key] for key in _BOOKED if key in book})
    if not killed_sessions(folder, sessions):
        return booked
    by_scores = spending_in_scores(folder).less(_in_batches(folder))
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


def spending_before(
    folder: RunFolder, sessions: int, budget: Budget, is_live: bool = False
) -> Spending:
    """The spending of earlier sessions that counts against the budget of this one; `is_live`:
    without batches, which their own journal tells."""
    if not sessions or not budget.is_set:
        return Spending()
    return (live_spending if is_live else spending_so_far)(folder, sessions)
