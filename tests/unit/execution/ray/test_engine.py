"""What the placement group of an engine asks for: Ray Data LLM's own request must fit into it."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import Device
from memray_eval.execution.ray.engine import engine_environment, engine_kwargs
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
