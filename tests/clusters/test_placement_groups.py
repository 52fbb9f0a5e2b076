"""The placement groups of engines: listed before, during and after. What stands in vLLM's place
reserves its GPUs in them as vLLM does; all else is the product's."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import Capacity, fit_engine
from memray_eval.execution.ray import cluster, placement_groups
from memray_eval.execution.ray.engine import add_engines
from memray_eval.execution.ray.engine_start import MOST_STARTS
from memray_eval.execution.ray.pipeline import set_up_data_context
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    GroupSpec,
    NodeReservation,
    group_of_engine,
)
from tests.build import embedded_job, wait_until
from tests.clusters.conftest import Fakes, Nodes, Seen, Starts
from tests.clusters.fake_engine import Deaths, count_deaths, prompt_rows
from tests.clusters.observing import Group, describe, groups, watched_groups
from tests.conftest import HANG_S, REPOSITORY

pytestmark = pytest.mark.night

FREE = Capacity(where="the cluster", cpus=12, gpus=4, memory_gib=1)
CONFIG = fit_engine(
    EngineConfig.model_validate({"tensor_parallel": 2, "device": "gpu"}), 1000.0, "gpu"
)
TWO = GroupSpec(({"GPU": 1.0}, {"GPU": 1.0}), "STRICT_PACK")


def test_two_models_in_turn_have_the_same_gpus_and_leave_no_group(
    two_models: Seen, nodes: Nodes
) -> None:
    assert two_models.done.summary.n_units == 16
    assert two_models.done.summary.n_failed_units == 0
    print(describe(two_models.groups))
    seen = [{group.id for group in moment} for moment in two_models.groups]
    # Two engines of each model, two GPUs of one node each
    assert len(set.union(*seen)) == 4
    # There is no room for more: the first model's are gone before the second's find theirs
    created = [
        [group for group in moment if group.state == "CREATED"] for moment in two_models.groups
    ]
    assert max(map(len, created)) == 2
    used = {node for moment in created for group in moment for node in group.nodes}
    assert used == {nodes.labelled, nodes.unlabelled}
    assert two_models.groups[-1] == []


def generate(
    reservation: NodeReservation | None = None, config: EngineConfig = CONFIG
) -> tuple[list[str], list[list[Group]]]:
    """The answers of an engine of two workers, or as `config` has it, and the groups meanwhile."""
    set_up_data_context(no_progress_timeout_s=HANG_S)
    drains = signal.getsignal(signal.SIGTERM)
    with (
        watched_groups() as seen,
        EnginePlacement(group_of_engine(config, "gpu"), reservation or NodeReservation()) as placed,
    ):
        prompts = ray.data.from_items(prompt_rows(4), override_num_blocks=1)
        answered = add_engines(prompts, config, "embedded", "gpu", placed)
        answers = [row["answer"]["generated_text"] for row in answered.iter_rows()]
    print(describe([*seen, groups()]))
    assert signal.getsignal(signal.SIGTERM) is drains, (
        "SIGTERM is Ray's: it would end a run at once"
    )
    return answers, seen


def ids(seen: list[list[Group]]) -> set[str]:
    return {group.id for moment in seen for group in moment}


def test_an_engine_that_no_node_holds_takes_whole_nodes(nodes: Nodes, fakes: Fakes) -> None:
    fakes()
    over = EngineConfig.model_validate({"tensor_parallel": 4, "nodes": 2, "device": "gpu"})
    answers, seen = generate(config=fit_engine(over, 1000.0, "gpu"))
    (placed,) = {group for moment in seen for group in moment if group.state == "CREATED"}
    assert len(answers) == 4
    assert (placed.gpus, placed.nodes) == (4.0, frozenset({nodes.labelled, nodes.unlabelled}))


@pytest.mark.parametrize("how", ["killed", "error"])
def test_an_engine_that_dies_in_its_constructor_starts_anew_in_its_group(
    how: Literal["killed", "error"], nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(deaths=Deaths(times=1, how=how))
    answers, seen = generate()
    assert (len(answers), len(ids(seen))) == (4, 1)
    assert count_deaths(tmp_path) == 1
    assert groups() == []


def test_a_pipeline_that_fails_gives_its_groups_back(nodes: Nodes, fakes: Fakes) -> None:
    fakes(deaths=Deaths(times=MOST_STARTS, how="error"))
    with pytest.raises(ray.exceptions.RayError, match="Engine core initialization failed"):
        generate()
    wait_until(lambda: groups() == [], "the group is still there")


def test_engines_take_over_the_groups_that_waited_for_their_nodes(
    nodes: Nodes, fakes: Fakes
) -> None:
    fakes()
    wanted = [group_of_engine(CONFIG, "gpu")]
    with NodeReservation() as reservation:
        cluster.wait_for_nodes(FREE, [], wanted, reservation, HANG_S, say=pytest.fail)
        (held,) = groups()
        assert held.state == "CREATED"
        _, seen = generate(reservation)
    assert ids(seen) == {held.id}
    assert groups() == []


@contextmanager
def one_gpu_taken() -> Iterator[None]:
    in_the_way = ray.util.placement_group([{"GPU": 1.0}])
    assert in_the_way.wait(HANG_S)
    try:
        yield
    finally:
        ray.util.remove_placement_group(in_the_way)


def test_two_jobs_that_wait_at_once_both_get_their_nodes(nodes: Nodes, other_job: Starts) -> None:
    """Each wants all GPUs of the cluster, of which one is somebody else's for now."""
    with one_gpu_taken():
        waiting = [other_job("wait", 2, 1, first_word="waits") for _ in range(2)]
        # Both jobs' demand is there at once: neither has wiped the other's
        wait_until(lambda: len(groups()) == 5, f"groups of both jobs: {groups()}")
        assert sum(group.state == "PENDING" for group in groups()) >= 3
    for job in waiting:
        output, _ = job.communicate(timeout=HANG_S)
        assert output.split("\n")[:2] == ["has them", "done"]
    assert groups() == []


