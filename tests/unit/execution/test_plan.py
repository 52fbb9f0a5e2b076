import math
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ResourceError
from memray_eval.execution.plan import (
    ENGINE_CHARS,
    Capacity,
    Device,
    Holding,
    JudgePool,
    Node,
    blocks_in_flight,
    check_room,
    engine_device,
    engines_at_first,
    fit_engine,
    judge_pool,
    pipeline_pools,
)
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.run_plan import RunSpec
from memray_eval.judges.judge_factory import IN_FLIGHT

STEP = "max_num_batched_tokens"


def config(**overrides: Any) -> RunSpec:
    job = {"dataset": "d", "candidates": [{"name": "a", "model": "m"}]} | overrides
    return resolve(RunConfig.model_validate(job))


def capacity(cpus: float = 2, gpus: float = 0, memory_gib: float = 16) -> Capacity:
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory_gib)


def test_the_default_plan_fits_two_cores() -> None:
    job = config()
    check_room(pipeline_pools(job, job.config.candidates, "cpu"), capacity())


@pytest.mark.parametrize(
    ("overrides", "device", "message"),
    [
        ({"engine": {"replicas": 80}}, "cpu", r"needs 81\.\d+ CPUs .* 64;[^$]*engine\.replicas"),
        ({"embedding": {"actors": 300}}, "cpu", r"Lower embedding\.actors"),
        ({"engine": {"tensor_parallel": 8}}, "gpu", "needs 8 GPUs .* 4;[^$]*engine.device: cpu"),
        ({"engine": {"kv_cache_gib": 40}}, "cpu", "GiB of memory and this machine has 16"),
    ],
)
def test_what_could_hang_is_refused_with_what_to_change(
    overrides: dict[str, Any], device: Any, message: str
) -> None:
    job = config(**overrides)
    with pytest.raises(ResourceError, match=message) as raised:
        check_room(pipeline_pools(job, job.config.candidates, device), capacity(64, 4))
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    ("replicas", "gpus", "begin"),
    [
        ({"min": 1, "max": 8}, 3, 3),
        ({"min": 1, "max": 2}, 3, 2),
        ({"min": 2, "max": 8}, 1, 2),  # too few: the check of room tells of that
        (4, 8, 4),
    ],
)
def test_of_a_range_as_many_engines_begin_as_find_room(
    replicas: Any, gpus: float, begin: int
) -> None:
    job = config(engine={"replicas": replicas, "device": "gpu", "cpus": 0.1})
    pools = pipeline_pools(job, job.config.candidates, "gpu")
    room = capacity(64, gpus)
    assert engines_at_first(job.config.engine, pools, room) == begin
    nodes = tuple(Node(cpus=8, gpus=1) for _ in range(int(gpus)))
    on_nodes = room.model_copy(update={"nodes": nodes})
    assert engines_at_first(job.config.engine, pools, on_nodes) == begin


def test_a_plan_needs_the_least_of_a_range() -> None:
    job = config(
        engine={"replicas": {"min": 2, "max": 8}, "device": "gpu"},
        judging={"actors": 2, "cpus": 1.0},
    )
    pool = judge_pool(job, 64, 16)
    assert pool.actors == 2
    pools = pipeline_pools(job, job.config.candidates, "gpu", judge_actors=pool.actors)
    check_room(pools, capacity(8, 2))
    with pytest.raises(ResourceError, match=r"the plan needs 2 GPUs and this machine has 1;"):
        check_room(pools, capacity(8, 1))


def test_gpus_are_taken_where_there_are_any() -> None:
    assert engine_device(config(), gpus=0) == "cpu"
    assert engine_device(config(), gpus=8) == "gpu"
    assert engine_device(config(), shared(cpus=16, gpus=0).all_gpus) == "gpu"  # others hold them
    assert engine_device(config(engine={"device": "cpu"}), gpus=8) == "cpu"


def test_the_first_metric_that_the_user_names_is_the_quality() -> None:
    for metrics in (["relevance", "memory_utilization"], ["memory_utilization", "relevance"]):
        assert config(suite="memory", metrics=metrics).suite.quality_metric(metrics) == metrics[0]


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


