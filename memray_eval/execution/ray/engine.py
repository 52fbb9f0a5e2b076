"""vLLM through Ray Data LLM: the processor that turns rows with messages into rows with answers."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import TASK_CPUS, Device
from memray_eval.execution.ray.prompt_stage import TOKENS
from memray_eval.execution.ray.ray_compat import engine_stage_class
from memray_eval.models.embedded_model import resolve_model

logger = logging.getLogger(__name__)


def build_engine(config: EngineConfig, model: str, device: Device) -> Any:
    """A ray.data.llm processor: rows of ENGINE_SCHEMA (execution/ray/prompt_stage.py) -> the same
    with generated_text, generated_tokens, finish_reason, num_input_tokens, num_cached_tokens and
    metrics, and without the prompt's tokens.

    A prompt that the engine refuses is a row with `__inference_error__`.
    """
    # Seconds to import: only where an engine is built
    from ray.data.llm import (
        build_processor,
        vLLMEngineProcessorConfig,
    )

    logger.info("starting %d engines of %s on the %s", config.replicas, model, device)
    # Prompts come as tokens: they had to be counted, and maybe cut
    processor = vLLMEngineProcessorConfig(
        model_source=resolve_model(model),
        engine_kwargs=engine_kwargs(config, device),
        concurrency=(config.replicas, config.replicas),
        batch_size=config.batch_size,
        max_concurrent_batches=config.concurrent_batches,
        accelerator_type=config.accelerator_type,
        placement_group_config=_placement(config, device),
        runtime_env={"env_vars": _environment(config, model, device)},
        should_continue_on_error=True,
        log_engine_metrics=False,  # vLLM's exporter imports ray.serve, which is not in the set
        chat_template_stage={"enabled": False},
        tokenize_stage={"enabled": False},
        detokenize_stage={"enabled": False},
        prepare_multimodal_stage={"enabled": False},
    )
    built = build_processor(
        processor,
        preprocess=_identity,
        postprocess=_identity,
        preprocess_map_kwargs={"num_cpus": TASK_CPUS},
        postprocess_map_kwargs={"num_cpus": TASK_CPUS},
    )
    # Past pydantic: an assignment would run the stage's validator again, which has used up its
    # placement group by then.
    vars(built.get_stage_by_name("vLLMEngineStage"))["fn"] = telling_engine()
    return built


def engine_kwargs(config: EngineConfig, device: Device) -> dict[str, Any]:
    """What vLLM is started with; `config.engine_kwargs` has the last word."""
    kwargs: dict[str, Any] = {
        "dtype": config.dtype,
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel,
        "pipeline_parallel_size": config.pipeline_parallel,
    }
    if config.max_model_len is not None:
        kwargs["max_model_len"] = config.max_model_len
    if device == "cpu":
        kwargs["enforce_eager"] = True  # no compilation on the CPU: it costs minutes at every start
    return kwargs | config.engine_kwargs


def _placement(config: EngineConfig, device: Device) -> dict[str, Any]:
    """One bundle a worker: tensor x pipeline parallel. Workers of one stage exchange every layer's
    results, so they must lie on one node; the stages of a pipeline may lie on several."""
    bundle = {"CPU": config.cpus} | ({"GPU": 1.0} if device == "gpu" else {})
    bundles = [dict(bundle) for _ in range(config.tensor_parallel * config.pipeline_parallel)]
    return {
        "bundles": bundles,
        "strategy": "STRICT_PACK" if config.pipeline_parallel == 1 else "PACK",
    }


def _environment(config: EngineConfig, model: str, device: Device) -> dict[str, str]:
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        variables["VLLM_CPU_KVCACHE_SPACE"] = f"{max(1, round(config.kv_cache_gib))}"
    if Path(resolve_model(model)).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


@cache
def telling_engine() -> type:
    """Ray Data LLM's engine actor, which also tells why an answer ended and how much of a prompt
    came from the prefix cache, takes prompts as bytes, and hands none of their tokens on."""

    class TellingEngine(engine_stage_class()):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
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


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    return row
