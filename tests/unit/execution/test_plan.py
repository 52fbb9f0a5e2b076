from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ResourceError
from memray_eval.execution.capacity import Capacity
from memray_eval.execution.plan import (
    JudgePool,
    check_room,
    engine_device,
    judge_pool,
    pipeline_pools,
)
from memray_eval.execution.prepare import resolve
from memray_eval.execution.run_plan import RunSpec
from memray_eval.judges.judge_factory import IN_FLIGHT


def config(**overrides: Any) -> RunSpec:
    job = {"dataset": "d", "candidates": [{"name": "a", "model": "m"}]} | overrides
    return resolve(RunConfig.model_validate(job))


def capacity(cpus: float = 2, gpus: float = 0, memory_gib: float = 16) -> Capacity:
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory_gib)


def test_the_default_plan_fits_two_cores() -> None:
    job = config()
    check_room(pipeline_pools(job, job.candidates, "cpu"), capacity())


@pytest.mark.parametrize(
    ("overrides", "device", "there", "told"),
    [
        (
            {"engine": {"replicas": 8}},
            "cpu",
            capacity(),
            r"needs 8\.\d+ CPUs and this machine has 2;[^$]*Lower engine\.replicas",
        ),
        ({"embedding": {"actors": 30}}, "cpu", capacity(), r"Lower embedding\.actors"),
        (
            {"engine": {"tensor_parallel": 4, "replicas": 2}},
            "gpu",
            capacity(64, 4),
            "needs 8 GPUs and this machine has 4",
        ),
        ({"engine": {"device": "gpu"}}, "gpu", capacity(), "engine.device: cpu"),
        (
            {"engine": {"kv_cache_gib": 40}},
            "cpu",
            capacity(),
            r"GiB of memory and this machine has 16",
        ),
    ],
)
def test_what_could_hang_is_refused_with_what_to_change(
    overrides: dict[str, Any], device: Any, there: Capacity, told: str
) -> None:
    job = config(**overrides)
    with pytest.raises(ResourceError, match=told) as raised:
        check_room(pipeline_pools(job, job.candidates, device), there)
    assert raised.value.exit_code == 3


def test_gpus_are_taken_where_there_are_any() -> None:
    assert engine_device(config(), gpus=0) == "cpu"
    assert engine_device(config(), gpus=8) == "gpu"
    assert engine_device(config(engine={"device": "cpu"}), gpus=8) == "cpu"


def test_servers_need_no_engine() -> None:
    candidate = {"name": "a", "model": "m", "backend": "openai", "base_url": "http://x"}
    job = config(candidates=[candidate])
    assert "vLLM engine" not in {pool.name for pool in pipeline_pools(job, job.candidates, "cpu")}


def test_judges_and_their_calls_in_flight_follow_from_the_limit_and_the_latency() -> None:
    def pool(cpus: float = 4, **judging: object) -> JudgePool:
        job = config(
            judge="openai/gpt-4o",
            metrics=["empathy", "safety"],
            judging={"base_urls": {"openai": "http://x"}, **judging},
        )
        return judge_pool(job, cpus, rows=16)

    assert pool().actors == 4
    assert pool(cpus=200).actors == 8
    assert pool().max_in_flight == IN_FLIGHT  # no limit is known
    firm = {"limits": {"openai/gpt-4o": {"requests_per_min": 600}}, "latency_s": 2.0}
    assert pool(**firm).max_in_flight == 10  # 10/s x 2 s, twice for the spread, over four actors
    assert pool(**firm, actors=1).max_in_flight == 40
    assert pool(**firm, actors=2, max_in_flight=7) == JudgePool(actors=2, max_in_flight=7, tasks=4)
    assert pool(max_in_flight=400).tasks == 64
