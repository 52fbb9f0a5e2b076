"""The stages of a run in this process, on one event loop: for small runs, and for a debugger."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from memray_eval.errors import EvalError, GenerationError, describe_error
from memray_eval.execution.batch_judging import judges_in_batches, pay_in_batches
from memray_eval.execution.executors import Phase
from memray_eval.execution.plan import judge_pool
from memray_eval.execution.resume_state import find_waiting
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import Group, RunPlan
from memray_eval.execution.services import JudgeServices, service_options, start_services
from memray_eval.execution.stages.affect import EnrichSamples, affect_arguments
from memray_eval.execution.stages.blocks import (
    PART,
    AskServers,
    EmbedRecords,
    JudgeRecords,
    finish_ungenerated,
    judging_arguments,
    read_answers,
    read_waiting,
    score_answers,
    shard_tables,
    ungenerated_options,
)
from memray_eval.execution.stages.context import BLOCKS_AT_ONCE, StageContext, WriteParts
from memray_eval.execution.stages.prompt import RecallSamples, prompt_spec, prompts_to_ask
from memray_eval.execution.stages.session import AskSessions, session_spec, sessions_to_ask
from memray_eval.execution.waiting import Waiting
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RECORDS, RunFolder
from memray_eval.types import EXISTING

Blocks: TypeAlias = AsyncIterator[pa.Table]
Stage: TypeAlias = Callable[[pa.Table], Blocks]

logger = logging.getLogger(__name__)


class LocalExecutor:
    """An Executor (executors.py) that needs no Ray. It generates and judges at the same time, and
    asks one group of candidates after another."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self._plan, self._spec, self._folder = plan, plan.spec, folder
        self._pool = judge_pool(plan.spec, 1.0, plan.block_rows, actors=1)
        self._services: JudgeServices | None = None

    def watch(self, on_death: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def translate(self, error: BaseException) -> BaseException:
        return error

    def start_counter(self, stages: Sequence[str]) -> RunCounter:
        return RunCounter(stages, self._spec.tolerated(self._plan.n_units))

    def run(
        self, counter: RunCounter, enter_phase: Callable[[Phase], None], waiting: Waiting
    ) -> None:
        self._counter, self._waiting = counter, waiting
        self._context = StageContext(
            self._folder.path, counter, stops_on_failure=self._spec.config.on_error == "fail"
        )
        collects_at = gc.get_threshold()
        try:
            _run_on_a_loop(self._run())
        except EvalError:
            raise
        except Exception as error:
            logger.exception("a stage failed")
            raise GenerationError(f"a stage stopped: {describe_error(error)}") from error
        finally:
            gc.set_threshold(*collects_at)  # a judge sets its own

    async def _run(self) -> None:
        async with closing_clients():
            if self._spec.calls_judges:
                self._services = start_services(
                    *service_options(self._plan, self._folder),
                    self._pool.max_in_flight,
                    self._counter.add_line,
                )
            try:
                if judges_in_batches(self._spec, self._folder):
                    await self._run_in_batches()
                else:
                    await self._run_live()
            finally:
                if self._services is not None:
                    await self._services.end()

    async def _run_live(self) -> None:
        """Judges each response as soon as it is there, those of earlier sessions first."""
        for group in self._spec.groups:
            if self._plan.resume_state.waiting and not self._context.is_stopping():
                await self._write(self._score(self._read_waiting(group)))
            if not self._plan.is_generated and not self._context.is_stopping():
                await self._run_group(group)

    async def _run_in_batches(self) -> None:
        """Generates everything, has the judge calls paid in batches, then judges."""
        spec, context, before = self._spec, self._context, self._plan.resume_state
        failed = ungenerated_options(spec, context)
        if not spec.has_responses and not self._plan.is_generated:
            for group in spec.groups:
                if not context.is_stopping():
                    async for table in self._generate(group):
                        finish_ungenerated(table, **failed)
        waiting = find_waiting(self._folder, before.finished)
        self._plan = replace(self._plan, resume_state=waiting)
        if self._services is not None and not context.is_stopping():
            await pay_in_batches(
                self._plan, self._folder, self._services, self._counter, self._waiting
            )
        if context.is_stopping():
            return
        context.counter.add_carried(len(before.generated))
        if waiting.waiting:
            await self._write(
                self._score(self._read_waiting(spec.config.candidates, is_earlier=False))
            )
        if spec.has_responses and not context.is_stopping():
            await self._write(self._score(self._read_answers()))

    async def _run_group(self, group: Group) -> None:
        """All stages for candidates that are asked together."""
        if self._plan.scores_at_once:
            score = score_answers(self._plan, self._context)
            shards = shard_tables(self._plan.scan.shards)
            return await self._write(self._in_turn(map(score, shards)))
        if group[0].backend == EXISTING:
            return await self._write(self._score(self._read_answers()))
        return await self._write(self._score(self._generate(group)))

    def _generate(self, group: Group) -> Blocks:
        """The responses of candidates that are asked together, once they are kept."""
        server, rows = self._spec.config.server, self._plan.block_rows
        at_once = math.ceil(2 * server.max_in_flight / rows)
        if self._plan.has_sessions:
            asking = prompt_spec(self._plan, group, self._context, rows=rows)
            spec = session_spec(self._plan, asking, self._services)
            return map_blocks(self._read_prompts(group), AskSessions(spec, server), at_once)
        return map_blocks(self._read_prompts(group), AskServers(server, self._context), at_once)

    async def _write(self, records: Blocks) -> None:
        write = WriteParts(self._folder.path, RECORDS, self._context.counter)
        async for _ in map_blocks(records, write, BLOCKS_AT_ONCE):
            pass

    def _read_answers(self) -> Blocks:
        """Records whose responses exist already."""
        spec, state = self._spec, self._plan.resume_state
        return self._split(
            read_answers(shard, spec.read.reader, state, self._context)
            for shard in shard_tables(self._plan.scan.shards)
        )

    def _read_waiting(self, group: Group, is_earlier: bool = True) -> Blocks:
        """Responses that nobody has judged; `is_earlier`: earlier sessions generated them."""
        state, is_given = self._plan.resume_state, group[0].backend == EXISTING
        names = None if is_given else [candidate.name for candidate in group]
        return self._split(
            read_waiting(part, state, names, self._context, is_earlier)
            for part in (pa.Table.from_pylist([{PART: name}]) for name in state.waiting)
        )

    def _read_prompts(self, group: Group) -> Blocks:
        """Rows that servers can be asked with, or sessions."""
        asking = prompt_spec(self._plan, group, self._context, rows=self._plan.block_rows)
        read = sessions_to_ask if self._plan.has_sessions else prompts_to_ask

        async def ask(table: pa.Table) -> Blocks:
            for block in read(table, asking):
                yield block
                await asyncio.sleep(0)

        samples = self._in_turn(shard_tables(self._plan.scan.shards))
        if self._spec.adds_affect:
            enrich = EnrichSamples(*affect_arguments(self._spec, asking, self._services))
            samples = map_blocks(samples, enrich)
        if any(candidate.memory for candidate in group):
            samples = map_blocks(samples, RecallSamples(asking, self._spec.config.server.code))
        return map_blocks(samples, ask)

    def _score(self, records: Blocks) -> Blocks:
        spec = self._spec
        at_judge, at_embed = spec.by_stage()
        if at_judge:
            judge = JudgeRecords(*judging_arguments(spec, self._services, self._context))
            records = map_blocks(records, judge, self._pool.tasks)
        if at_embed:
            # Its model takes seconds to load: meanwhile judges are asked
            loading = asyncio.create_task(
                asyncio.to_thread(
                    EmbedRecords,
                    at_embed,
                    spec.metric_options,
                    spec.config.embedding,
                    self._context,
                )
            )

            async def embed(table: pa.Table) -> Blocks:
                async for block in (await loading)(table):
                    yield block

            records = map_blocks(records, embed)
        return records

    def _split(self, tables: Iterable[pa.Table]) -> Blocks:
        """The rows in blocks as they flow through the stages."""
        rows = self._plan.block_rows
        return self._in_turn(
            table.slice(start, rows) for table in tables for start in range(0, table.num_rows, rows)
        )

    async def _in_turn(self, tables: Iterable[pa.Table]) -> Blocks:
        for table in tables:
            yield table
            await asyncio.sleep(0)  # what waits for a reply goes first


def _run_on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs it here or, if this thread has a loop already (a notebook), in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="local-run") as thread:
        thread.submit(asyncio.run, work).result()


async def map_blocks(blocks: Blocks, stage: Stage, at_once: int = 1) -> Blocks:
    """Yields the stage's results as they come, `at_once` blocks at a time; the stages before are up
    to as many blocks ahead. Raises the first error of any stage."""
    results: asyncio.Queue[pa.Table | BaseException | None] = asyncio.Queue(at_once)
    seats = asyncio.Semaphore(at_once)

    async def work(block: pa.Table) -> None:
        try:
            async for table in stage(block):
                await results.put(table)
        finally:
            seats.release()

    async def feed() -> None:
        try:
            async with asyncio.TaskGroup() as group, aclosing(blocks) as source:  # type: ignore[type-var]
                async for block in source:
                    await seats.acquire()
                    group.create_task(work(block))
        except* Exception as errors:
            await results.put(errors.exceptions[0])
        else:
            await results.put(None)

    feeder = asyncio.create_task(feed())
    try:
        while (table := await results.get()) is not None:
            if isinstance(table, BaseException):
                raise table
            yield table
    finally:
        feeder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeder
