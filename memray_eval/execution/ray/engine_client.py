"""A client for each engine, which Ray Data hands rows to. It outlives the engine and its node. Rows
that were lost with an engine are asked again, those lost several times alone and in ever smaller
tables. One that kills each engine that it is asked alone is given up."""

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import ray
from ray.exceptions import RayError, RayTaskError

from memray_eval.errors import GenerationError
from memray_eval.execution.ray.placement_groups import engine_name, pipeline_of
from memray_eval.execution.ray.ray_compat import STREAMED, is_restarted_actor
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages.blocks import collect_engine_answers
from memray_eval.execution.stages.context import AnswerWriter, StageContext
from memray_eval.execution.stages.prompt import (
    ANSWER,
    ANSWER_TYPE,
    ASKING,
    SECOND,
    TOKENS,
    take_stored,
)
from memray_eval.execution.stages.session import Sessions, SessionSpec
from memray_eval.results.parts import UnitNumbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import join_records

READY_S = 1.0  # in which an engine that is up says so
LOOK_S = 5.0  # between two looks which engines are up, while a client's own is not
SURE_S = 30.0  # before a run is stopped for want of engines
LOST_BESIDE = 2  # times that a table is lost beside others before it is asked alone: nodes are lost
PARTS = 4  # of a table that was lost alone
# Engines that die of one row alone before it is given up. Each is another start of an engine, of
# minutes; and a row that is not to blame would have to meet as many accidents while it is alone.
MOST_DEATHS = 3
# Engines that die of rows that they have alone while none has answered any, before a run is
# stopped: it is hardly the prompts. One that is given up takes five or six of them.
MOST_IN_VAIN = 12
# Has an engine answer rows; where the second argument says so, one that answers nothing else
# meanwhile. None if the engine was lost while it did
AskEngine: TypeAlias = Callable[[pa.Table, bool], Awaitable[pa.Table | None]]
T = TypeVar("T")

logger = logging.getLogger(__name__)


class EngineFinder:
    """Finds the engines of a pipeline, and asks one so that its loss is noticed. `own_name` is that
    of the engine that this process is the client of, "" for none."""

    def __init__(
        self,
        model: str,
        pipeline: str,
        least: int,
        context: StageContext | None,
        own_name: str = "",
    ) -> None:
        self._model, self._pipeline, self._least = model, pipeline, least
        self._counter = RunCounter() if context is None else context.counter
        self._own_name = own_name
        self._own: Any = None
        self._up: list[Any] = []  # engines to ask, of a client while its own is not there
        self._looked_at, self._has_told = 0.0, False

    async def _call(self, engine: Any, reply: Awaitable[T]) -> T | None:
        """The reply of the engine, perhaps another client's; None if it was lost. Ray fails a call
        to an actor that it restarts within 2 s."""
        try:
            return await reply
        except GenerationError as error:  # it was restarted, in vain
            self._note_loss(engine, str(error))
        except RayTaskError:  # of the stage: it would come again
            raise
        except RayError as error:
            self._note_loss(engine, type(error).__name__)
        return None

    def _note_loss(self, engine: Any, reason: str) -> None:
        if engine in self._up:
            self._up = [other for other in self._up if other != engine]
            self._tell_loss(reason)

    def _tell_loss(self, reason: str) -> None:
        logger.warning("an engine of %s was lost: %s", self._model, reason)
        self._counter.add_line(
            f"An engine of {self._model} was lost; what it was asked is asked of another, or "
            "of itself when it is up again."
        )

    def _find_engines(self) -> None:
        """Looks which engines are up. Raises GenerationError if the own one (without one: any) has
        failed for good and too few others are up."""
        self._up, failure = self._look_around(READY_S)
        if failure is not None and len(self._up) < self._least:  # one that is busy may take longer
            self._up, failure = self._look_around(SURE_S)
        self._looked_at = time.monotonic()
        if failure is not None and len(self._up) < self._least:
            raise GenerationError(failure)
        if failure is not None and not self._has_told:
            self._has_told = True
            self._counter.add_line(
                f"The run goes on with {len(self._up)} engines: {failure.splitlines()[0]}"
            )
        if not self._up:
            time.sleep(READY_S)

    def _look_around(self, within_s: float) -> tuple[list[Any], str | None]:
        """The engines of the pipeline that say within this time that they are up, and why the own
        one (without one: any) has failed, if it has."""
        replies = dict[Any, tuple[str, Any]]()
        for name in ray.util.list_named_actors():
            if pipeline_of(name) == self._pipeline and name == engine_name(name):
                with suppress(ValueError):  # it has ended meanwhile
                    engine = ray.get_actor(name)
                    replies[engine.ready.remote()] = name, engine
        up, failure, ready = list[Any](), None, list[Any]()
        if replies:
            ready, _ = ray.wait(list(replies), num_returns=len(replies), timeout=within_s)
        for reply in ready:
            name, engine = replies[reply]
            try:
                ray.get(reply)
                up.append(engine)
                self._own = engine if name == self._own_name else self._own
            except GenerationError as error:
                if self._own_name in ("", name):
                    failure = str(getattr(error, "cause", error))
            except RayError:  # it has died since
                pass
        return up, failure


