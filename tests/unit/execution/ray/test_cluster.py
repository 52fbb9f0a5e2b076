"""How a cluster's address is taken, what others hold of one, the groups that wait for its nodes,
and a run's counter as workers see it. Clusters themselves: tests/processes and tests/clusters."""

import logging
import subprocess
from contextlib import nullcontext
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from memray_eval.config.sections import ClusterConfig
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.plan import Holding
from memray_eval.execution.ray import placement_groups
from memray_eval.execution.ray.cluster import connected, subtract_holdings
from memray_eval.execution.ray.placement_groups import GroupSpec, NodeReservation, pending_groups
from memray_eval.execution.ray.ray_compat import DRIVER_LOGGERS, Held
from memray_eval.execution.ray.reporting import PARTS, REPORTS, RemoteCounter
from memray_eval.execution.run_counter import RunCounter


@pytest.mark.parametrize("address", ["head", "http://head:8265", "127.0.0.1:port"])
def test_what_is_no_address_is_a_message_and_loggers_are_left_as_they_were(address: str) -> None:
    before = {name: logging.getLogger(name).level for name in DRIVER_LOGGERS}
    with (
        pytest.raises(ConfigError, match=r"cluster\.address .*: write auto, or HEAD:6379"),
        connected(ClusterConfig(address=address)),
    ):
        pytest.fail("connected")
    assert before == {name: logging.getLogger(name).level for name in DRIVER_LOGGERS}


@pytest.mark.parametrize("slow", [2, 3])
def test_a_local_ray_that_starts_too_slowly_is_started_again(
    slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[subprocess.Popen[bytes]]()

    def start(**settings: Any) -> None:
        begun.append(subprocess.Popen(["sleep", "600"]))
        if len(begun) <= slow:
            raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "init", start)
    ends = nullcontext() if slow < 3 else pytest.raises(ResourceError, match="Ray cannot start")
    with ends, connected(ClusterConfig()):
        assert slow < 3
    last = begun.pop()
    assert (len(begun), last.poll()) == (2, None)  # what the slow ones began is gone
    assert all(process.poll() is not None for process in begun)
    last.kill()
    last.wait()


NODES = {"a": {"CPU": 8.0, "GPU": 4.0, "memory": 16.0 * 2**30}, "b": {"CPU": 4.0}}
OURS, THEIRS = "01000000", "02000000"


def test_what_others_hold_is_not_this_jobs_to_take() -> None:
    held = [
        Held(THEIRS, "a", {"GPU": 2.0, "CPU": 1.0, "memory": 2.0 * 2**30}),
        Held(THEIRS, "a", {"GPU": 1.0, "accelerator_type:H100": 0.001}),
        Held(THEIRS, "gone", {"CPU": 4.0}),
        Held(OURS, "b", {"CPU": 1.0}),
    ]
    free = {"a": {"CPU": 7.0, "GPU": 1.0}, "b": {"CPU": 3.0}}
    left, holdings = subtract_holdings(NODES, free, held, {THEIRS: "train.py"}, OURS)
    assert left["a"] | {"memory": 0} == {"CPU": 7.0, "GPU": 1.0, "memory": 0}
    assert left["b"] == {"CPU": 4.0}, "what this job holds is its own"
    assert holdings == (Holding(job="job 02000000 (train.py)", cpus=1, gpus=3, memory_gib=2),)
    assert str(holdings[0]) == "job 02000000 (train.py): 3 GPUs, 1 CPUs, 2 GiB of memory"


@pytest.mark.parametrize(
    ("others", "cpus", "holdings"),
    [
        ({THEIRS: "etl.py"}, 2.0, ["tasks that run now, of job 02000000 (etl.py): 6 CPUs"]),
        ({}, 8.0, []),  # an earlier run of this process has left them
    ],
)
def test_what_is_neither_free_nor_held_is_with_the_tasks_of_others(
    others: dict[str, str], cpus: float, holdings: list[str]
) -> None:
    free = {"a": {"CPU": 2.0, "GPU": 4.0}, "b": {"CPU": 4.0}}
    left, held = subtract_holdings(NODES, free, [], others | {OURS: ""}, OURS)
    assert (left["a"]["CPU"], list(map(str, held))) == (cpus, holdings)