@pytest.mark.parametrize(
    ("engine", "mean_chars", "device", "fitted"),
    [
        ({}, 2_000, "cpu", (64, 16, 8, None)),
        ({}, 2_000, "gpu", (256, 16, 32, 8_192)),
        ({}, 400_000, "gpu", (64, 10, 12, 16_384)),
        ({"max_num_seqs": 512}, 2_000, "gpu", (512, 16, 64, 8_192)),
        ({"max_num_seqs": 9_000}, 2_000, "gpu", (9_000, 16, 1_125, 9_000)),
        ({"max_num_seqs": 4}, 2_000, "cpu", (4, 16, 2, None)),
        ({"concurrent_batches": 3}, 2_000, "cpu", (64, 16, 3, None)),
        ({"engine_kwargs": {STEP: 4_096}}, 2_000, "gpu", (256, 16, 32, 4_096)),
    ],
)
def test_an_engine_has_enough_prompts_for_all_its_sequences(
    engine: dict[str, Any], mean_chars: float, device: Device, fitted: tuple[Any, ...]
) -> None:
    result = fit_engine(EngineConfig.model_validate(engine), mean_chars, device)
    step = result.engine_kwargs.get(STEP)
    assert (result.max_num_seqs, result.batch_size, result.concurrent_batches, step) == fitted


@pytest.mark.parametrize(
    ("engine", "mean_chars", "block_rows", "rows"),
    [
        ({}, 500, 256, 16),
        ({"replicas": 8}, 500, 256, 32),
        ({"replicas": {"min": 1, "max": 64}}, 500, 256, 128),
        ({"replicas": 64}, 500, 40, 40),  # few samples
        ({"replicas": 64, "max_num_seqs": 20}, 500, 256, 20),
        ({"replicas": 64}, 400_000, 256, 10),
        ({"replicas": 64, "batch_size": 8}, 500, 256, 8),
    ],
)
def test_many_engines_have_larger_batches_of_short_prompts(
    engine: dict[str, Any], mean_chars: float, block_rows: int, rows: int
) -> None:
    config = EngineConfig.model_validate(engine)
    fitted = fit_engine(config, mean_chars, "gpu", block_rows)
    assert fitted.rows == rows
    in_flight = rows * (fitted.concurrent_batches or 0)
    assert in_flight >= min(2 * (fitted.max_num_seqs or 0), ENGINE_CHARS // mean_chars) - rows


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"engine_kwargs": {"tensor_parallel_size": 2}}, "write engine.tensor_parallel instead"),
        ({"engine_kwargs": {"data_parallel_size": 2}}, "write engine.data_parallel instead"),
        ({"engine_kwargs": {"max_num_seqs": 512}}, "write engine.max_num_seqs instead"),
        ({"tensor_parallel": 2, "cpus": 0.5}, "cpus is 0.5.*2 workers.*write cpus: 1 or more"),
    ],
)
def test_what_the_plan_could_not_count_is_refused(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EngineConfig.model_validate(engine)


def shared(cpus: float, gpus: float, nodes: tuple[Node, ...] = ()) -> Capacity:
    """A cluster of which another job holds four GPUs."""
    other = Holding(job="job 02000000 (train.py)", gpus=4, cpus=8)
    return Capacity(
        where="the cluster", cpus=cpus, gpus=gpus, memory_gib=64, nodes=nodes, holdings=(other,)
    )


def test_a_refusal_says_who_holds_what_the_run_lacks() -> None:
    job = config(engine={"tensor_parallel": 4, "device": "gpu"})
    with pytest.raises(ResourceError) as raised:
        check_room(pipeline_pools(job, job.config.candidates, "gpu"), shared(cpus=16, gpus=2))
    message = str(raised.value)
    assert "needs 4 GPUs and the cluster has 2 free of 6" in message
    assert "Others hold:\n  job 02000000 (train.py): 4 GPUs, 8 CPUs" in message
    assert "cluster.wait_s" in message


def test_an_actor_needs_memory_on_its_node_as_well() -> None:
    job = config(engine={"device": "gpu"})
    pools = pipeline_pools(job, job.config.candidates, "gpu", judge_actors=2)
    roomy, narrow = (
        Node(cpus=8, gpus=1, memory_gib=memory_gib, accelerator_type="H100")
        for memory_gib in (8.0, 1.0)
    )
    check_room(pools, shared(8, 1, (roomy,)))
    with pytest.raises(ResourceError, match=r"room left for .*GiB of memory on one node"):
        check_room(pools, shared(8, 1, (narrow,) * 8))


def test_an_engine_gets_twice_the_blocks_that_it_works_on_but_no_more_than_its_share() -> None:
    engine = EngineConfig(concurrent_batches=32)
    assert blocks_in_flight(engine, 16, engines=8) == 2
    assert blocks_in_flight(engine, math.inf, engines=8) == 64
    assert blocks_in_flight(engine, 3, engines=8) == 1