class EngineClient(EngineFinder):
    """Has one engine answer rows. While it is not up, any other of the pipeline answers, until it
    is clear that a row kills them all (PersistentAsker). An engine that fails to start for good is
    done without if `least` others are up, else GenerationError says why. A restarted one takes
    responses of the run's folder. With `sessions` it asks whole ones. With `kept_at_once` it asks
    so many rows at a time, and each answer is on the disk before another row is asked."""

    def __init__(
        self,
        model: str,
        least: int,
        context: StageContext | None,
        sessions: SessionSpec | None = None,
        kept_at_once: int = 0,
    ) -> None:
        name = str(ray.get_runtime_context().get_actor_name())
        super().__init__(model, pipeline_of(name) or "", least, context, engine_name(name))
        self._context = context
        self._look = asyncio.Lock()
        self._died_alone: Any = None  # the last engine that was lost with rows that it had alone
        self._asker = PersistentAsker(self._ask, model)
        # What an actor that Ray restarted is to make again was written before it was started
        self._stored: Mapping[str, UnitNumbers] | None = None
        if context is not None and is_restarted_actor():
            self._stored = RunFolder(context.folder).index_units()
        self._sessions = None if sessions is None else Sessions(sessions)
        self._writer = AnswerWriter(context) if kept_at_once and context is not None else None
        self._seats = asyncio.Semaphore(kept_at_once)
        self._failure: GenerationError | None = None
        try:
            if self._stored is None:
                self._wait_for_own()
        except GenerationError as error:  # Ray prints the traceback of what a constructor raises
            self._failure = error

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        if self._failure is not None:
            raise self._failure
        if self._sessions is not None:
            async for records in self._sessions.answer(table, self._answer_turn):
                yield records
            return
        if self._stored is not None and self._context is not None:
            table = await asyncio.to_thread(take_stored, table, self._context, self._stored)
        if self._writer is None:
            yield await self._asker.answer(table)
            return
        kept = (self._keep(table.slice(row, 1), self._writer) for row in range(table.num_rows))
        yield join_records(await asyncio.gather(*kept))

    async def _answer_turn(self, table: pa.Table) -> pa.Table:
        """Rows of ENGINE_SCHEMA, as a session's turn, as records with their responses."""
        assert self._context is not None
        return collect_engine_answers(await self._asker.answer(table), self._context)

    async def _keep(self, row: pa.Table, writer: AnswerWriter) -> pa.Table:
        async with self._seats:
            record = await self._answer_turn(row)
            if row.column(TOKENS).is_valid()[0].as_py():  # else the folder has it
                await writer.write(record)
            return record

    async def _ask(self, table: pa.Table, is_alone: bool) -> pa.Table | None:
        """The answers of an engine; None if it was lost while it was asked this."""
        while True:
            engine = await self._engine_to_ask_alone() if is_alone else await self._any_engine()
            heard = list[pa.Table | None]()  # at its turn None, then the answers
            await self._call(engine, _listen(engine, heard, table, is_alone))
            if heard:  # else it was lost with what others asked
                self._died_alone = engine if is_alone and heard[-1] is None else self._died_alone
                return heard[-1]

    async def _engine_to_ask_alone(self) -> Any:
        """Another than the one that was lost with such rows last, if there is one. A node may be to
        blame."""
        async with self._look:
            if time.monotonic() - self._looked_at >= LOOK_S:
                await asyncio.to_thread(self._find_engines)
        others = [engine for engine in self._up if engine != self._died_alone]
        return random.choice(others) if others else await self._any_engine()

    def _note_loss(self, engine: Any, reason: str) -> None:
        self._up = [other for other in self._up if other != engine]
        if engine == self._own:
            self._own = None
            self._counter.engines.enter(self._own_name, None, "PENDING")
            self._tell_loss(reason)

    async def _any_engine(self) -> Any:
        """This client's engine, or one that is up."""
        if self._own is not None:
            return self._own
        async with self._look:
            while self._own is None:
                if not self._up or time.monotonic() - self._looked_at >= LOOK_S:
                    await asyncio.to_thread(self._find_engines)
                if self._up:
                    break
        return self._own or random.choice(self._up)

    def _wait_for_own(self) -> None:
        """Waits until this client's engine is up, which may have to wait for its node first."""
        while self._own is None:
            try:
                engine = ray.get_actor(self._own_name)
            except ValueError:
                raise GenerationError(f"an engine of {self._model} was given back") from None
            with suppress(RayError):  # it died, or its node: it is restarted
                try:
                    ray.get(engine.ready.remote())
                    self._own = engine
                    self._counter.engines.enter(self._own_name, None, "up")
                except GenerationError:
                    self._find_engines()
                    return
            time.sleep(0.1)