def test_what_an_ended_job_has_left_running_is_held_too() -> None:
    held = [Held(THEIRS, "b", {"CPU": 3.0})]
    left, (holding,) = subtract_holdings(NODES, NODES, held, {OURS: ""}, OURS)
    assert left["b"]["CPU"] == 1.0
    assert "02000000 (which has ended, and left what it holds): 3 CPUs" in str(holding)


OF_RUN = "memray_eval 1700000000.500000"
ENGINE = "memray_eval-engine 1700000000.500000 org/model"
BUNDLES = {0: {"CPU": 1.0, "GPU": 1.0}, 1: {"CPU": 1.0, "GPU": 1.0}}


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        (f"{ENGINE} 1a2b3c4d", "PENDING", "org/model"),
        (f"{OF_RUN} read and fold tasks 1a2b3c4d", "RESCHEDULING", "read and fold tasks"),
        (f"{OF_RUN} 1a2b3c4d", "PENDING", ""),  # of an earlier version
        (f"{ENGINE} 1a2b3c4d", "CREATED", None),
        ("somebody else's", "PENDING", None),
        ("", "PENDING", None),
    ],
)
def test_the_groups_of_our_runs_are_read_by_their_names(
    name: str, state: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: dict[str, Any] = {"id": {"name": name, "state": state, "bundles": BUNDLES}}
    monkeypatch.setattr(placement_groups, "placement_group_table", lambda: table)
    groups = [(group.owner, dict(group.resources), group.since) for group in pending_groups()]
    resources = {"CPU": 2.0, "GPU": 2.0}
    assert groups == ([] if expected is None else [(expected, resources, 1700000000.5)])


@pytest.mark.parametrize("moment", [1700000000 + n / 10_000_000 for n in range(10)])
def test_a_run_that_has_some_of_its_nodes_lets_go_for_no_group_of_its_own(
    moment: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list[str]()

    def put(bundles: object, name: str, **_: object) -> str:
        names.append(name)
        return name

    def table(group: str | None = None) -> dict[str, Any]:
        states = {"name": group, "state": "CREATED" if group == names[0] else "PENDING"}
        listed = {name: table(name) | {"bundles": BUNDLES} for name in names if group is None}
        return listed or states

    monkeypatch.setattr(ray.util, "placement_group", put)
    monkeypatch.setattr(ray.util, "remove_placement_group", lambda _: None)
    monkeypatch.setattr(placement_groups, "placement_group_table", table)
    monkeypatch.setattr(placement_groups, "PATIENCE_S", 0.0)
    monkeypatch.setattr(placement_groups, "POLL_S", 0.001)
    monkeypatch.setattr(placement_groups.time, "time", lambda: moment)
    two = [GroupSpec(({"GPU": 1.0},)), GroupSpec(({"GPU": 2.0},))]
    assert not NodeReservation().wait_for(two, 0.02, lambda: True)
    assert len(names) == 2  # asked for once


def test_what_is_reported_goes_to_a_method_of_the_counter() -> None:
    sent = list[tuple[object, ...]]()
    actor = SimpleNamespace(call=SimpleNamespace(remote=lambda *values: sent.append(values)))
    RemoteCounter(actor).add("judge", 3, 0.0, 1.0)
    assert sent == [("add", "judge", 3, 0.0, 1.0)]
    for name in (*REPORTS, *(f"{part}.{name}" for part, of in PARTS.items() for name in of)):
        assert callable(attrgetter(name)(RunCounter()))
    with pytest.raises(AttributeError):
        RemoteCounter(SimpleNamespace()).absent  # noqa: B018
