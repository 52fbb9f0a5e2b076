"""The stages of a run in this process, on one event loop: for small runs, and for a debugger."""

import asyncio
import contextlib
import gc
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from memray_eval.errors import EvalError, GenerationError, describe_error
from memray_eval.execution.batch_judging import judges_in_batches, pay_in_batches
from memray_eval.execution.executors import Executor, Phase, run_on_a_loop
from memray_eval.execution.plan import judge_pool
from memray_eval.execution.resume_state import find_waiting
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import Group, RunPlan, engine_groups
from memray_eval.execution.services import service_options, start_services
from memray_eval.execution.stages.blocks import PART, shard_tables
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.steps import RunSteps, Step
from memray_eval.execution.waiting import Waiting
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RECORDS, RunFolder
from memray_eval.types import EXISTING

Blocks: TypeAlias = AsyncIterator[pa.Table]
Stage: TypeAlias = Callable[[pa.Table], Blocks]

logger = logging.getLogger(__name__)


class LocalExecutor(Executor):
    """An Executor (executors.py) that needs no Ray. It generates and judges at the same time, and
    asks one group of candidates after another."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self._plan, self._spec, self._folder = plan, plan.spec, folder

    def start_counter(self, stages: Sequence[str]) -> RunCounter:
        return RunCounter(stages, self._spec.tolerated(self._plan.n_units))

    def run(
        self, counter: RunCounter, enter_phase: Callable[[Phase], None], waiting: Waiting
    ) -> None:
        self._counter, self._waiting = counter, waiting
        collects_at = gc.get_threshold()
        try:
            run_on_a_loop(self._run())
        except EvalError:
            raise
        except Exception as error:
            logger.exception("a stage failed")
            raise GenerationError(f"a stage stopped: {describe_error(error)}") from error
        finally:
            gc.set_threshold(*collects_at)  # a judge sets its own

    async def _run(self) -> None:
        pool = judge_pool(self._spec, 1.0, self._plan.block_rows, actors=1)
        async with closing_clients():
            services = None
            if self._spec.calls_judges:
                options = service_options(self._plan, self._folder)
                services = start_services(*options, pool.max_in_flight, self._counter.add_line)
            stops = self._spec.config.on_error == "fail"
            self._steps = RunSteps(
                plan=self._plan,
                context=StageContext(self._folder.path, self._counter, stops_on_failure=stops),
                services=services,
                judge_tasks=pool.tasks,
            )
            try:
                if judges_in_batches(self._spec, self._folder):
                    await self._run_in_batches()
                else:
                    await self._run_live()
            finally:
                if services is not None:
                    await services.finish()
                    await services.end()

    async def _run_live(self) -> None:
        """Judges each response as soon as it is there, those of earlier sessions first."""
        plan, is_stopping = self._plan, self._steps.context.is_stopping
        for group in engine_groups(self._spec.config.candidates):
            if plan.resume_state.waiting and not is_stopping():
                await self._score_and_write(self._waiting_rows(group))
            if plan.is_generated or is_stopping():
                continue
            if plan.scores_at_once:
                score = self._steps.score_answers()
                await self._write(_in_turn(map(score, shard_tables(plan.scan.shards))))
            elif group[0].backend == EXISTING:
                await self._score_and_write(self._answered_rows())
            else:
                await self._score_and_write(self._generated_rows(group))

    async def _run_in_batches(self) -> None:
        """Generates everything, has the judge calls paid in batches, then judges."""
        spec, context, before = self._spec, self._steps.context, self._plan.resume_state
        if not spec.has_responses and not self._plan.is_generated:
            for group in engine_groups(spec.config.candidates):
                if not context.is_stopping():
                    finish = self._steps.finish_ungenerated()
                    await _drain(_through(self._generated_rows(group), [finish]))
        waiting = find_waiting(self._folder, before.finished)
        self._plan = replace(self._plan, resume_state=waiting)
        self._steps = replace(self._steps, plan=self._plan)
        if self._steps.services is not None and not context.is_stopping():
            await pay_in_batches(self._steps, self._waiting)
        if context.is_stopping():
            return
        if waiting.waiting:
            await self._score_and_write(self._waiting_rows(spec.config.candidates))
        if spec.has_responses and not context.is_stopping():
            await self._score_and_write(self._answered_rows())

    def _generated_rows(self, group: Group) -> Blocks:
        """The responses of candidates that are asked together, once they are kept."""
        steps, rows = self._steps, self._plan.block_rows
        asking = steps.prompts(group, rows=rows)
        at_once = math.ceil(2 * self._spec.config.server.max_in_flight / rows)
        stages = [*steps.read_prompts(asking), replace(steps.ask_servers(asking), at_once=at_once)]
        return _through(_in_turn(shard_tables(self._plan.scan.shards)), stages)

    def _answered_rows(self) -> Blocks:
        return self._read(self._steps.read_answers(), shard_tables(self._plan.scan.shards))

    def _waiting_rows(self, group: Group) -> Blocks:
        parts = (pa.Table.from_pylist([{PART: name}]) for name in self._plan.resume_state.waiting)
        return self._read(self._steps.read_waiting(group), parts)

    def _read(self, step: Step, tables: Iterable[pa.Table]) -> Blocks:
        """The rows that a step reads, in blocks as they flow through the stages."""
        rows = self._plan.block_rows
        return _in_turn(
            read.slice(start, rows)
            for read in (step.stage(table, *step.arguments) for table in tables)
            for start in range(0, read.num_rows, rows)
        )

    async def _score_and_write(self, records: Blocks) -> None:
        await self._write(_through(records, self._steps.score()))

    async def _write(self, records: Blocks) -> None:
        await _drain(_through(records, [self._steps.write(RECORDS)]))


async def _in_turn(tables: Iterable[pa.Table]) -> Blocks:
    for table in tables:
        yield table
        await asyncio.sleep(0)  # what waits for a reply goes first


async def _drain(blocks: Blocks) -> None:
    async for _ in blocks:
        pass


def _through(blocks: Blocks, steps: Iterable[Step]) -> Blocks:
    for step in steps:
        blocks = map_blocks(blocks, _begin(step), step.at_once)
    return blocks


def _begin(step: Step) -> Stage:
    """A step's work. Objects are made in threads: judges are asked while a model loads."""

    async def map_block(table: pa.Table) -> Blocks:
        blocks = step.stage(table, *step.arguments)
        for block in [blocks] if isinstance(blocks, pa.Table) else blocks:
            yield block
            await asyncio.sleep(0)

    if not step.actors:
        return map_block
    making = asyncio.create_task(asyncio.to_thread(step.stage, *step.arguments))

    async def ask_object(table: pa.Table) -> Blocks:
        async for block in (await making)(table):
            yield block

    return ask_object


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
