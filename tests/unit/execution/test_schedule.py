"""Where a plan finds room on the nodes of a cluster, and which models' engines run side by side."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution import schedule as schedule_module
from memray_eval.execution.plan import (
    Node,
    Pool,
    check_room,
    explain_lack,
    first_homeless,
    judge_actors,
)
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.run_plan import RunSpec
from memray_eval.execution.schedule import (
    Group,
    OnEngineEnd,
    Wave,
    pools_beside,
    run_waves,
    schedule,
    wave_pools,
)
from memray_eval.types import Candidate
from tests.conftest import HANG_S
from tests.unit.execution.near import cluster

BIG, SMALL, SERVED = "org/big", "org/small", "org/served"
H100 = Node(cpus=32, gpus=8, accelerator_type="H100")
T4 = Node(cpus=8, gpus=1, accelerator_type="T4")
CPUS = Node(cpus=16)


def config(**overrides: Any) -> RunSpec:
    candidates = [
        {"name": "big", "model": BIG},
        {"name": "big-warm", "model": BIG, "sampling": {"temperature": 0.7}},
        {"name": "small", "model": SMALL},
        {"name": "served", "model": SERVED, "backend": "openai", "base_url": "http://x"},
    ]
    job = {"dataset": "d", "candidates": candidates} | overrides
    return resolve(RunConfig.model_validate(job))


def names(waves: list[tuple[Group, ...]]) -> list[list[str]]:
    return [[group[0].model for group in wave] for wave in waves]


@pytest.mark.parametrize(
    ("pools", "nodes", "homeless"),
    [
        ([Pool("e", 1, cpus=1, gpus=4)], (H100,), None),
        ([Pool("e", 2, cpus=1, gpus=4)], (H100,), None),
        ([Pool("e", 3, cpus=1, gpus=4)], (H100,), "e"),
        ([Pool("e", 1, cpus=1, gpus=2)], (T4, T4), "e"),  # two GPUs, but on two nodes
        ([Pool("e", 2, cpus=1, gpus=1)], (T4, T4), None),
        ([Pool("e", 1, cpus=1, gpus=1, accelerator_type="T4")], (H100,), "e"),
        ([Pool("e", 1, cpus=1, gpus=1, accelerator_type="T4")], (H100, T4), None),
        ([Pool("j", 1, cpus=20)], (CPUS, CPUS), "j"),
        ([Pool("j", 1, cpus=20)], (), None),  # nodes unknown: only the sums are checked
        # Judges leave the CPUs of GPU nodes to the engines, which take all of them
        ([Pool("j", 16, cpus=1), Pool("e", 8, cpus=4, gpus=1)], (H100, CPUS), None),
        ([Pool("j", 16, cpus=1), Pool("e", 8, cpus=4, gpus=1)], (H100,), "j"),
        # Engines of a kind come before those of any
        (
            [Pool("any", 1, cpus=1, gpus=1), Pool("e", 1, cpus=1, gpus=1, accelerator_type="T4")],
            (T4, Node(cpus=8, gpus=1, accelerator_type="L4")),
            None,
        ),
    ],
)
def test_each_actor_needs_a_node_with_room(
    pools: list[Pool], nodes: tuple[Node, ...], homeless: str | None
) -> None:
    pool = first_homeless(pools, nodes)
    assert (pool and pool.name) == homeless


def test_what_finds_no_room_is_refused_with_the_nodes_that_there_are() -> None:
    job = config(engines={BIG: {"tensor_parallel": 4, "accelerator_type": "H100"}})
    room = cluster(T4, T4, T4, T4, CPUS)
    with pytest.raises(ResourceError, match="no node of the cluster has room") as raised:
        check_room(wave_pools(job, [(job.config.candidates[0],)], room, "gpu"), room)
    message = str(raised.value)
    assert "4 CPUs and 4 GPUs of type H100 on one node" in message
    assert "4 x 8 CPUs and 1 GPUs of type T4" in message
    assert "cluster.wait_s" in message


@pytest.mark.parametrize(
    ("engine", "fits"),
    [
        ({"pipeline_parallel": 2}, True),
        ({"tensor_parallel": 2, "nodes": 2}, True),
        ({"tensor_parallel": 2}, False),
        ({"data_parallel": 2}, False),
        ({"tensor_parallel": 4, "nodes": 2}, False),
    ],
)
def test_an_engine_lies_on_several_nodes_if_its_parts_do(
    engine: dict[str, Any], fits: bool
) -> None:
    job, room = config(engine=engine), cluster(T4, T4, CPUS)
    pools = wave_pools(job, [(job.config.candidates[0],)], room, "gpu")
    assert (explain_lack(pools, room) is None) == fits


@pytest.mark.parametrize(
    ("at_once", "device", "nodes", "waves"),
    [
        ("auto", "cpu", (CPUS,), [[SERVED], [BIG], [SMALL]]),
        ("auto", "gpu", (H100, CPUS), [[SERVED, BIG, SMALL]]),
        # One GPU: one engine after the other
        ("auto", "gpu", (T4, CPUS), [[SERVED, BIG], [SMALL]]),
        (1, "gpu", (H100, CPUS), [[SERVED], [BIG], [SMALL]]),
        (2, "gpu", (H100, CPUS), [[SERVED, BIG], [SMALL]]),
        (2, "gpu", (T4, CPUS), [[SERVED, BIG], [SMALL]]),
        # Asked for, so refused by the check rather than parted
        (3, "gpu", (T4, CPUS), [[SERVED, BIG, SMALL]]),
    ],
)
def test_models_run_side_by_side_where_they_fit(
    at_once: Any, device: Any, nodes: tuple[Node, ...], waves: Any
) -> None:
    job = config(cluster={"models_at_once": at_once})
    assert names(schedule(job, cluster(*nodes), device)) == waves


def test_pipelines_side_by_side_share_the_judges_and_their_engine() -> None:
    job = config(judging={"actors": 6}, judge="embedded", metrics=["empathy"])
    wave = schedule(job, cluster(H100, CPUS), "gpu")[0]
    pools = wave_pools(job, wave, cluster(H100, CPUS), "gpu")
    assert judge_actors(job, 48, len(wave)) == 2
    assert [pool.actors for pool in pools if pool.name == "judges"] == [2, 2, 2]
    assert sum(pool.name == "embedded judge" for pool in pools) == 1


def test_a_model_has_an_engine_of_its_own() -> None:
    job = config(
        engine={"max_num_seqs": 8},
        engines={BIG: {"tensor_parallel": 4, "accelerator_type": "H100"}},
    )
    big, small = job.config.engine_of(BIG), job.config.engine_of(SMALL)
    assert (big.tensor_parallel, big.accelerator_type, big.max_num_seqs) == (4, "H100", 8)
    assert (small.tensor_parallel, small.accelerator_type, small.max_num_seqs) == (1, None, 8)


@pytest.mark.parametrize(
    ("changed", "needs"),
    [
        ({}, (1, 0.25, 1.0, None)),
        ({"replicas": 2, "accelerator_type": "H100"}, (2, 0.25, 1.0, "H100")),
        ({"tensor_parallel": 4, "replicas": {"min": 1, "max": 3}}, (1, 4.0, 4.0, None)),
        ({"tensor_parallel": 4, "pipeline_parallel": 2, "cpus": 2}, (2, 8.0, 4.0, None)),
    ],
)
def test_a_judge_has_engines_of_its_own(changed: dict[str, Any], needs: tuple[Any, ...]) -> None:
    """Not the candidates': of `engine` it has the device, the window and the numbers' type."""
    engine = {"replicas": 3, "tensor_parallel": 2, "max_model_len": 512, "cpus": 3}
    job = config(
        engine=engine, engines={"org/j": changed}, judge="embedded:org/j", metrics=["empathy"]
    )
    assert job.judge_engine.max_model_len == 512
    wave = schedule(job, cluster(H100, CPUS), "gpu")[0]
    pools = wave_pools(job, wave, cluster(H100, CPUS), "gpu")
    (pool,) = [pool for pool in pools if pool.name == "embedded judge"]
    assert (pool.actors, pool.cpus, pool.gpus, pool.accelerator_type) == needs


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ({"org/bgi": {"replicas": 2}}, "no vLLM candidate or judge has the model 'org/bgi'"),
        ({SERVED: {"replicas": 2}}, f"no vLLM candidate or judge has the model '{SERVED}'"),
        ({"org/j": {"replica": 2}}, "replica: no such key; did you mean 'replicas'"),
        ({BIG: {"device": "cpu"}}, "set engine.device"),
        ({BIG: {"replica": 2}}, "replica: no such key; did you mean 'replicas'"),
        ({BIG: {"replicas": 0}}, f"engines: {BIG}.replicas: must be 1 or more"),
    ],
)
def test_engines_that_cannot_be_are_named(engines: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, ConfigError), match="engines") as raised:
        config(engines=engines, judge="embedded:org/j", metrics=["empathy"])
    assert message in str(raised.value)


def groups(*models: str) -> list[Group]:
    return [(Candidate(name=model, model=model),) for model in models]


def run(
    waves: list[list[Group]],
    work: Callable[[Group, OnEngineEnd], None],
    stop: Callable[[str], object] = pytest.fail,
    has_room: bool = True,
) -> list[tuple[str, ...]]:
    """Runs the waves; which models' tails were up when each wave began."""
    tails = list[tuple[str, ...]]()

    def begin(wave: Wave, up: Sequence[Wave]) -> Callable[[Group, OnEngineEnd], None]:
        tails.append(tuple(group[0].model for wave_up in up for group in wave_up))
        return work

    run_waves([tuple(wave) for wave in waves], begin, lambda up, wave: has_room, stop)
    return tails


