"""What the placement group of an engine asks for: Ray Data LLM's own request must fit into it."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import Device, fit_engine
from memray_eval.execution.ray.engine import (
    _actor_options,
    _stage_options,
    engine_environment,
    engine_kwargs,
)
from memray_eval.execution.ray.placement_groups import group_of_engine

WORKER = {"CPU": 2.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("config", "bundles", "strategy"),
    [
        ({}, (WORKER,), "STRICT_PACK"),
        ({"tensor_parallel": 2}, (WORKER, WORKER), "STRICT_PACK"),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, (WORKER,) * 4, "PACK"),
        (
            {"tensor_parallel": 2, "engine_kwargs": {"distributed_executor_backend": "mp"}},
            ({"CPU": 4.0, "GPU": 2.0},),
            "STRICT_PACK",
        ),
        ({"tensor_parallel": 16, "nodes": 2}, (WORKER,) * 16, "PACK"),
        ({"data_parallel": 8}, ({"CPU": 16.0, "GPU": 8.0},), "STRICT_PACK"),
        (
            {"data_parallel": 2, "tensor_parallel": 4, "pipeline_parallel": 2},
            ({"CPU": 32.0, "GPU": 16.0},),
            "STRICT_PACK",
        ),
        ({"accelerator_type": "H100"}, (WORKER | {"accelerator_type:H100": 0.001},), "STRICT_PACK"),
    ],
)
def test_an_engine_has_a_bundle_a_worker(
    config: dict[str, Any], bundles: tuple[dict[str, float], ...], strategy: str
) -> None:
    engine = EngineConfig.model_validate({"cpus": 2, **config})
    assert group_of_engine(engine, "gpu", "org/model") == (bundles, strategy, "org/model")


def test_an_engine_on_cpus_asks_for_no_gpu() -> None:
    engine = EngineConfig.model_validate({"cpus": 1.5})
    assert group_of_engine(engine, "cpu").bundles == ({"CPU": 1.5},)


@pytest.mark.parametrize(
    ("config", "device", "backend", "variable"),
    [
        ({}, "cpu", "uni", "0"),
        ({"tensor_parallel": 2}, "cpu", None, None),
        ({"data_parallel": 2}, "cpu", None, None),
        ({}, "gpu", None, None),
        ({"engine_kwargs": {"distributed_executor_backend": "mp"}}, "cpu", "mp", None),
    ],
)
def test_one_worker_on_a_cpu_is_the_engines_own_process(
    config: dict[str, Any], device: Device, backend: str | None, variable: str | None
) -> None:
    engine = EngineConfig.model_validate(config)
    assert engine_kwargs(engine, device).get("distributed_executor_backend") == backend
    environment = engine_environment(engine, "org/model", device)
    assert environment.get("VLLM_ENABLE_V1_MULTIPROCESSING") == variable


def test_the_jobs_variables_reach_the_engines_process() -> None:
    env = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_LOGGING_LEVEL": "DEBUG"}
    engine = EngineConfig.model_validate({"env": env})
    devices: tuple[Device, ...] = ("cpu", "gpu")
    for device in devices:
        options = _actor_options(engine, "org/model", device)
        assert env.items() <= options["runtime_env"]["env_vars"].items()


@pytest.mark.parametrize(
    ("config", "size", "pending", "backend"),
    [
        ({}, 1, None, "uni"),
        ({"tensor_parallel": 16, "nodes": 2}, 1, None, "ray"),
        ({"data_parallel": 4, "max_num_seqs": 10}, 4, 44, "mp"),
    ],
)
def test_an_engine_of_several_copies_is_let_all_their_prompts(
    config: dict[str, Any], size: int, pending: int | None, backend: str
) -> None:
    fitted = fit_engine(EngineConfig.model_validate(config), 1_000, "gpu")
    options = _stage_options(fitted, "org/model", "gpu")
    assert options["engine_kwargs"].get("data_parallel_size") == size
    assert options["engine_kwargs"]["distributed_executor_backend"] == backend
    assert options["max_pending_requests"] == pending
    at_once = (fitted.max_num_seqs or 0) * fitted.data_parallel
    assert fitted.rows * (fitted.concurrent_batches or 0) >= at_once
