"""What a run's judge calls have cost over all of its sessions: for the budget of one that is
resumed."""

from __future__ import annotations

import asyncio
import logging

import pyarrow.compute as pc

from memray_eval.analysis.score_table import ScoreTable, score_columns
from memray_eval.config.sections import Budget
from memray_eval.errors import EvalError
from memray_eval.judges.batches.journal import BatchJournal, spent_in_batches
from memray_eval.judges.limits.budget import Spending
from memray_eval.log_once import log_once
from memray_eval.results.run_folder import RECORDS, RESPONSES, SPENDING, RunFolder

_BOOKED = tuple(Spending.model_fields)
_TOKENS = ("input_tokens", "output_tokens")

logger = logging.getLogger(__name__)


class SpendingBook:
    """The file in the run folder that says what was spent up to now, in all sessions up to this
    one."""

    def __init__(self, folder: str, session: int) -> None:
        self._folder, self._session = RunFolder(folder), session

    async def write(self, spent: Spending) -> None:
        """Never raises: calls go on where the folder cannot be written to for a while, and what
        writes records there ends the run where it stays so."""
        await asyncio.to_thread(self.write_now, spent)

    def write_now(self, spent: Spending) -> None:
        try:
            spending = spent.model_dump() | {"sessions": self._session}
            self._folder.write_json(SPENDING, spending)
        except (OSError, EvalError) as error:
            key = "spending/" + type(error).__name__
            text = "what the judges cost cannot be written down for a resumed run: %s"
            log_once(logger, logging.WARNING, key, text, error)


def spending_so_far(folder: RunFolder, sessions: int) -> Spending:
    """The judges' cost in the first `sessions` of a run: every call, also those that came to
    nothing and those of units that were not finished."""
    in_batches = spent_in_batches(BatchJournal(folder).load())
    return _live_spending(folder, sessions, in_batches) + in_batches


def _live_spending(folder: RunFolder, sessions: int, in_batches: Spending) -> Spending:
    """The part of it that was paid call by call. If no book was kept (as of a session without a
    budget that was killed), at least what the scores cost."""
    book = folder.read_spending()
    booked = Spending.model_validate({key: book[key] for key in _BOOKED if key in book})
    if book.get("sessions", 0) >= sessions:
        return booked
    by_scores = spending_in_scores(folder).less(in_batches)
    return Spending(**{key: max(getattr(booked, key), getattr(by_scores, key)) for key in _BOOKED})


def spending_in_scores(folder: RunFolder) -> Spending:
    """The cost of the scores of finished units, and of those that wait for the rest of theirs."""
    usd, tokens, unpriced = 0.0, 0, 0
    columns = score_columns("cost_usd", "unpriced_calls", *_TOKENS)
    for kind in (RECORDS, RESPONSES):
        for table in folder.read_parts(folder.parts(kind), kind, list(columns)):
            scores = ScoreTable.of(table)
            usd += pc.sum(scores.column("cost_usd")).as_py() or 0.0
            tokens += sum(pc.sum(scores.column(name)).as_py() or 0 for name in _TOKENS)
            unpriced += pc.sum(scores.column("unpriced_calls")).as_py() or 0
    return Spending(usd=usd, tokens=tokens, unpriced_calls=unpriced)


def spending_before(folder: RunFolder, sessions: int, budget: Budget) -> Spending:
    """The spending of earlier sessions that counts against the budget of this one."""
    return spending_so_far(folder, sessions) if sessions and budget.is_set else Spending()


def live_spending_before(folder: RunFolder, sessions: int, budget: Budget) -> Spending:
    """The same without batches, which their own journal tells."""
    if not sessions or not budget.is_set:
        return Spending()
    return _live_spending(folder, sessions, spent_in_batches(BatchJournal(folder).load()))
