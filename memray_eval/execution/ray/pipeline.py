"""One streaming Ray Data job: read -> prompt -> generate -> judge -> embed -> write."""

import logging
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, TaskPoolStrategy
from ray.data.exceptions import ExecutionTimeoutError

from memray_eval.config.sections import EngineConfig, least_of
from memray_eval.errors import EvalError, GenerationError
from memray_eval.execution.plan import AFFECT_CPUS, STAGE_CPUS, TASK_CPUS, WRITER_CPUS, Device
from memray_eval.execution.ray.engine import add_engines
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
)
from memray_eval.execution.ray.ray_compat import (
    is_repeated_task,
    is_restarted_actor,
    set_repartition_options,
)
from memray_eval.execution.run_plan import Group
from memray_eval.execution.stages.blocks import (
    PART,
    collect_engine_answers,
    score_and_write,
    shard_rows,
)
from memray_eval.execution.stages.context import write_block
from memray_eval.execution.stages.prompt import PromptSpec
from memray_eval.execution.stages.steps import RunSteps, Step
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind
from memray_eval.types import EXISTING

logger = logging.getLogger(__name__)

FEW_UNITS = 64  # of a run whose blocks are written as they come, a file each
# Blocks given to a pool's actors over those that they work on at once, counting the actors that
# start: a third of the actors may be starting at a time
GROWS_ABOVE = 0.75
SHRINKS_BELOW = -1.0  # never

_TRIED = "\nFailed to apply UDF transform after "  # begins what Ray adds to an error's text
_WAITING = re.compile(r"^ +- (.+?): (?!0 active)", re.MULTILINE)  # Ray Data's list of operators
_LOGS = "/tmp/ray/session_latest/logs"
# A stage takes a block as it comes: nothing waits to fill a batch
BLOCKS = {"batch_format": "pyarrow", "batch_size": None}


@dataclass(frozen=True, kw_only=True)
class PipelineSetup(RunSteps):
    """A run's steps with what was started for them. `engine` is that of the pipeline's model,
    `services` those of its judges. `label_selector` keeps work off nodes with GPUs (None:
    anywhere). `engines_at_first` begin of a range."""

    device: Device
    engine: EngineConfig
    reservation: NodeReservation = field(default_factory=NodeReservation)
    label_selector: dict[str, str] | None = None
    tasks_at_once: int = 2
    engines_at_first: int | None = None

    def actor_options(self, cpus: float, memory_gib: float) -> dict[str, Any]:
        """The options of a stage's actors: where they run and what each takes. On a machine's own
        Ray memory is not declared: Ray hands out less than there is."""
        is_on_cluster = bool(self.plan.capacity.nodes)
        return {
            **BLOCKS,
            "num_cpus": cpus,
            "memory": int(memory_gib * (1 << 30)) if is_on_cluster else None,
            "label_selector": self.label_selector,
        }

    def placement(self, model: str, on_end: Callable[[], None] | None) -> EnginePlacement:
        group = group_of_engine(self.engine, self.device, model)
        return EnginePlacement(group, self.reservation, on_end, self.context.counter)

    @property
    def blocks(self) -> int:
        """About how many blocks the dataset makes: Ray Data warns of more workers."""
        shards = self.plan.scan.shards
        if self.plan.is_one_file:
            units = sum(shard.rows for shard in shards) * len(self.plan.spec.config.candidates)
            return max(1, math.ceil(units / self.engine.rows))
        return max(1, len(shards))


def run_pipeline(
    setup: PipelineSetup,
    candidates: Group,
    on_engine_end: Callable[[], None] | None = None,
    scores: bool = True,
) -> None:
    """Runs all samples through all stages for candidates that share an engine. Unless it `scores`,
    it only generates, into the folder's responses, and finishes failed units. `on_engine_end` is
    called when its first engine has ended. Raises EvalError when a stage could not be started; a
    row that fails is a row."""
    names, model = ", ".join(candidate.name for candidate in candidates), candidates[0].model
    logger.info("%s begins: %s", "a pipeline" if scores else "generating", names)
    set_up_data_context(setup.plan.spec.config.cluster.no_progress_timeout_s)
    if candidates[0].backend == EXISTING:
        if setup.plan.scores_at_once:
            _run_to_end(score_where_read(setup), setup, EXISTING)
        else:
            records = map_shards(shard_dataset(setup), setup, setup.read_answers())
            _finish(records, setup, EXISTING)
        return
    with setup.placement(model, on_engine_end) as placement:
        requests = add_prompts(setup, candidates)
        dataset = add_generation(requests, setup, candidates, placement)
        if scores:
            _finish(dataset, setup, model)
        else:
            _run_to_end(add_step(dataset, setup, setup.finish_ungenerated()), setup, model)