def test_when_one_fails_the_others_are_told_and_its_error_is_raised() -> None:
    stopped, ended = threading.Event(), list[str]()

    def work(group: Group, on_engine_end: OnEngineEnd) -> None:
        if group[0].model == "bad":
            raise ConfigError("no such model")
        assert stopped.wait(10)
        time.sleep(0.2)
        ended.append(group[0].model)

    with pytest.raises(ConfigError, match="no such model"):
        run([groups("bad", "good"), groups("never")], work, stop=lambda reason: stopped.set())
    assert ended == ["good"]  # what was under way


@pytest.mark.usefixtures("interruptible")
def test_who_interrupts_a_run_does_not_wait_for_its_pipelines() -> None:
    stopped, is_over = list[str](), threading.Event()
    main = threading.get_ident()

    def work(group: Group, on_engine_end: OnEngineEnd) -> None:
        if group[0].model == "b":
            time.sleep(0.2)
            signal.pthread_kill(main, signal.SIGINT)
        is_over.wait(2 * HANG_S)

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([groups("a", "b"), groups("c")], work, stop=stopped.append)
    is_over.set()
    assert stopped == ["interrupted"]
    assert time.monotonic() - before < HANG_S


def test_a_wave_begins_beside_the_end_of_the_last_where_it_fits() -> None:
    last_is_up, done = threading.Event(), []

    def work(group: Group, on_engine_end: OnEngineEnd) -> None:
        if group[0].model == "last":
            assert on_engine_end is None  # no model waits for its nodes
            last_is_up.set()
        else:  # both at the same time: each waits for the last, which begins after their ends
            on_engine_end()
            assert last_is_up.wait(10)  # it judges on until the next model has begun
        done.append(group[0].model)

    assert run([groups("a", "b"), groups("last")], work) == [(), ("a", "b")]
    assert sorted(done) == ["a", "b", "last"]


