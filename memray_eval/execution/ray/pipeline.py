"""One streaming Ray Data job: read -> prompt -> generate -> judge -> embed -> write, block by
block."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, TaskPoolStrategy
from ray.data.exceptions import ExecutionTimeoutError

from memray_eval import errors
from memray_eval.config.sections import EngineConfig
from memray_eval.datasets.sources import Shard
from memray_eval.errors import EvalError, GenerationError
from memray_eval.execution.plan import STAGE_CPUS, TASK_CPUS, Device
from memray_eval.execution.ray.affect_stage import EnrichSamples
from memray_eval.execution.ray.engine import build_engine
from memray_eval.execution.ray.prompt_stage import (
    PromptSpec,
    prompts_for_engine,
    prompts_for_servers,
)
from memray_eval.execution.ray.ray_compat import set_repartition_cpus
from memray_eval.execution.ray.services import Handles
from memray_eval.execution.ray.workers import (
    PART,
    AskServers,
    EmbedRecords,
    JudgeRecords,
    WorkerContext,
    collect_engine_answers,
    read_answers,
    read_waiting,
    shard_rows,
    write_records,
)
from memray_eval.execution.run_plan import RunPlan
from memray_eval.types import EXISTING, Candidate

logger = logging.getLogger(__name__)

_OURS = re.compile(r"^(?:memray_eval\.errors\.)(?P<kind>\w+): (?P<told>.+)$", re.MULTILINE)
_WAITING = re.compile(r"^ +- (.+?): (?!0 active)", re.MULTILINE)  # Ray Data's list of operators
_LOGS = "/tmp/ray/session_latest/logs"
# A stage takes a block as it comes: nothing waits to fill a batch
BLOCKS = {
    "batch_format": "pyarrow",
    "batch_size": None,
}


@dataclass(frozen=True, kw_only=True)
class PipelineSetup:
    """A run's plan with what was started for it, as its pipelines take it. `engine` is that of the
    pipeline's model, `handles` are the services of the run's judges, None where no model judges."""

    plan: RunPlan
    context: WorkerContext
    device: Device
    engine: EngineConfig
    handles: Handles | None = None
    embedded_url: str | None = None
    tasks_at_once: int = 2
    judge_actors: int = 1
    judge_tasks: int = 4

    @property
    def blocks(self) -> int:
        """How many blocks the dataset makes, about: Ray Data warns of a stage that has more
        workers."""
        if _is_one_file(self.plan.found.shards):
            return max(
                1,
                math.ceil(
                    sum(shard.rows for shard in self.plan.found.shards) / self.engine.batch_size
                ),
            )
        return max(1, len(self.plan.found.shards))


def run_pipeline(setup: PipelineSetup, candidates: tuple[Candidate, ...]) -> int:
    """Runs all samples through all stages for candidates that share an engine; without metrics it
    only generates. Returns how many units were written.

    Raises EvalError when a stage could not be started at all; a row that fails is a row.
    """
    logger.info("a pipeline begins: %s", ", ".join(one.name for one in candidates))
    set_up_data_context(setup.plan.spec.cluster.no_progress_timeout_s)
    if candidates[0].backend == EXISTING:
        return _finish(add_scoring(add_existing_responses(setup), setup), setup, EXISTING)
    dataset = add_generation(add_prompts(setup, candidates), setup, candidates[0])
    return _finish(add_scoring(dataset, setup), setup, candidates[0].model)


def judge_waiting(setup: PipelineSetup, candidates: tuple[Candidate, ...]) -> int:
    """Judges what an earlier session generated. Returns how many units were written."""
    state, names = setup.plan.resume_state, ", ".join(one.name for one in candidates)
    logger.info("%d earlier responses are judged: %s", len(state.generated), names)
    set_up_data_context(setup.plan.spec.cluster.no_progress_timeout_s)
    rows = [{PART: part} for part in state.waiting]
    read = {
        "generated": setup.plan.resume_state.generated,
        "candidates": [one.name for one in candidates],
        "context": setup.context,
    }
    parts = ray.data.from_items(rows, override_num_blocks=len(rows))
    waiting = parts.map_batches(read_waiting, fn_kwargs=read, **task_options(setup, len(rows)))
    return _finish(add_scoring(waiting, setup, len(rows)), setup, candidates[0].model, len(rows))


def _finish(dataset: Dataset, setup: PipelineSetup, model: str, blocks: int = 0) -> int:
    written = dataset.map_batches(
        write_records, fn_kwargs={"context": setup.context}, **task_options(setup, blocks)
    )
    try:
        return sum(
            batch.num_rows
            for batch in written.iter_batches(batch_format="pyarrow", batch_size=None)
        )
    except ExecutionTimeoutError as error:
        still = ", ".join(_WAITING.findall(str(error)))
        raise GenerationError(
            f"nothing moved in the pipeline for {model} for "
            f"{setup.plan.spec.cluster.no_progress_timeout_s:g} s (still at work: "
            f"{still or 'nothing'}). What was finished is kept; where an engine is slow, resume "
            "with --set cluster.no_progress_timeout_s=3600."
        ) from None
    except ray.exceptions.RayError as error:
        raise _to_eval_error(error, model) from error


def set_up_data_context(no_progress_timeout_s: float) -> None:
    """Quiet, and an error instead of a hang."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # they print tuning advice about Ray Data LLM's own stages
    context.issue_detectors_config.detectors = []
    context.execution_no_progress_timeout_s = no_progress_timeout_s
    context.max_errored_blocks = 0
    # A stage with fewer blocks than workers
    warnings.filterwarnings("ignore", "The (maximum|minimum) number of concurrent")