async def _listen(engine: Any, heard: list[pa.Table | None], *asked: Any) -> None:
    async for reply in engine.answer.options(**STREAMED).remote(*asked):
        heard.append(await reply)


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
    """The row with an error as its ANSWER, and no SECOND."""
    why = (
        f"it died {MOST_DEATHS} times while it was asked this one and nothing else ({n_lost} times "
        "in all). The other prompts go on. The engine's log says what it died of; where it ran out "
        "of memory, set a lower candidates.max_prompt_tokens or "
        "engine.engine_kwargs.gpu_memory_utilization, then resume"
    )
    logger.warning("the engine refused a prompt: %s", why)
    row = row.drop_columns([*ASKING])
    for name, answer in ((ANSWER, {"__inference_error__": why}), (SECOND, None)):
        row = row.append_column(name, pa.array([answer], ANSWER_TYPE))
    return row


class Turns:
    """Whose turn it is at an engine: many callers beside each other, or one alone, for whom those
    that come later wait. For the methods of one actor, on one event loop."""

    def __init__(self) -> None:
        self._beside, self._changed = set[object](), asyncio.Condition()
        self._alone = list[object]()  # that are alone or wait for it, in their order

    @property
    def are_free(self) -> bool:
        return not (self._beside or self._alone)

    @asynccontextmanager
    async def take(self, is_alone: bool) -> AsyncIterator[None]:
        caller = object()
        if is_alone:
            self._alone.append(caller)
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_turn_of(caller, is_alone))
                if not is_alone:
                    self._beside.add(caller)
            yield
        finally:
            self._beside.discard(caller)
            self._alone = [other for other in self._alone if other is not caller]
            async with self._changed:
                self._changed.notify_all()

    def _is_turn_of(self, caller: object, is_alone: bool) -> bool:
        if is_alone:
            return self._alone[0] is caller and not self._beside
        return not self._alone
