"""One local Ray for the whole session; runs join it and leave it up."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import ray

from memray_eval.config.sections import ClusterConfig
from memray_eval.execution.ray import cluster
from tests.build import Job, served_job


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    # Before Ray starts: its workers inherit this environment.
    os.environ |= {"MY_TEST_KEY": "test-key", "SECOND_TEST_KEY": "second-test-key"}
    with cluster.connected(ClusterConfig(num_cpus=2)):
        assert ray.is_initialized()
        yield
    # Ray leaves its processes to end by themselves, and warns of those that have not yet.
    psutil.wait_procs(filter(_is_rays, psutil.Process().children()), timeout=30)


def _is_rays(process: psutil.Process) -> bool:
    try:
        return "/ray/" in " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return False


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """tests.build.served_job, into this test's folder."""
    return partial(served_job, tmp_path)
