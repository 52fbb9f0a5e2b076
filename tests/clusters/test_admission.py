"""What a run may count on where other jobs run, and what it is told of them."""

from pathlib import Path
from typing import Any

import pytest
from ray.util.placement_group import placement_group_table

from memray_eval.config.schema import RunConfig
from memray_eval.errors import DataError, ResourceError
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.cluster import wait_for_room
from memray_eval.execution.ray.placement_groups import NodeReservation
from tests.build import embedded_job, finish, wait_until
from tests.clusters.conftest import Nodes, Starts
from tests.clusters.observing import groups
from tests.conftest import HANG_S

pytestmark = pytest.mark.night


def config(out: Path, **settings: Any) -> RunConfig:
    """A run that needs all four GPUs."""
    engine = {"device": "gpu", "tensor_parallel": 2, "replicas": 2}
    fixed = {"metrics": ["memory_utilization"], "judge": "rules", "judging": {"actors": 1}}
    return embedded_job(out, **{"engine": engine, **fixed, **settings})


def test_a_run_is_refused_with_who_holds_what_it_lacks(
    nodes: Nodes, other_job: Starts, tmp_path: Path
) -> None:
    assert cluster.cluster_capacity("the cluster").holdings == ()
    trainer = other_job("hold", 2, first_word="holds")
    capacity = cluster.cluster_capacity("the cluster")
    assert (capacity.gpus, capacity.cpus, capacity.all_gpus) == (2, 10, 4)
    with pytest.raises(ResourceError) as raised:
        finish(config(tmp_path / "out"))
    message = str(raised.value)
    assert "the plan needs 4 GPUs and the running Ray has 2 free of 4" in message
    assert "tests.clusters.other_job" in message
    assert "hold 2): 2 GPUs, 2 CPUs" in message
    assert not (tmp_path / "out").exists()
    trainer.terminate()
    wait_until(lambda: cluster.cluster_capacity("the cluster").gpus == 4, "its GPUs are still held")


def test_cpus_of_running_tasks_are_not_free(nodes: Nodes, other_job: Starts) -> None:
    other_job("run", 3, first_word="runs")
    wait_until(lambda: cluster.cluster_capacity("the cluster").cpus == 9, "the task does not run")
    (holding,) = cluster.cluster_capacity("the cluster").holdings
    assert str(holding).startswith("tasks that run now, of job ")
    assert "run 3" in str(holding)
    assert str(holding).endswith(": 3 CPUs")


def test_a_run_that_may_wait_has_what_the_other_job_gives_back(
    nodes: Nodes, other_job: Starts, tmp_path: Path
) -> None:
    trainer = other_job("hold", 2, first_word="holds")
    wait_until(
        lambda: cluster.cluster_capacity("the cluster").gpus == 2, "the job before holds GPUs"
    )
    spec = resolve(config(tmp_path, cluster={"wait_s": HANG_S}))
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        trainer.terminate()

    with NodeReservation() as reservation:
        capacity = cluster.cluster_capacity("the cluster")
        grown = wait_for_room(spec, capacity, "together", reservation, say)
        assert (grown.gpus, grown.holdings) == (4, ())
        held = groups()
        assert [(group.state, group.gpus) for group in held] == [("CREATED", 2.0)] * 2
    assert lines == [
        f"Waiting up to {HANG_S:g} s for the nodes that the plan needs: the plan needs 4 GPUs and "
        "the cluster has 2 free of 4"
    ]
    assert groups() == []


def test_a_dataset_that_cannot_be_read_asks_for_no_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """It is scanned first: its run would wait for two nodes more."""
    data = tmp_path / "data.jsonl"
    data.write_text("no JSON\n")
    waiting = config(
        tmp_path / "out",
        dataset=str(data),
        engine={"device": "gpu", "tensor_parallel": 2, "replicas": 4},
        cluster={"wait_s": 60},
    )
    before = set(placement_group_table())  # also those that were removed
    with pytest.raises(DataError, match="invalid samples, nothing was run"):
        finish(waiting)
    assert set(placement_group_table()) == before
