"""One streaming Ray Data job: read -> prompt -> generate -> judge -> embed -> write, block by block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset

from memray_eval import errors
from memray_eval.clients.routing import Choice
from memray_eval.config import RunConfig
from memray_eval.datasets.sources import Shard
from memray_eval.errors import EvalError, GenerationError
from memray_eval.metric import RULES, Metric
from memray_eval.runtime.actors import (
    AskServers,
    EmbedRecords,
    JudgeRecords,
    fold_answers,
    read_answers,
    read_prompts,
    shard_rows,
    write_records,
)
from memray_eval.runtime.engine import build_engine, stop_token_ids
from memray_eval.runtime.plan import STAGE_CPUS, TASK_CPUS, Device
from memray_eval.stages.judge import scored_by_judge_stage
from memray_eval.types import GIVEN, Candidate

_OURS = re.compile(r"^(?:memray_eval\.errors\.)(?P<kind>\w+): (?P<told>.+)$", re.MULTILINE)
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


def run_pipeline(
    config: RunConfig,
    candidates: tuple[Candidate, ...],
    metrics: Sequence[Metric],
    choices: Mapping[str, Choice],
    shards: Sequence[Shard],
    folder: str,
    device: Device,
    counter: Any,
    embedded_url: str | None = None,
) -> int:
    """Runs all samples through all stages for candidates that share an engine; without metrics it only generates. Returns
    how many units were written.

    Raises EvalError when a stage could not be started at all; a row that fails is a row.
    """
    set_up_data_context(config)
    if candidates[0].backend == GIVEN:
        dataset = given(config, shards, counter)
    else:
        dataset = prompted(config, candidates, shards, counter)
        dataset = generated(dataset, config, candidates[0], device, counter)
    if metrics:
        dataset = scored(dataset, config, metrics, choices, counter, embedded_url)
    written = dataset.map_batches(write_records, fn_kwargs={"folder": folder, "counter": counter}, num_cpus=TASK_CPUS, **BLOCKS)
    try:
        return sum(batch.num_rows for batch in written.iter_batches(batch_format="pyarrow", batch_size=None))
    except ray.exceptions.RayError as error:
        raise _translated(error, candidates[0].model) from error


def set_up_data_context(config: RunConfig) -> None:
    """Quiet, and an error instead of a hang."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.issue_detectors_config.detectors = []  # they print tuning advice about Ray Data LLM's own stages
    context.execution_no_progress_timeout_s = config.cluster.no_progress_timeout_s
    context.max_errored_blocks = 0


def spread(shards: Sequence[Shard]) -> Dataset:
    """The shards as the pipeline's input, a block each."""
    rows = shard_rows(shards)
    return ray.data.from_items(rows, override_num_blocks=len(rows))


def even(dataset: Dataset, config: RunConfig, shards: Sequence[Shard]) -> Dataset:
    """What was read, in blocks of a batch: a combined JSON is read by one task, so its rows are spread afterwards."""
    if any(shard.kind == "json" for shard in shards):
        return dataset.repartition(target_num_rows_per_block=config.engine.batch_size)
    return dataset


def prompted(config: RunConfig, candidates: tuple[Candidate, ...], shards: Sequence[Shard], counter: Any) -> Dataset:
    asked = {"suite_name": config.suite, "candidates": candidates, "counter": counter}
    rows = spread(shards).map_batches(read_prompts, fn_kwargs=asked, num_cpus=TASK_CPUS, **BLOCKS)
    return even(rows, config, shards)


def given(config: RunConfig, shards: Sequence[Shard], counter: Any) -> Dataset:
    """Records whose responses exist already."""
    read = {"suite_name": config.suite, "counter": counter}
    return even(spread(shards).map_batches(read_answers, fn_kwargs=read, num_cpus=TASK_CPUS, **BLOCKS), config, shards)


def generated(dataset: Dataset, config: RunConfig, candidate: Candidate, device: Device, counter: Any) -> Dataset:
    if candidate.backend == "openai":
        pool = ActorPoolStrategy(size=config.server.actors)
        return dataset.map_batches(
            AskServers, fn_constructor_args=(config.server, counter), compute=pool, num_cpus=STAGE_CPUS, **BLOCKS
        )
    fold = {
        "stop_ids": stop_token_ids(candidate.model),
        "max_model_len": config.engine.max_model_len,
        "counter": counter,
    }
    answered = build_engine(config.engine, candidate.model, device)(dataset)
    return answered.map_batches(fold_answers, fn_kwargs=fold, num_cpus=TASK_CPUS, **BLOCKS)


def scored(
    dataset: Dataset,
    config: RunConfig,
    metrics: Sequence[Metric],
    choices: Mapping[str, Choice],
    counter: Any,
    embedded_url: str | None = None,
) -> Dataset:
    at_judge, at_embed = split(metrics, choices)
    if at_judge:
        dataset = dataset.map_batches(
            JudgeRecords,
            fn_constructor_args=(at_judge, choices, config.judging, embedded_url, counter),
            compute=ActorPoolStrategy(size=config.judging.actors),
            num_cpus=config.judging.cpus,
            **BLOCKS,
        )
    if at_embed:
        dataset = dataset.map_batches(
            EmbedRecords,
            fn_constructor_args=(at_embed, config.embedding, counter),
            compute=ActorPoolStrategy(size=config.embedding.actors),
            num_cpus=config.embedding.cpus,
            **BLOCKS,
        )
    return dataset


def split(metrics: Sequence[Metric], choices: Mapping[str, Choice]) -> tuple[list[str], list[str]]:
    """The names of the metrics that the judge stage scores, and of those that the embed stage does."""
    by_model = {name for name, choice in choices.items() if choice.judge != RULES}
    at_judge = [metric.name for metric in metrics if scored_by_judge_stage(metric, by_model)]
    return at_judge, [metric.name for metric in metrics if metric.name not in at_judge]


def _translated(error: ray.exceptions.RayError, model: str) -> EvalError:
    """Ray's error as one of ours. The death of an actor carries its cause as text alone, so ours is found by its name there;
    for any other, the last line that says why, and where the rest is."""
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found["kind"], GenerationError)
        return kind(found["told"]) if issubclass(kind, EvalError) else GenerationError(found["told"])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else type(error).__name__)
    return GenerationError(f"the pipeline for {model} stopped: {reason.rstrip('.')}. The workers' logs: {_LOGS}")
