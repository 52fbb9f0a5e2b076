"""One streaming Ray Data job: read -> prompt -> generate -> judge -> embed -> write, block by
block."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, TaskPoolStrategy
from ray.data.exceptions import ExecutionTimeoutError

from memray_eval import errors
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EngineConfig
from memray_eval.datasets.sources import Shard
from memray_eval.errors import EvalError, GenerationError
from memray_eval.execution.plan import STAGE_CPUS, TASK_CPUS, Device
from memray_eval.execution.ray.affect_stage import EnrichSamples, affect_choices, enriches
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
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.run_inputs import reading_of
from memray_eval.judges.router import JudgeAssignment
from memray_eval.metric import RULES, Metric
from memray_eval.stages.judge import scored_by_judge_stage
from memray_eval.types import EXISTING, Candidate

logger = logging.getLogger(__name__)

_OURS = re.compile(r"^(?:memray_eval\.errors\.)(?P<kind>\w+): (?P<told>.+)$", re.MULTILINE)
_WAITING = re.compile(r"^ +- (.+?): (?!0 active)", re.MULTILINE)  # Ray Data's list of operators
_LOGS = "/tmp/ray/session_latest/logs"
BLOCKS = {
    "batch_format": "pyarrow",
    "batch_size": None,
}  # a stage takes a block as it comes: nothing waits to fill a batch


def engine_groups(candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Candidates that share one pipeline: those of one vLLM model, and all those behind servers."""

    def shared(candidate: Candidate) -> tuple[str, str]:
        return candidate.backend, candidate.model if candidate.backend == "vllm" else ""

    return [tuple(group) for _, group in groupby(sorted(candidates, key=shared), key=shared)]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run's pipelines have in common. `resume_state` is what earlier sessions did; `handles`
    are the services of its judges, None where no model judges."""

    config: RunConfig
    metrics: Sequence[Metric]
    choices: Mapping[str, JudgeAssignment]
    shards: Sequence[Shard]
    context: WorkerContext
    device: Device
    engine: EngineConfig
    resume_state: ResumeState
    handles: Handles | None = None
    embedded_url: str | None = None
    tasks_at_once: int = 2
    judge_actors: int = 1
    judge_tasks: int = 4

    @property
    def blocks(self) -> int:
        """How many blocks the dataset makes, about: Ray Data warns of a stage that has more
        workers."""
        if _is_one_file(self.shards):
            return max(
                1, math.ceil(sum(shard.rows for shard in self.shards) / self.engine.batch_size)
            )
        return max(1, len(self.shards))


def run_pipeline(work: Work, candidates: tuple[Candidate, ...]) -> int:
    """Runs all samples through all stages for candidates that share an engine; without metrics it
    only generates. Returns how many units were written.

    Raises EvalError when a stage could not be started at all; a row that fails is a row.
    """
    logger.info("a pipeline begins: %s", ", ".join(one.name for one in candidates))
    set_up_data_context(work.config)
    if candidates[0].backend == EXISTING:
        return _finish(add_scoring(add_existing_responses(work), work), work, EXISTING)
    dataset = add_generation(add_prompts(work, candidates), work, candidates[0])
    return _finish(add_scoring(dataset, work), work, candidates[0].model)


def judge_waiting(work: Work, candidates: tuple[Candidate, ...]) -> int:
    """Judges what an earlier session generated. Returns how many units were written."""
    n_units, names = len(work.resume_state.generated), ", ".join(one.name for one in candidates)
    logger.info("%d responses of an earlier session are judged: %s", n_units, names)
    set_up_data_context(work.config)
    rows = [{PART: part} for part in work.resume_state.waiting]
    read = {
        "generated": work.resume_state.generated,
        "candidates": [one.name for one in candidates],
        "context": work.context,
    }
    parts = ray.data.from_items(rows, override_num_blocks=len(rows))
    waiting = parts.map_batches(read_waiting, fn_kwargs=read, **task_options(work, len(rows)))
    return _finish(add_scoring(waiting, work, len(rows)), work, candidates[0].model, len(rows))


def _finish(dataset: Dataset, work: Work, model: str, blocks: int = 0) -> int:
    written = dataset.map_batches(
        write_records, fn_kwargs={"context": work.context}, **task_options(work, blocks)
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
            f"{work.config.cluster.no_progress_timeout_s:g} s (still at work: "
            f"{still or 'nothing'}). What was finished is kept; where an engine is slow, resume "
            f"with "
            "--set cluster.no_progress_timeout_s=3600."
        ) from None
    except ray.exceptions.RayError as error:
        raise _to_eval_error(error, model) from error


def set_up_data_context(config: RunConfig) -> None:
    """Quiet, and an error instead of a hang."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # they print tuning advice about Ray Data LLM's own stages
    context.issue_detectors_config.detectors = []
    context.execution_no_progress_timeout_s = config.cluster.no_progress_timeout_s
    context.max_errored_blocks = 0
    warnings.filterwarnings(
        "ignore", "The (maximum|minimum) number of concurrent"
    )  # a stage with fewer blocks than workers


