"""cluster/job.yaml: a job that waits for its nodes, and that stops before it is dear."""

from __future__ import annotations

from memray_eval.config.loading import load_config
from tests.conftest import REPOSITORY

JOB = load_config(REPOSITORY / "cluster" / "job.yaml")


def test_it_waits_for_its_nodes_and_has_a_budget() -> None:
    assert JOB.cluster.address == "auto"
    assert JOB.cluster.wait_s > 0  # no manifest keeps a GPU up for it
    assert JOB.engine.device == "gpu"
    assert JOB.budget.is_set
