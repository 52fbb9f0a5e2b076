"""Rows that were lost with an engine are asked again, those lost several times alone and in ever
smaller tables. One that kills each engine that it is asked alone is given up."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pyarrow as pa

from memray_eval.errors import GenerationError
from memray_eval.execution.prompt_stage import ANSWER, ANSWER_TYPE, ASKING

LOST_BESIDE = 2  # times that a table is lost beside others before it is asked alone: nodes are lost
PARTS = 4  # of a table that was lost alone
# Engines that die of one row alone before it is given up. Each is another start of an engine, of
# minutes; and a row that is not to blame would have to meet as many accidents while it is alone.
MOST_DEATHS = 3
# Engines that die of rows that they have alone while none has answered any, before a run is
# stopped: it is hardly the prompts. One that is given up takes five or six of them.
MOST_IN_VAIN = 12
LEASE_S = 15.0  # within which a caller that may ask alone does so: its node may be lost

logger = logging.getLogger(__name__)


# Has an engine answer rows; where the second argument says so, one that answers nothing else
# meanwhile. None if the engine was lost while it did
AskEngine: TypeAlias = Callable[[pa.Table, bool], Awaitable[pa.Table | None]]


class EngineReserved(Exception):
    """Somebody asks the engine alone, or waits to."""


class PersistentAsker:
    """Has engines answer rows that engines may die of. Only one that answers nothing else says
    something of its rows. Raises GenerationError if engines die of whatever they are asked."""

    def __init__(self, ask: AskEngine, model: str) -> None:
        self._ask, self._model = ask, model
        self._has_answered, self._n_in_vain = False, 0

    async def answer(self, table: pa.Table, n_lost: int = 0) -> pa.Table:
        """The answers to rows of ENGINE_SCHEMA that were lost with `n_lost` engines so far."""
        n_deaths = 0
        while True:
            is_alone = n_lost >= LOST_BESIDE
            if (answered := await self._ask(table, is_alone)) is not None:
                self._has_answered = True
                return answered
            n_lost += 1
            if not is_alone:
                continue
            self._note_death()
            if table.num_rows > 1:
                break
            n_deaths += 1
            if n_deaths == MOST_DEATHS:
                return _give_up(table, n_lost)
        logger.warning("%d rows were lost with %d engines: asked in parts", table.num_rows, n_lost)
        n_rows = math.ceil(table.num_rows / PARTS)
        parts = [table.slice(start, n_rows) for start in range(0, table.num_rows, n_rows)]
        return pa.concat_tables([await self.answer(part, n_lost) for part in parts])

    def _note_death(self) -> None:
        """An engine died of rows that it had alone."""
        self._n_in_vain += not self._has_answered
        if self._n_in_vain == MOST_IN_VAIN:
            raise GenerationError(
                f"engines of {self._model} died {MOST_IN_VAIN} times one after another, each while "
                "it was asked a few prompts and nothing else, and none has answered one. Their "
                "logs say why: /tmp/ray/session_latest/logs of their nodes"
            )


def _give_up(row: pa.Table, n_lost: int) -> pa.Table:
    """The row with an error as its ANSWER."""
    why = (
        f"it died {MOST_DEATHS} times while it was asked this one and nothing else ({n_lost} times "
        "in all). The other prompts go on. The engine's log says what it died of; where it ran out "
        "of memory, set a lower candidates.max_prompt_tokens or "
        "engine.engine_kwargs.gpu_memory_utilization, then resume"
    )
    logger.warning("the engine refused a prompt: %s", why)
    answer = pa.array([{"__inference_error__": why}], ANSWER_TYPE)
    return row.drop_columns([*ASKING]).append_column(ANSWER, answer)


class Turns:
    """Whose turn it is at an engine: many callers beside each other, or one alone. Who comes beside
    others is turned away while one is alone. For the methods of one actor, on one event loop."""

    def __init__(self) -> None:
        self._n_beside, self._changed = 0, asyncio.Condition()
        # Of those that are alone or wait for it, in their order
        self._tickets, self._numbers = list[int](), itertools.count()
        self._lease: asyncio.Task[None] | None = None

    @property
    def are_free(self) -> bool:
        return not (self._n_beside or self._tickets)

    async def reserve(self) -> int:
        """Returns a ticket, once nobody else is at the engine: no other is let in until `take` has
        had it, or it has lapsed for not being used within LEASE_S."""
        ticket = next(self._numbers)
        self._tickets.append(ticket)
        try:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._tickets[0] == ticket and not self._n_beside
                )
        except BaseException:
            await self._give_back(ticket)
            raise
        self._lease = asyncio.create_task(self._lapse(ticket))
        return ticket

    @asynccontextmanager
    async def take(self, ticket: int | None = None) -> AsyncIterator[None]:
        """A turn: beside others, or alone with a ticket of `reserve`. Raises EngineReserved if
        the turn is to be beside one that is alone."""
        if ticket is None:
            if self._tickets:
                raise EngineReserved
            self._n_beside += 1
        else:
            if ticket not in self._tickets:  # it has lapsed
                ticket = await self.reserve()
            assert self._lease is not None
            self._lease.cancel()
        try:
            yield
        finally:
            await self._give_back(ticket)

    async def wait_for_others(self) -> None:
        """Returns when nobody is alone or waits for it."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._tickets)

    async def _lapse(self, ticket: int) -> None:
        await asyncio.sleep(LEASE_S)
        await self._give_back(ticket)

    async def _give_back(self, ticket: int | None) -> None:
        if ticket is None:
            self._n_beside -= 1
        elif ticket in self._tickets:
            self._tickets.remove(ticket)
        async with self._changed:
            self._changed.notify_all()