def task_options(setup: PipelineSetup, inputs: int = 0) -> dict[str, Any]:
    """How a stage of tasks runs: a few at a time (each is a process to start), with other CPUs than
    an actor stage has, or Ray Data would run it inside the actor, on the event loop that judges or
    asks with hundreds of calls in flight. `inputs` is how many blocks come in, where they are not
    the shards."""
    taken = {
        setup.plan.spec.judging.cpus,
        setup.plan.spec.embedding.cpus,
        setup.plan.spec.affect.cpus,
        STAGE_CPUS,
    }
    cpus = next(cpus for cpus in (TASK_CPUS + step / 100 for step in range(9)) if cpus not in taken)
    return {
        **BLOCKS,
        "num_cpus": cpus,
        "compute": TaskPoolStrategy(size=min(setup.tasks_at_once, inputs or setup.blocks)),
    }


def shard_dataset(shards: Sequence[Shard]) -> Dataset:
    """The shards as the pipeline's input, a block each."""
    rows = shard_rows(shards)
    return ray.data.from_items(rows, override_num_blocks=len(rows))


def _is_one_file(shards: Sequence[Shard]) -> bool:
    return any(shard.kind == "json" for shard in shards)


def repartition_rows(dataset: Dataset, setup: PipelineSetup) -> Dataset:
    """What was read, in blocks of a batch: a combined JSON is read by one task, so its rows are
    spread afterwards."""
    if _is_one_file(setup.plan.found.shards):
        spread_out = dataset.repartition(target_num_rows_per_block=setup.engine.batch_size)
        set_repartition_cpus(spread_out, TASK_CPUS)
        return spread_out
    return dataset


def add_prompts(setup: PipelineSetup, candidates: tuple[Candidate, ...]) -> Dataset:
    asking = PromptSpec(
        reading=setup.plan.spec.read.reader,
        templates=setup.plan.spec.templates,
        candidates=candidates,
        resume_state=setup.plan.resume_state,
        context=setup.context,
        max_model_len=setup.engine.max_model_len,
        rows=setup.engine.batch_size,
    )
    read = prompts_for_engine if candidates[0].backend == "vllm" else prompts_for_servers
    source = (
        add_affect(shard_dataset(setup.plan.found.shards), setup, candidates)
        if setup.plan.spec.adds_affect
        else shard_dataset(setup.plan.found.shards)
    )
    return repartition_rows(
        source.map_batches(
            read, fn_kwargs={"asking": asking}, **task_options(setup, len(setup.plan.found.shards))
        ),
        setup,
    )


