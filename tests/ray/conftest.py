"""One local Ray for the whole session; runs join it and leave it up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import ClusterConfig
from memray_eval.execution.ray import cluster
from tests.conftest import SAMPLES
from tests.servers.provider import Provider


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    # Before Ray starts: its workers inherit this environment.
    os.environ |= {"MY_TEST_KEY": "test-key", "SECOND_TEST_KEY": "second-test-key"}
    with cluster.connected(ClusterConfig(num_cpus=2)):
        assert ray.is_initialized()
        yield
    # Ray leaves its processes to end by themselves, and warns of those that have not yet.
    psutil.wait_procs(psutil.Process().children(), timeout=30)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., RunConfig]:
    """A config that asks a local server for answers and for embeddings; keyword arguments
    override."""

    def make(server: Provider, /, **overrides: Any) -> RunConfig:
        candidate = {
            "name": "served",
            "model": "m",
            "backend": "openai",
            "base_url": server.base_url,
        }
        config: dict[str, Any] = {
            "dataset": str(SAMPLES),
            "candidates": [candidate],
            "embedding": {"model": "openai/hashed", "base_url": server.base_url},
            "metrics": ["memory_utilization", "groundedness", "relevance"],
            "judge": "rules",
            "out": str(tmp_path / "results"),
        }
        config |= overrides
        config["judging"] = {
            "cache": str(tmp_path / "calls.sqlite"),
            **overrides.get("judging", {}),
        }
        # Whose rules cannot tell well enough to be asked without a word
        if "groundedness" in config["metrics"]:
            config.setdefault("estimates", {"groundedness": True})
        return RunConfig.model_validate(config)

    return make