def task_options(work: Work, inputs: int = 0) -> dict[str, Any]:
    """How a stage of tasks runs: a few at a time (each is a process to start), with other CPUs than
    an actor stage has, or Ray Data would run it inside the actor, on the event loop that judges or
    asks with hundreds of calls in flight. `inputs` is how many blocks come in, where they are not
    the shards."""
    taken = {
        work.config.judging.cpus,
        work.config.embedding.cpus,
        work.config.affect.cpus,
        STAGE_CPUS,
    }
    cpus = next(cpus for cpus in (TASK_CPUS + step / 100 for step in range(9)) if cpus not in taken)
    return {
        **BLOCKS,
        "num_cpus": cpus,
        "compute": TaskPoolStrategy(size=min(work.tasks_at_once, inputs or work.blocks)),
    }


def shard_dataset(shards: Sequence[Shard]) -> Dataset:
    """The shards as the pipeline's input, a block each."""
    rows = shard_rows(shards)
    return ray.data.from_items(rows, override_num_blocks=len(rows))


def _is_one_file(shards: Sequence[Shard]) -> bool:
    return any(shard.kind == "json" for shard in shards)


def repartition_rows(dataset: Dataset, work: Work) -> Dataset:
    """What was read, in blocks of a batch: a combined JSON is read by one task, so its rows are
    spread afterwards."""
    if _is_one_file(work.shards):
        spread_out = dataset.repartition(target_num_rows_per_block=work.engine.batch_size)
        set_repartition_cpus(spread_out, TASK_CPUS)
        return spread_out
    return dataset


def add_prompts(work: Work, candidates: tuple[Candidate, ...]) -> Dataset:
    asking = PromptSpec(
        reading=reading_of(work.config),
        templates=work.config.templates,
        candidates=candidates,
        resume_state=work.resume_state,
        context=work.context,
        max_model_len=work.engine.max_model_len,
        rows=work.engine.batch_size,
    )
    read = prompts_for_engine if candidates[0].backend == "vllm" else prompts_for_servers
    source = (
        add_affect(shard_dataset(work.shards), work, candidates)
        if enriches(work.config)
        else shard_dataset(work.shards)
    )
    return repartition_rows(
        source.map_batches(
            read, fn_kwargs={"asking": asking}, **task_options(work, len(work.shards))
        ),
        work,
    )


def add_affect(dataset: Dataset, work: Work, candidates: tuple[Candidate, ...]) -> Dataset:
    """Shards as samples with emotion and traits."""
    affect = work.config.affect
    known = (
        reading_of(work.config),
        candidates,
        work.resume_state,
        affect,
        work.config.judging,
        affect_choices(work.config),
    )
    return dataset.map_batches(
        EnrichSamples,
        fn_constructor_args=(*known, work.handles, work.embedded_url, work.context),
        compute=ActorPoolStrategy(size=min(affect.actors, len(work.shards))),
        num_cpus=affect.cpus,
        **BLOCKS,
    )


def add_existing_responses(work: Work) -> Dataset:
    """Records whose responses exist already."""
    read = {
        "reading": reading_of(work.config),
        "resume_state": work.resume_state,
        "context": work.context,
    }
    return repartition_rows(
        shard_dataset(work.shards).map_batches(
            read_answers, fn_kwargs=read, **task_options(work, len(work.shards))
        ),
        work,
    )


def add_generation(dataset: Dataset, work: Work, candidate: Candidate) -> Dataset:
    config = work.config
    if candidate.backend == "openai":
        pool = ActorPoolStrategy(size=min(config.server.actors, work.blocks))
        return dataset.map_batches(
            AskServers,
            fn_constructor_args=(config.server, work.context),
            compute=pool,
            num_cpus=STAGE_CPUS,
            **BLOCKS,
        )
    answered = build_engine(work.engine, candidate.model, work.device)(dataset)
    return answered.map_batches(
        collect_engine_answers, fn_kwargs={"context": work.context}, **task_options(work)
    )


def add_scoring(dataset: Dataset, work: Work, inputs: int = 0) -> Dataset:
    config, inputs = work.config, inputs or work.blocks
    at_judge, at_embed = split(work.metrics, work.choices)
    if at_judge:
        dataset = dataset.map_batches(
            JudgeRecords,
            fn_constructor_args=(
                at_judge,
                config.metric_options,
                work.choices,
                config.judging,
                work.handles,
                work.embedded_url,
                work.context,
            ),
            compute=ActorPoolStrategy(
                size=min(work.judge_actors, inputs),
                max_tasks_in_flight_per_actor=work.judge_tasks,
                max_concurrent_calls_per_actor=work.judge_tasks,
            ),
            num_cpus=config.judging.cpus,
            **BLOCKS,
        )
    if at_embed:
        dataset = dataset.map_batches(
            EmbedRecords,
            fn_constructor_args=(at_embed, config.embedding, work.context),
            compute=ActorPoolStrategy(size=min(config.embedding.actors, inputs)),
            num_cpus=config.embedding.cpus,
            **BLOCKS,
        )
    return dataset


def split(
    metrics: Sequence[Metric], choices: Mapping[str, JudgeAssignment]
) -> tuple[list[str], list[str]]:
    """The names of the metrics that the judge stage scores, and of those that the embed stage
    does."""
    by_model = {
        choice.metric for choice in choices.values() if choice.judge != RULES or choice.withheld
    }
    at_judge = [metric.name for metric in metrics if scored_by_judge_stage(metric, by_model)]
    return at_judge, [metric.name for metric in metrics if metric.name not in at_judge]


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