def add_affect(
    dataset: Dataset, setup: PipelineSetup, candidates: tuple[Candidate, ...]
) -> Dataset:
    """Shards as samples with emotion and traits."""
    affect = setup.plan.spec.affect
    known = (
        setup.plan.spec.read.reader,
        candidates,
        setup.plan.resume_state,
        affect,
        setup.plan.spec.judging,
        setup.plan.spec.affect_judges,
    )
    return dataset.map_batches(
        EnrichSamples,
        fn_constructor_args=(*known, setup.handles, setup.embedded_url, setup.context),
        compute=ActorPoolStrategy(size=min(affect.actors, len(setup.plan.found.shards))),
        num_cpus=affect.cpus,
        **BLOCKS,
    )


def add_existing_responses(setup: PipelineSetup) -> Dataset:
    """Records whose responses exist already."""
    read = {
        "reading": setup.plan.spec.read.reader,
        "resume_state": setup.plan.resume_state,
        "context": setup.context,
    }
    return repartition_rows(
        shard_dataset(setup.plan.found.shards).map_batches(
            read_answers, fn_kwargs=read, **task_options(setup, len(setup.plan.found.shards))
        ),
        setup,
    )


def add_generation(dataset: Dataset, setup: PipelineSetup, candidate: Candidate) -> Dataset:
    server = setup.plan.spec.server
    if candidate.backend == "openai":
        pool = ActorPoolStrategy(size=min(server.actors, setup.blocks))
        return dataset.map_batches(
            AskServers,
            fn_constructor_args=(server, setup.context),
            compute=pool,
            num_cpus=STAGE_CPUS,
            **BLOCKS,
        )
    answered = build_engine(setup.engine, candidate.model, setup.device)(dataset)
    return answered.map_batches(
        collect_engine_answers, fn_kwargs={"context": setup.context}, **task_options(setup)
    )


def add_scoring(dataset: Dataset, setup: PipelineSetup, inputs: int = 0) -> Dataset:
    spec, inputs = setup.plan.spec, inputs or setup.blocks
    at_judge, at_embed = spec.by_stage()
    if at_judge:
        dataset = dataset.map_batches(
            JudgeRecords,
            fn_constructor_args=(
                at_judge,
                spec.metric_options,
                spec.judges,
                spec.judging,
                setup.handles,
                setup.embedded_url,
                setup.context,
            ),
            compute=ActorPoolStrategy(
                size=min(setup.judge_actors, inputs),
                max_tasks_in_flight_per_actor=setup.judge_tasks,
                max_concurrent_calls_per_actor=setup.judge_tasks,
            ),
            num_cpus=spec.judging.cpus,
            **BLOCKS,
        )
    if at_embed:
        dataset = dataset.map_batches(
            EmbedRecords,
            fn_constructor_args=(at_embed, spec.embedding, setup.context),
            compute=ActorPoolStrategy(size=min(spec.embedding.actors, inputs)),
            num_cpus=spec.embedding.cpus,
            **BLOCKS,
        )
    return dataset


def _to_eval_error(error: ray.exceptions.RayError, model: str) -> EvalError:
    """Ray's error as one of ours. The death of an actor carries its cause as text alone, so ours is
    found by its name there; for any other, the last line that says why, and where the rest is."""
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found["kind"], GenerationError)
        return (
            kind(found["told"]) if issubclass(kind, EvalError) else GenerationError(found["told"])
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next(
        (line for line in reversed(lines) if "Error" in line),
        lines[-1] if lines else type(error).__name__,
    )
    return GenerationError(
        f"the pipeline for {model} stopped: {reason.rstrip('.')}. The workers' logs: {_LOGS}"
    )
