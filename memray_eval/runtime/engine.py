"""vLLM through Ray Data LLM: the processor that turns rows with messages into rows with answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memray_eval.clients.embedded_model import resolve_model
from memray_eval.config import EngineConfig
from memray_eval.runtime.plan import STAGE_CPUS, TASK_CPUS, Device
from memray_eval.types import Sampling

RECORD, MESSAGES, SAMPLING = "record", "messages", "sampling_params"


def sampling_params(sampling: Sampling) -> dict[str, Any]:
    """vLLM's SamplingParams, as Ray Data LLM takes them in a row."""
    return sampling.model_dump(mode="json")


def build_engine(config: EngineConfig, model: str, device: Device) -> Any:
    """A ray.data.llm processor: {record, messages, sampling_params} -> the same with generated_text, tokens and metrics.

    A prompt that the engine refuses is a row with `__inference_error__`.
    """
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig  # seconds to import: only where an engine is built

    processor = vLLMEngineProcessorConfig(
        model_source=resolve_model(model),
        engine_kwargs=engine_kwargs(config, device),
        concurrency=(config.replicas, config.replicas),
        batch_size=config.batch_size,
        max_concurrent_batches=config.concurrent_batches,
        accelerator_type=config.accelerator_type,
        placement_group_config={"bundles": _bundles(config, device)},
        runtime_env={"env_vars": _environment(config, model, device)},
        should_continue_on_error=True,
        log_engine_metrics=False,  # vLLM's exporter imports ray.serve, which is not in the set
        chat_template_stage={
            "enabled": True,
            "num_cpus": STAGE_CPUS,
            "concurrency": 1,
            "batch_size": config.batch_size,
        },
        tokenize_stage={"enabled": False},
        detokenize_stage={"enabled": False},
        prepare_multimodal_stage={"enabled": False},
    )
    return build_processor(
        processor,
        preprocess=_identity,
        postprocess=_identity,
        preprocess_map_kwargs={"num_cpus": TASK_CPUS},
        postprocess_map_kwargs={"num_cpus": TASK_CPUS},
    )


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


def stop_token_ids(model: str) -> frozenset[int]:
    """The ids that end an answer, from the generation config of a model folder; empty for a hub's name."""
    try:
        text = (Path(resolve_model(model)) / "generation_config.json").read_text("utf-8")
    except OSError:
        return frozenset()
    ids = json.loads(text).get("eos_token_id")
    return frozenset(ids if isinstance(ids, list) else [ids] if isinstance(ids, int) else [])


def _bundles(config: EngineConfig, device: Device) -> list[dict[str, float]]:
    """One bundle a worker: tensor x pipeline parallel."""
    bundle = {"CPU": config.cpus} | ({"GPU": 1.0} if device == "gpu" else {})
    return [dict(bundle) for _ in range(config.tensor_parallel * config.pipeline_parallel)]


def _environment(config: EngineConfig, model: str, device: Device) -> dict[str, str]:
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        variables["VLLM_CPU_KVCACHE_SPACE"] = f"{max(1, round(config.kv_cache_gib))}"
    if Path(resolve_model(model)).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    return row
