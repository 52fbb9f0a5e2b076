"""vLLM through Ray Data LLM: the processor that turns rows with messages into rows with answers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import TASK_CPUS, Device
from memray_eval.execution.prompt_stage import RECORD, TOKENS
from memray_eval.execution.ray.cluster import QUIET_VLLM, keep_own_signals
from memray_eval.execution.ray.log_collection import UNASKED, follow_engine_output
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    GroupSpec,
    accelerator_share,
)
from memray_eval.execution.ray.ray_compat import (
    engine_stage_class,
    is_restarted_actor,
    worker_output_path,
)
from memray_eval.execution.stage_context import StageContext
from memray_eval.models.embedded_model import resolve_model
from memray_eval.results.parts import UnitNumbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record

logger = logging.getLogger(__name__)
_STAGES = "ray.llm._internal.batch.stages.vllm_engine_stage"


def import_engine() -> None:
    """Imports what `build_engine` needs, vLLM among it: seconds, which a thread may spend before
    it is called. What cannot be imported is raised there."""
    with suppress(Exception):
        importlib.import_module(_STAGES)


def build_engine(
    config: EngineConfig,
    model: str,
    device: Device,
    placement: EnginePlacement,
    task_options: Mapping[str, Any],
    context: StageContext | None = None,
) -> Any:
    """A ray.data.llm processor: rows of ENGINE_SCHEMA (execution/ray/prompt_stage.py) -> the same
    with generated_text, generated_tokens, finish_reason, num_input_tokens, num_cached_tokens and
    metrics, and without the prompt's tokens. Its engines are in the groups of `placement`, and
    `task_options` are Ray's options of the tasks around them.

    A prompt that the engine refuses is a row with `__inference_error__`. The engines' warnings go
    to the counter of the run's `context`, and an engine that was lost and is started anew takes the
    responses in the run's folder.
    """
    # Seconds to import: only where an engine is built
    from ray.data.llm import (
        build_processor,
        vLLMEngineProcessorConfig,
    )

    logger.info("starting %d engines of %s on the %s", config.replicas, model, device)
    # The driver is quieter than its engines, whose warnings the run's log takes
    level = os.environ.get("VLLM_LOGGING_LEVEL", QUIET_VLLM)
    environment = engine_environment(config, model, device)
    environment["VLLM_LOGGING_LEVEL"] = "INFO" if level == QUIET_VLLM else level
    # Prompts come as tokens: they had to be counted, and maybe cut
    processor = vLLMEngineProcessorConfig(
        model_source=resolve_model(model),
        engine_kwargs=engine_kwargs(config, device),
        concurrency=(config.replicas, config.replicas),
        batch_size=config.batch_size,
        max_concurrent_batches=config.concurrent_batches,
        accelerator_type=config.accelerator_type,
        placement_group_config=_bundles(config, device),
        runtime_env={"env_vars": environment},
        should_continue_on_error=True,
        log_engine_metrics=False,  # vLLM's exporter imports ray.serve, which is not in the set
        chat_template_stage={"enabled": False},
        tokenize_stage={"enabled": False},
        detokenize_stage={"enabled": False},
        prepare_multimodal_stage={"enabled": False},
    )
    with keep_own_signals():  # it calls ray.init again, or SIGTERM would drain no run any more
        built = build_processor(
            processor,
            preprocess=_identity,
            postprocess=_identity,
            preprocess_map_kwargs={"num_cpus": TASK_CPUS, **task_options},
            postprocess_map_kwargs={"num_cpus": TASK_CPUS, **task_options},
        )
    stage = built.get_stage_by_name("vLLMEngineStage")
    # Past pydantic: an assignment would run the stage's validator again, which has used up its
    # placement group by then.
    vars(stage)["fn"] = telling_engine(context)
    # In place of groups that nobody removes, where an engine has several workers
    stage.map_batches_kwargs["ray_remote_args_fn"] = placement.next_engine
    return built


def engine_kwargs(config: EngineConfig, device: Device) -> dict[str, Any]:
    """What vLLM is started with; `config.engine_kwargs` has the last word on what the run does not
    plan itself."""
    kwargs: dict[str, Any] = {
        "dtype": engine_dtype(config.dtype, device),
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel,
        "pipeline_parallel_size": config.pipeline_parallel,
    }
    if config.max_model_len is not None:
        kwargs["max_model_len"] = config.max_model_len
    if device == "cpu":
        kwargs["enforce_eager"] = True  # no compilation on the CPU: it costs minutes at every start
    if _is_one_process(config, device):
        kwargs["distributed_executor_backend"] = "uni"
    return kwargs | config.engine_kwargs


def _is_one_process(config: EngineConfig, device: Device) -> bool:
    """Whether the model is computed in the engine's own process. vLLM starts another one for it on
    a CPU, which imports everything once more: a fifth of the time to the first answer."""
    one_worker = config.tensor_parallel * config.pipeline_parallel == 1
    backend = config.engine_kwargs.get("distributed_executor_backend", "uni")
    return device == "cpu" and one_worker and backend == "uni"


def engine_dtype(dtype: str, device: Device) -> str:
    """vLLM's `--dtype`: on a CPU, `auto` is bfloat16 only where the processor of this node computes
    in it. One without (AVX2) emulates it: 60 GFLOPS of float32 and 9 of bfloat16 on one core."""
    if dtype != "auto" or device == "gpu":
        return dtype
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8", "replace").split()
    except OSError:  # not Linux
        flags = []
    return "bfloat16" if "avx512_bf16" in flags else "float32"


def group_of_engine(config: EngineConfig, device: Device) -> GroupSpec:
    """What the placement group of one engine asks for. A bundle holds one worker, or all where
    vLLM starts them itself, as processes of the actor."""
    asked = _bundles(config, device)
    bundles: list[dict[str, float]] = asked["bundles"]
    workers = len(bundles)
    backend = config.engine_kwargs.get(
        "distributed_executor_backend", "uni" if workers == 1 else "ray"
    )
    if backend != "ray":
        bundles = [{name: amount * workers for name, amount in bundles[0].items()}]
    if config.accelerator_type is not None:
        bundles = [bundle | accelerator_share(config.accelerator_type) for bundle in bundles]
    return GroupSpec(tuple(bundles), asked["strategy"])


def _bundles(config: EngineConfig, device: Device) -> dict[str, Any]:
    """One bundle a worker: tensor x pipeline parallel. Workers of one stage exchange every layer's
    results, so they must lie on one node; the stages of a pipeline may lie on several."""
    bundle = {"CPU": config.cpus} | ({"GPU": 1.0} if device == "gpu" else {})
    bundles = [dict(bundle) for _ in range(config.tensor_parallel * config.pipeline_parallel)]
    return {
        "bundles": bundles,
        "strategy": "STRICT_PACK" if config.pipeline_parallel == 1 else "PACK",
    }


def engine_environment(config: EngineConfig, model: str, device: Device) -> dict[str, str]:
    """The environment variables that vLLM is started with, beside the node's own."""
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        variables["VLLM_CPU_KVCACHE_SPACE"] = f"{max(1, round(config.kv_cache_gib))}"
    if _is_one_process(config, device):
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # else vLLM takes "uni" for "mp"
    if Path(resolve_model(model)).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def telling_engine(context: StageContext | None = None) -> type:
    """Ray Data LLM's engine actor, which also tells why an answer ended and how much of a prompt
    came from the prefix cache, takes prompts as bytes, hands none of their tokens on, and sends
    what vLLM and its processes warn of to the run's counter. One that is started anew, since its
    node was lost, asks for no response that the run's folder has."""

    class TellingEngine(engine_stage_class()):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if context is not None:
                follow_engine_output(context.counter, worker_output_path())
            super().__init__(*args, **kwargs)
            self._told: dict[int, dict[str, Any]] = {}
            self._take_stored: Callable[[list[dict[str, Any]]], None] | None = None
            if context is not None and is_restarted_actor():
                # What this actor is to make again was written before it was started
                index = RunFolder(context.folder).index_responses()
                self._take_stored = partial(take_stored, context=context, index=index)
            generate = self.llm._generate_async

            async def generate_and_tell(request: Any) -> Any:
                # A record that has its error or its response; Ray makes a row of this error
                if not request.prompt_token_ids:
                    raise ValueError(UNASKED)
                output = await generate(request)
                self._told[request.request_id] = {
                    "finish_reason": output.outputs[0].finish_reason,
                    "num_cached_tokens": output.num_cached_tokens,
                }
                return output

            self.llm._generate_async = generate_and_tell

        async def udf(self, batch: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            if self._take_stored is not None:
                await asyncio.to_thread(self._take_stored, batch)
            async for answer in super().udf(batch):
                yield answer

        async def _generate_with_error_handling(
            self, row: dict[str, Any], batch_uuid: Any
        ) -> dict[str, Any]:
            row["tokenized_prompt"] = np.frombuffer(row.pop(TOKENS), np.int32).tolist()
            answer: dict[str, Any] = await super()._generate_with_error_handling(row, batch_uuid)
            row.pop("tokenized_prompt", None)
            told = self._told.pop(
                answer["request_id"], {"finish_reason": None, "num_cached_tokens": None}
            )
            return {**answer, **told, "prompt_token_ids": None}

    return TellingEngine


def take_stored(
    batch: list[dict[str, Any]], context: StageContext, index: Mapping[str, UnitNumbers]
) -> None:
    """Puts the responses that parts of this index have into rows of ENGINE_SCHEMA: there is nothing
    to ask of these any more."""
    units = [Record.model_validate_json(row[RECORD]).unit_id for row in batch]
    stored = context.find_stored(units, index)
    for row, unit in zip(batch, units, strict=True):
        if unit in stored:
            row[RECORD], row[TOKENS] = stored[unit].model_dump_json(), b""


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    return row
