"""Asks sessions turn by turn, many side by side; a record for each turn goes out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from memray_eval.config.sections import JudgingConfig, ServerConfig
from memray_eval.errors import JudgeError
from memray_eval.execution.services import AskingStage, JudgeServices
from memray_eval.execution.stages.blocks import AskServers
from memray_eval.execution.stages.context import AnswerWriter
from memray_eval.execution.stages.generate import new_record
from memray_eval.execution.stages.prompt import (
    PromptSpec,
    RequestBuilder,
    context_size,
    in_blocks,
    prepare_row,
    read_block,
    request_builder,
)
from memray_eval.execution.stages.render import Played, play_user
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.router import JudgeAssignment
from memray_eval.ports import Judge
from memray_eval.results.parts import UnitNumbers
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.results.schema import (
    RECORD_SCHEMA,
    SAMPLE_SCHEMA,
    sample_from_row,
    samples_to_table,
    unanswered,
)
from memray_eval.types import (
    SESSION_END,
    USER_COST,
    USER_MODEL,
    Candidate,
    Record,
    Sample,
    Turn,
    not_asked,
    turn_sample,
    unit_ids,
)
from memray_eval.types.json_text import candidate_from_json

USER = "simulated user"
TRIES = 2  # of a simulated user that breaks its role
SESSION_SCHEMA = pa.schema(
    [*SAMPLE_SCHEMA, ("candidate_config", pa.string()), ("epoch", pa.int64())]
)
# Rows that ask (SERVER_SCHEMA or ENGINE_SCHEMA) to records with their responses
Ask: TypeAlias = Callable[[pa.Table], Awaitable[pa.Table]]
Emit: TypeAlias = Callable[[pa.Table], None]


def sessions_to_ask(table: pa.Table, asking: PromptSpec) -> Iterator[pa.Table]:
    """Shards to rows of SESSION_SCHEMA: samples of candidates and epochs with turns left to ask."""
    open_ = (
        (sample, candidate, epoch)
        for sample in read_block(table, asking)
        for candidate, epoch in product(asking.candidates, range(1, asking.epochs + 1))
        if not all(map(asking.resume_state.has, unit_ids(sample, candidate, epoch)))
    )
    for rows in in_blocks(open_, asking.rows, lambda row: context_size(row[0])):
        configs = pa.array([candidate.model_dump_json() for _, candidate, _ in rows], pa.string())
        epochs = pa.array([epoch for *_, epoch in rows], pa.int64())
        samples = samples_to_table([sample for sample, *_ in rows])
        yield samples.append_column("candidate_config", configs).append_column("epoch", epochs)


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """Settings of prompts, the players of simulated users (`choices`), and their services."""

    asking: PromptSpec
    choices: Mapping[str, JudgeAssignment]
    judging: JudgingConfig
    services: JudgeServices | None


class _Session(NamedTuple):
    """A session of one candidate and epoch, and its turns' records in the run's folder."""

    sample: Sample
    candidate: Candidate
    epoch: int
    stored: Mapping[str, Record]


class Sessions(AskingStage):
    """Asks the sessions of a block, through a function that answers rows.

    An answer is in the run's folder before the next turn is asked: a run that was killed asks none
    again, and goes on after it. A turn without an answer ends its session."""

    def __init__(self, spec: SessionSpec) -> None:
        super().__init__(spec.services, spec.asking.context)
        self._spec, self._asking = spec, spec.asking
        self._folder = RunFolder(spec.asking.context.folder)
        self._writer = AnswerWriter(self._context)

    async def answer(self, table: pa.Table, ask: Ask) -> AsyncIterator[pa.Table]:
        """Rows of SESSION_SCHEMA to those of RECORD_SCHEMA, as they are answered and kept."""
        if await self._check_for_the_end():
            yield RECORD_SCHEMA.empty_table()
            return
        sessions = await asyncio.to_thread(self._open, table)
        answered: asyncio.Queue[pa.Table] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._ask_session(session, ask, answered.put_nowait))
            for session in sessions
        ]
        work = asyncio.gather(*tasks)
        work.add_done_callback(lambda _: answered.put_nowait(RECORD_SCHEMA.empty_table()))
        held = RECORD_SCHEMA.empty_table()
        try:
            while not work.done() or not answered.empty():
                held = pa.concat_tables([held, await answered.get()])
                if held.num_rows >= self._asking.rows:
                    yield held
                    held = RECORD_SCHEMA.empty_table()
            await work
        finally:
            for task in tasks:
                task.cancel()
            await self._reporter.report()
        yield held

    def _open(self, table: pa.Table) -> list[_Session]:
        """The sessions of a block, with the records that the run's folder has of them."""
        rows = [
            (sample_from_row(row), candidate_from_json(row["candidate_config"]), row["epoch"])
            for row in table.to_pylist()
        ]
        wanted = [unit for row in rows for unit in unit_ids(*row)]
        stored = dict[str, Record]()
        for index, kind in self._indexes:
            held = self._folder.find_units(wanted, index, kind)
            records, _ = self._context.from_table(held, "generate")
            stored |= {
                record.unit_id: record
                for record in records
                if record.response is not None and record.response.error is None
            }
        return [_Session(*row, stored) for row in rows]

    @cached_property
    def _indexes(self) -> list[tuple[Mapping[str, UnitNumbers], Kind]]:
        # This actor's work was stored before it was started, or is its own
        kinds: tuple[Kind, ...] = (RESPONSES, RECORDS)
        return [(self._folder.index_units(kind), kind) for kind in kinds]

    @cached_property
    def _request(self) -> tuple[RequestBuilder, pa.Schema]:
        return request_builder(self._asking)

    @cached_property
    def _user(self) -> Sequence[Judge]:
        return build_judges(self._spec.choices, self._spec.judging, self._connect())[USER]

    def _connect(self) -> Services:
        """As a stage's; calls are counted apart from those of judges."""
        services = super()._connect()
        watch = services.watch
        return replace(services, watch=lambda name: watch(f"{name} ({USER})"))

    async def _ask_session(self, session: _Session, ask: Ask, emit: Emit) -> None:
        sample, talk = session.sample, list[Turn]()
        for number, unit in enumerate(unit_ids(sample, session.candidate, session.epoch), 1):
            if await self._check_for_the_end():
                return
            record = session.stored.get(unit)
            if record is not None:
                if not self._asking.resume_state.has(unit):  # an actor was lost with it
                    emit(self._context.to_table([record], "generate"))
            else:
                if (played := await self._next_message(sample, talk)) is None:
                    return
                turn = _turn(sample, number, played, talk)
                if played.fault:
                    self._fail([turn], session, f"the simulated user {played.fault}", emit)
                    self._context.counter.add_unasked(sample.n_turns - number)
                    return
                record = await self._ask_turn(turn, session, ask, emit)
                if record.sample.metadata.get(SESSION_END):
                    self._context.counter.add_unasked(sample.n_turns - number)
            if (why := _no_answer(record)) is not None:
                later = range(number + 1, sample.n_turns + 1) if sample.turns else ()
                turns = [_turn(sample, n, Played(sample.turns[n - 1]), talk) for n in later]
                self._fail(turns, session, not_asked(number, why), emit)
                return
            assert record.response is not None
            if record.sample.metadata.get(SESSION_END):
                return
            talk += [
                Turn(role="user", content=record.sample.query),
                Turn(role="assistant", content=record.response.text),
            ]

    async def _next_message(self, sample: Sample, talk: Sequence[Turn]) -> Played | None:
        """The user's next message; None if the run ends before that is known."""
        if not talk:
            return Played(message=sample.query)
        if sample.turns:
            return Played(message=sample.turns[len(talk) // 2])
        try:
            return await self._unless_stopped(play_user(sample, talk, self._user))
        except JudgeError as error:
            return Played(fault=f"did not answer: {error}")

    async def _ask_turn(self, turn: Sample, session: _Session, ask: Ask, emit: Emit) -> Record:
        """The record of a turn with its response, which is kept."""
        record = new_record(turn, session.candidate, session.epoch)
        suite = self._asking.suite.load()
        rows = await asyncio.to_thread(
            prepare_row, record, turn, suite, *self._request, self._context
        )
        answered = await ask(rows)
        (record,) = self._context.from_table(answered, "generate")[0] or [
            unanswered(record, str(answered.column("error")[0].as_py()))
        ]
        is_last = turn.metadata.get(SESSION_END) is not None or not session.sample.user
        if not is_last and _no_answer(record) is not None:
            why = (record.response and record.response.no_answer) or "failed"
            metadata = {**record.sample.metadata, SESSION_END: why}
            ended = record.sample.model_copy(update={"metadata": metadata})
            record = record.model_copy(update={"sample": ended})
        kept = self._context.to_table([record], "generate")
        await self._writer.write(kept)
        emit(kept)
        return record

    def _fail(self, turns: Sequence[Sample], session: _Session, why: str, emit: Emit) -> None:
        failed = [
            unanswered(new_record(turn, session.candidate, session.epoch), why) for turn in turns
        ]
        now = time.time()
        for stage, n_failed in (("read", 0), ("generate", len(failed))):
            self._context.counter.add(stage, len(failed), now, now, n_failed)
        self._context.note_failures(failed)
        emit(self._context.to_table(failed, "generate"))


def _turn(sample: Sample, number: int, played: Played, talk: Sequence[Turn]) -> Sample:
    """The n-th turn of a session as a sample; a simulated one with its writer, its cost, and the
    reason if it is the last."""
    noted: dict[str, Any] = {}
    if played.model:
        noted |= {USER_MODEL: played.model, USER_COST: played.noted()}
    if sample.user is not None and (played.fault or played.is_done or number == sample.n_turns):
        noted[SESSION_END] = "done" if played.is_done else "max_turns"
        noted |= {SESSION_END: "failed"} if played.fault else {}
    return turn_sample(sample, number, played.message or "(none)", talk, **noted)


def _no_answer(record: Record) -> str | None:
    """Why a turn has no answer that the next one could follow; None if it has."""
    return "nothing was generated" if record.response is None else record.response.lack


class AskSessions:
    """Asks sessions of candidates behind servers, and of users' functions."""

    def __init__(self, spec: SessionSpec, config: ServerConfig) -> None:
        self._sessions = Sessions(spec)
        self._servers = AskServers(config, spec.asking.context, keeps=False)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        async for answered in self._sessions.answer(table, self._servers.answer):
            yield answered
