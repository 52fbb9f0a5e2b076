"""Pays a run's judge calls in batches before judging; a rehearsal of the stage finds them."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pydantic import BaseModel

from memray_eval.errors import BudgetSpent, EvalError, JudgeError, JudgeStalled
from memray_eval.execution.executors import run_on_a_loop
from memray_eval.execution.run_counter import STAGES, RunCounter
from memray_eval.execution.run_plan import RunSpec
from memray_eval.execution.stages.blocks import PART, judging_options, shard_tables
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.judge import judge_record
from memray_eval.execution.stages.steps import RunSteps
from memray_eval.execution.waiting import Waiting
from memray_eval.judges.batches.journal import BatchJournal
from memray_eval.judges.batches.runner import BatchQueue, BatchRunner, RehearsedJudge
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.judge_factory import build_batch_queues
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.metric import RULES, JudgedMetric, Metric
from memray_eval.metrics import pick
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RunFolder

RECORDS_AT_ONCE = 32  # whose prompts are in memory together


def judges_in_batches(spec: RunSpec, folder: RunFolder) -> bool:
    """True if judging waits for batches: the job says so, or an earlier session has sent some."""
    if not spec.calls_judges:
        return False
    return spec.config.judging.mode != "live" or bool(folder.list_batch_files())


async def pay_in_batches(steps: RunSteps, waiting: Waiting) -> None:
    """Pays what judging the run's records needs in batches, as far as it can be. What is missing
    afterwards is asked live. The run's responses are all there by now, in the plan's `resume_state`
    or in its dataset. Raises BatchesUnderWay where the session ends with that."""
    spec, counter = steps.plan.spec, steps.context.counter
    assert steps.services is not None
    connected = steps.services.connect(counter, steps.context.is_stopping)
    queues = build_batch_queues(spec.judges, spec.config.judging, connected)
    metrics = pick(spec.by_stage()[0], spec.metric_options)
    judged = {metric.name: metric for metric in metrics if isinstance(metric, JudgedMetric)}

    def judgment_of(metric: str) -> type[BaseModel]:
        if metric not in judged:
            raise JudgeStalled(f"a batch has calls of the metric {metric}, which the run has not")
        return judged[metric].judgment

    async def keep(calls: Sequence[CachedCall]) -> None:
        assert connected.calls is not None
        await asyncio.gather(*map(connected.calls.put, calls))

    runner = BatchRunner(
        queues,
        BatchJournal(RunFolder(steps.context.folder)),
        spec.config.judging.batch,
        RunHooks(say=counter.add_line, is_stopping=steps.context.is_stopping),
        judgment_of=judgment_of,
        keep=keep,
        budget=connected.budget,
        is_detached=steps.plan.is_detached,
        waiting=waiting,
    )
    rehearsal = None
    if spec.config.judging.mode == "batch":
        rehearsal = partial(_rehearse, steps, metrics, queues, runner)
        judges = {name for choice in spec.judges.values() for name in choice.judges} - {RULES}
        if others := sorted(judges - {queue.name for queue in queues}):
            names = ", ".join(others)
            counter.add_line(f"Asked call by call, as they take no batches: {names}.")
    try:
        await runner.run(rehearsal)
    except (BudgetSpent, JudgeStalled) as error:
        counter.stop(str(error))


def pay_in_batches_here(steps: RunSteps, waiting: Waiting) -> None:
    """The same, outside of an event loop."""

    async def pay() -> None:
        async with closing_clients():
            await pay_in_batches(steps, waiting)

    run_on_a_loop(pay())


async def _rehearse(
    steps: RunSteps, metrics: Sequence[Metric], queues: Sequence[BatchQueue], runner: BatchRunner
) -> None:
    """Runs the judge stage with judges that ask nobody, so that the runner notes missing calls."""
    # What is read here is read again when it is judged, and counts then
    plan, context = steps.plan, StageContext(steps.context.folder, RunCounter(STAGES, math.inf))
    spec, in_batches = plan.spec, {queue.name: queue.judge for queue in queues}
    judges = {
        key: [
            RehearsedJudge(name, in_batches.get(name), repeat, runner.add_missing_call)
            for name in (choice.judges if choice.judge != RULES else ())
            for repeat in range(spec.config.judging.repeats)
        ]
        for key, choice in spec.judges.items()
    }
    asking = judging_options(spec.judges, spec.config.judging, spec.siblings)
    rehearsed = RunSteps(plan=plan, context=context)
    read = rehearsed.read_waiting(spec.config.candidates)
    parts = [pa.Table.from_pylist([{PART: part}]) for part in plan.resume_state.waiting]
    given = shard_tables(plan.scan.shards) if spec.has_responses else []
    reads = (read, parts), (rehearsed.read_answers(), given)
    for table in (step.stage(table, *step.arguments) for step, of in reads for table in of):
        for start in range(0, table.num_rows, RECORDS_AT_ONCE):
            if steps.context.is_stopping():
                return
            records, _ = context.from_table(table.slice(start, RECORDS_AT_ONCE), "judge")
            judged = (judge_record(record, metrics, judges, asking) for record in records)
            for outcome in await asyncio.gather(*judged, return_exceptions=True):
                # a metric that fails on a record fails again when that is judged
                if isinstance(outcome, EvalError) and not isinstance(outcome, JudgeError):
                    raise outcome


def describe_open_batches(folder: RunFolder) -> str:
    """What an interrupted session leaves with providers; "" for nothing."""
    entries = [entry for entry in BatchJournal(folder).load() if entry.is_open]
    if not entries:
        return ""
    n_calls = sum(entry.n_calls for entry in entries)
    most = sum((entry.most for entry in entries), NOTHING)
    judges = ", ".join(sorted({entry.judge for entry in entries}))
    return (
        f"Batches that go on at their providers: {len(entries)}, with {n_calls:,} calls to "
        f"{judges}; they cost at most {most.cost}, and a resumed run fetches them. "
    )