def judge_waiting(setup: PipelineSetup, candidates: Group) -> None:
    """Judges what was generated."""
    state, names = setup.plan.resume_state, ", ".join(candidate.name for candidate in candidates)
    logger.info("%d responses wait and are judged: %s", len(state.generated), names)
    set_up_data_context(setup.plan.spec.config.cluster.no_progress_timeout_s)
    rows = [{PART: part} for part in state.waiting]
    parts = ray.data.from_items(rows, override_num_blocks=len(rows))
    waiting = add_step(parts, setup, setup.read_waiting(candidates), len(rows))
    # A part holds more rows than should be judged and written together
    block_rows = setup.plan.block_rows
    blocks = max(1, math.ceil(len(state.generated) / block_rows))
    _finish(_repartition(waiting, setup, block_rows), setup, candidates[0].model, blocks)


def add_step(dataset: Dataset, setup: PipelineSetup, step: Step, inputs: int = 0) -> Dataset:
    """Adds a stage: of tasks or a pool of actors, of each no more than its `inputs`, the blocks
    that come (0: those of the dataset)."""
    if not step.actors:
        options = task_options(setup, inputs)
        return dataset.map_batches(step.stage, fn_args=step.arguments, **options)
    at_once = step.at_once if step.at_once > 1 else None
    pool = ActorPoolStrategy(
        size=min(step.actors, inputs or setup.blocks),
        max_tasks_in_flight_per_actor=at_once,
        max_concurrent_calls_per_actor=at_once,
    )
    return dataset.map_batches(
        step.stage,
        fn_constructor_args=step.arguments,
        compute=pool,
        **setup.actor_options(step.cpus, step.memory_gib),
    )


def write_parts(dataset: Dataset, setup: PipelineSetup, kind: Kind) -> Dataset:
    """Adds the stage that writes rows to the run folder. Few units are not worth one more
    process."""
    step = setup.write(kind)
    if setup.plan.n_units <= FEW_UNITS:
        step = Step(write_block, step.arguments)
    return add_step(dataset, setup, step)


def _finish(dataset: Dataset, setup: PipelineSetup, model: str, inputs: int = 0) -> None:
    """Scores and writes records that come in so many blocks."""
    for step in setup.score():
        dataset = add_step(dataset, setup, step, inputs)
    _run_to_end(write_parts(dataset, setup, RECORDS), setup, model)


