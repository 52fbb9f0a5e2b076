"""vLLM behind Ray Data LLM's stage for it: the actors that turn rows with prompts into rows with
answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data import ActorPoolStrategy, Dataset

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import Device
from memray_eval.execution.prompt_stage import ANSWER_SCHEMA, SAMPLING, TOKENS
from memray_eval.execution.ray.log_collection import follow_engine_output, send_logs_to
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    GroupSpec,
    accelerator_share,
)
from memray_eval.execution.ray.ray_compat import (
    engine_stage_class,
    map_batches_placed,
    worker_output_path,
)
from memray_eval.execution.run_counter import StageReports
from memray_eval.models.embedded_model import resolve_model

logger = logging.getLogger(__name__)
_ROWS = "rows"  # the column that Ray Data LLM's stage takes and gives rows in


def add_engines(
    dataset: Dataset,
    config: EngineConfig,
    model: str,
    device: Device,
    placement: EnginePlacement,
    counter: StageReports | None = None,
) -> Dataset:
    """Adds the stage that has vLLM answer: rows of ENGINE_SCHEMA (execution/prompt_stage.py) ->
    rows of ANSWER_SCHEMA. Its engines are in the groups of `placement`.

    A prompt that the engine refuses is a row with `__inference_error__`. The engines' warnings go
    to the run's `counter`.
    """
    logger.info("starting %d engines of %s on the %s", config.replicas, model, device)
    stage = {
        "batch_size": config.batch_size,
        "max_concurrent_batches": config.concurrent_batches,
        "model": resolve_model(model),
        "engine_kwargs": engine_kwargs(config, device),
        "should_continue_on_error": True,
        "log_engine_metrics": False,  # vLLM's exporter imports ray.serve, which is not in the set
    }
    return map_batches_placed(
        dataset,
        EngineActor,
        placement.next_engine,
        batch_format="pyarrow",
        batch_size=config.batch_size,
        zero_copy_batch=True,
        fn_constructor_args=(partial(telling_engine, counter), stage),
        compute=ActorPoolStrategy(
            size=config.replicas, max_concurrent_calls_per_actor=config.concurrent_batches
        ),
        accelerator_type=config.accelerator_type,
        runtime_env={"env_vars": engine_environment(config, model, device)},
        **_actor_resources(config, device),
    )


class EngineActor:
    """One vLLM engine behind Ray Data LLM's stage for it. `make_stage` makes the stage's class here
    in the actor: vLLM takes 15 s of processor time to import, which the driver need not spend
    before it can start an actor that spends them again."""

    def __init__(self, make_stage: Callable[[], type], options: Mapping[str, Any]) -> None:
        asked = {"data_column": _ROWS, "expected_input_keys": [SAMPLING]}
        self._stage = make_stage()(**asked, **options)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        async for answered in self._stage({_ROWS: table.to_pylist()}):
            yield pa.Table.from_pylist(answered[_ROWS], schema=ANSWER_SCHEMA)


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
    workers = config.tensor_parallel * config.pipeline_parallel
    kwargs["distributed_executor_backend"] = "uni" if workers == 1 else "ray"
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
    """What the placement group of one engine asks for: a bundle for each worker (tensor x pipeline
    parallel), or one for all where vLLM starts them itself, as processes of the actor. Workers of
    one stage exchange every layer's results, so they must lie on one node; the stages of a pipeline
    may lie on several."""
    workers = config.tensor_parallel * config.pipeline_parallel
    bundle = {"CPU": config.cpus} | ({"GPU": 1.0} if device == "gpu" else {})
    bundles: list[dict[str, float]] = [dict(bundle) for _ in range(workers)]
    if not _is_over_ray(config, device):
        bundles = [{name: amount * workers for name, amount in bundle.items()}]
    if config.accelerator_type is not None:
        bundles = [bundle | accelerator_share(config.accelerator_type) for bundle in bundles]
    return GroupSpec(tuple(bundles), "STRICT_PACK" if config.pipeline_parallel == 1 else "PACK")


def _actor_resources(config: EngineConfig, device: Device) -> dict[str, float]:
    """What the engine's actor itself takes of its group; workers behind Ray take theirs."""
    if _is_over_ray(config, device):
        return {"num_gpus": 0}
    (bundle,) = group_of_engine(config, device).bundles
    taken = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0.0)}
    return {name: amount for name, amount in taken.items() if amount}


def _is_over_ray(config: EngineConfig, device: Device) -> bool:
    """Whether the engine's workers are actors of Ray's, on as many nodes as they need."""
    return bool(engine_kwargs(config, device)["distributed_executor_backend"] == "ray")


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


def telling_engine(counter: StageReports | None) -> type:
    """Ray Data LLM's engine actor, which also tells why an answer ended and how much of a prompt
    came from the prefix cache, takes prompts as bytes, hands none of their tokens on, and sends
    what vLLM and its processes warn of to the run's `counter`."""

    class TellingEngine(engine_stage_class()):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if counter is not None:
                follow_engine_output(counter, worker_output_path())
            super().__init__(*args, **kwargs)
            if counter is not None:  # vLLM sets its loggers up when it is imported
                send_logs_to(counter, logging.INFO)
            self._told: dict[int, dict[str, Any]] = {}
            generate = self.llm._generate_async

            async def generate_and_tell(request: Any) -> Any:
                # A record that has its error already; Ray makes a row of this one
                if not request.prompt_token_ids:
                    raise ValueError("there is nothing to ask")
                output = await generate(request)
                self._told[request.request_id] = {
                    "finish_reason": output.outputs[0].finish_reason,
                    "num_cached_tokens": output.num_cached_tokens,
                }
                return output

            self.llm._generate_async = generate_and_tell

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
