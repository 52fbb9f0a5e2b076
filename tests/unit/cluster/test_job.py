"""cluster/job.yaml: a job that every manifest beside it has room for, and that stops before it is
dear."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.ray.placement import Placement, plan_placement
from memray_eval.execution.schedule import schedule, wave_pools
from memray_eval.submission.cluster_files import read_offer
from tests.conftest import REPOSITORY

CLUSTER = REPOSITORY / "cluster"
MANIFESTS = ("kuberay/rayjob.yaml", "kuberay/raycluster.yaml", "aws.yaml", "gcp.yaml")
JOB = load_config(CLUSTER / "job.yaml")


def placed(name: str, **engine: Any) -> Placement:
    changed = {"engine": JOB.engine.model_copy(update=engine), "judge": "rules"}  # no key here
    job = resolve(JOB.model_copy(update=changed))
    cluster_spec = read_offer(CLUSTER / name)
    waves = schedule(job, cluster_spec.at_first(), "gpu")
    return plan_placement(
        cluster_spec,
        job,
        [wave_pools(job, wave, cluster_spec.at_most(), "gpu") for wave in waves],
        "gpu",
    )


def test_it_waits_for_its_nodes_and_has_a_budget() -> None:
    assert JOB.cluster.address == "auto"
    assert JOB.cluster.wait_s > 0  # no manifest keeps a GPU up for it
    assert JOB.engine.device == "gpu"
    assert JOB.budget.is_set


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_manifest_has_room_for_it(name: str) -> None:
    site = placed(name)
    assert not site.problems
    assert [
        group.gpus for group in site.cluster_spec.groups if group.gpus and site.nodes[group.name]
    ] == [1]


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("tensor_parallel", [2, 4, 8])
def test_every_manifest_has_room_for_larger_engines(name: str, tensor_parallel: int) -> None:
    site = placed(name, tensor_parallel=tensor_parallel, accelerator_type="H100")
    assert not site.problems
    assert [
        group.gpus for group in site.cluster_spec.groups if group.gpus and site.nodes[group.name]
    ] == [8]


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_has_no_room_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match="16 GPUs"):
        placed(name, tensor_parallel=16, accelerator_type="H100")
    assert any(
        "engine.replicas is 100" in problem for problem in placed(name, replicas=100).problems
    )