def _run_to_end(dataset: Dataset, setup: PipelineSetup, model: str) -> None:
    """Takes all rows that come out of a pipeline. Raises EvalError if it ends early."""
    try:
        for _ in dataset.iter_batches(batch_format="pyarrow", batch_size=None):
            pass
    except ExecutionTimeoutError as error:
        still = ", ".join(_WAITING.findall(str(error)))
        raise GenerationError(
            f"nothing moved in the pipeline for {model} for "
            f"{setup.plan.spec.config.cluster.no_progress_timeout_s:g} s (still at work: "
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
    context.raise_original_map_exception = True
    # An elastic pool grows when its actors have work, not only when blocks queue at each of them,
    # and keeps what it has to the end of its input: an engine takes minutes to load its model
    scaling = context.autoscaling_config
    scaling.actor_pool_util_upscaling_threshold = GROWS_ABOVE
    scaling.actor_pool_util_downscaling_threshold = SHRINKS_BELOW
    # A stage with fewer blocks than workers
    warnings.filterwarnings("ignore", "The (maximum|minimum) number of concurrent")


def task_options(setup: PipelineSetup, inputs: int = 0) -> dict[str, Any]:
    """The options of a stage of tasks: few at a time, on other CPUs than an actor stage's, or Ray
    Data would run it on that actor's event loop. `inputs` are its blocks, if not the shards."""
    spec = setup.plan.spec
    stages = spec.config.judging.cpus, spec.config.embedding.cpus, AFFECT_CPUS
    taken = {*stages, STAGE_CPUS, WRITER_CPUS}
    cpus = next(cpus for cpus in (TASK_CPUS + step / 100 for step in range(9)) if cpus not in taken)
    return {
        **BLOCKS,
        "num_cpus": cpus,
        "label_selector": setup.label_selector,
        "compute": TaskPoolStrategy(size=min(setup.tasks_at_once, inputs or setup.blocks)),
    }


def shard_dataset(setup: PipelineSetup) -> Dataset:
    """The shards as the pipeline's input, a block each."""
    rows = shard_rows(setup.plan.scan.shards)
    return ray.data.from_items(rows, override_num_blocks=len(rows))


def map_shards(dataset: Dataset, setup: PipelineSetup, *steps: Step) -> Dataset:
    """Maps shards, or their samples; the rows are spread over blocks of a batch if one task reads
    them all, as of a combined JSON."""
    for step in steps:
        dataset = add_step(dataset, setup, step, len(setup.plan.scan.shards))
    if not setup.plan.is_one_file:
        return dataset
    return _repartition(dataset, setup, setup.engine.rows)


def _repartition(dataset: Dataset, setup: PipelineSetup, rows: int) -> Dataset:
    """The rows in blocks of so many."""
    parted = dataset.repartition(target_num_rows_per_block=rows)
    set_repartition_options(parted, num_cpus=TASK_CPUS, label_selector=setup.label_selector)
    return parted


def _asking(setup: PipelineSetup, candidates: Group) -> PromptSpec:
    return setup.prompts(
        candidates,
        max_model_len=setup.engine.max_model_len,
        trust_remote_code=setup.engine.engine_kwargs.get("trust_remote_code") is True,
        rows=setup.engine.rows,
        is_repeated=is_repeated_task,
    )


def add_prompts(setup: PipelineSetup, candidates: Group) -> Dataset:
    """Shards as rows that ask, or as sessions."""
    return map_shards(shard_dataset(setup), setup, *setup.read_prompts(_asking(setup, candidates)))


def score_where_read(setup: PipelineSetup) -> Dataset:
    """Responses that exist already, read, scored and written by one task for each shard: no record
    goes to another process. As many run at once as there would be judge actors."""
    at_once = TaskPoolStrategy(size=min(setup.judge_actors, len(setup.plan.scan.shards)))
    return shard_dataset(setup).map_batches(
        score_and_write,
        fn_kwargs={"score": setup.score_answers(), "context": setup.context},
        **BLOCKS,
        num_cpus=setup.plan.spec.config.judging.cpus,
        label_selector=setup.label_selector,
        compute=at_once,
    )


def add_generation(
    dataset: Dataset, setup: PipelineSetup, candidates: Group, placement: EnginePlacement
) -> Dataset:
    """Records with their responses, which are kept; engines are in the groups of `placement`."""
    candidate, asking = candidates[0], _asking(setup, candidates)
    if candidate.is_served:
        return add_step(dataset, setup, setup.ask_servers(asking, is_restarted_actor))
    sessions = setup.sessions(asking)
    # A memory's answers are asked once, though a kill comes amid a block
    keeps = any(candidate.memory for candidate in setup.plan.spec.config.candidates)
    at_first = setup.engines_at_first
    if at_first is not None:  # no more than there are blocks for
        at_first = max(least_of(setup.engine.replicas), min(at_first, setup.blocks))
    answers = add_engines(
        dataset,
        setup.engine,
        candidate.model,
        setup.device,
        placement,
        setup.context,
        at_first=at_first,
        blocks=setup.blocks,
        is_on_cluster=bool(setup.plan.capacity.nodes),
        label_selector=setup.label_selector,
        sessions=sessions,
        keeps=keeps,
    )
    if keeps or sessions is not None:
        return answers
    answered = add_step(answers, setup, Step(collect_engine_answers, (setup.context,)))
    return write_parts(answered, setup, RESPONSES)


def _to_eval_error(error: ray.exceptions.RayError, model: str) -> EvalError:
    """The error of ours that a stage raised; of any other the last line that says why."""
    cause: BaseException = error
    while isinstance(cause, ray.exceptions.RayTaskError):
        cause = cause.cause
    if isinstance(cause, EvalError):
        cause.args = (str(cause).partition(_TRIED)[0],)
        return cause
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    reason = next((line for line in reversed(lines) if "Error" in line), last)
    return GenerationError(
        f"the pipeline for {model} stopped: {reason.rstrip('.')}. The workers' logs: {_LOGS}"
    )