def test_of_two_runs_that_hold_half_of_what_both_need_the_later_lets_go(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_groups, "PATIENCE_S", 1.0)
    monkeypatch.setattr(placement_groups, "POLL_S", 0.2)
    got: list[str] = []

    def wait(name: str, wanted: list[GroupSpec]) -> None:
        with NodeReservation() as reservation:
            assert reservation.wait_for(wanted, HANG_S, lambda: True)
            got.append(name)
            time.sleep(0.5)

    # The younger: a GPU of the second node, which the older waits for, and both of one node besides
    older = threading.Thread(target=wait, args=("older", [TWO, TWO]))
    younger = threading.Thread(target=wait, args=("younger", [GroupSpec(({"GPU": 1.0},)), TWO]))
    with one_gpu_taken():
        older.start()
        wait_until(lambda: sum(g.state == "CREATED" for g in groups()) == 2, "one node is free")
        younger.start()
        wait_until(lambda: sum(g.state == "CREATED" for g in groups()) == 3, "one GPU is free")
    older.join(HANG_S)
    younger.join(HANG_S)
    assert got == ["older", "younger"]
    assert groups() == []


def test_a_run_that_is_interrupted_while_it_waits_takes_its_groups_back(
    nodes: Nodes, tmp_path: Path
) -> None:
    job = embedded_job(
        tmp_path / "out",
        engine={"device": "gpu", "tensor_parallel": 2, "replicas": 3},
        metrics=["memory_utilization"],
        judge="rules",
        cluster={"address": nodes.address, "wait_s": HANG_S},
    )
    (tmp_path / "job.yaml").write_text(job.model_dump_json())
    command = [sys.executable, "-m", "memray_eval", "run", str(tmp_path / "job.yaml")]
    waiting = f"Waiting up to {HANG_S:g} s for the nodes that the plan needs: the plan needs 6 GPUs"
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, cwd=REPOSITORY, stderr=stderr)
    wait_until(lambda: sum(group.gpus == 2 for group in groups()) == 3, "a group for each engine")
    wait_until(lambda: waiting in log.read_text(), "it does not say that it waits")
    assert sorted(g.state for g in groups() if g.gpus) == ["CREATED", "CREATED", "PENDING"]
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 130
    assert "Traceback" not in log.read_text()
    wait_until(lambda: groups() == [], "its groups are still there")
    assert not (tmp_path / "out").exists()