@pytest.mark.heavy
@pytest.mark.parametrize(("has_ended", "has_room"), [(True, False), (False, True)])
def test_a_wave_waits_for_the_end_of_the_last_else(has_ended: bool, has_room: bool) -> None:
    done = []

    def work(group: Group, on_engine_end: OnEngineEnd) -> None:
        if on_engine_end is not None and has_ended:
            on_engine_end()
        time.sleep(2 * schedule_module.LOOK_S)
        done.append(group[0].model)

    waves = [groups("a"), groups("b"), groups("c")]
    assert run(waves, work, has_room=has_room) == [(), (), ()]
    assert done == ["a", "b", "c"]


def test_a_model_beside_the_end_of_another_needs_room_for_both() -> None:
    job = config(judging={"actors": 6}, judge="embedded", metrics=["empathy"])
    everything = cluster(H100, CPUS)
    (big,), (small,) = groups(BIG), groups(SMALL)
    beside = pools_beside(job, [(big,)], (small,), everything, "gpu")
    assert sum(pool.name == "vLLM engine" for pool in beside) == 1  # those of the tail have ended
    assert [pool.actors for pool in beside if pool.name == "judges"] == [6, 6]
    unscored = pools_beside(job, [(big,)], (small,), everything, "gpu", scores=False)
    assert not any(pool.name == "judges" for pool in unscored)
    assert [pool.actors for pool in unscored if pool.name == "writers"] == [1, 1]
