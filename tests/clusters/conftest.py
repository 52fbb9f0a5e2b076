"""One cluster of three nodes of this machine for the whole folder: a head without GPUs, which the
driver is on, and two nodes with GPUs that are not there. Ray hands them out all the same."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from memray_eval.config.schema import RunConfig
from memray_eval.execution.ray import engine
from memray_eval.execution.ray.cluster import _QUIET
from memray_eval.execution.runs import RunResult
from memray_eval.models.embedded_model import resolve_model
from tests.build import embedded_job, empathy_verdict, finish, wait_until
from tests.clusters.fake_engine import fake_engine
from tests.clusters.observing import Group, groups, nodes_by_task, watched_groups, watched_memory
from tests.conftest import HANG_S, REPOSITORY
from tests.servers.provider import Provider, serving

SERVICES = ("ProgressCounter.", "CallsActor.", "LimiterActor.")
EMPATHY = empathy_verdict(2, 1, 0, quotes=["that sounds hard"])


@dataclass(frozen=True)
class Nodes:
    """The ids of the nodes. Ray knows the GPUs of `labelled`, and not those of `unlabelled`."""

    address: str
    head: str
    labelled: str
    unlabelled: str


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    os.environ["MY_TEST_KEY"] = "test-key"  # before Ray starts: its workers inherit it
    started = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False}
    )
    labels = {"ray.io/accelerator-type": "H100"}
    labelled = started.add_node(num_cpus=4, num_gpus=2, labels=labels)
    unlabelled = started.add_node(num_cpus=4, num_gpus=2)
    ray.init(address=started.address, log_to_driver=False)
    try:
        yield Nodes(
            started.address, started.head_node.node_id, labelled.node_id, unlabelled.node_id
        )
    finally:
        ray.shutdown()
        started.shutdown()


Fakes = Callable[..., None]


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Puts engines in vLLM's place, with their books in the test's folder."""

    def put(**options: Any) -> None:
        monkeypatch.setattr(engine, "VllmEngine", fake_engine(tmp_path, **options))

    return put


def two_models_job(folder: Path, server: Provider, **keys: Any) -> RunConfig:
    """Two models in turn, whose engines take all GPUs each time, and one judge."""
    other = folder / "other-model"
    other.symlink_to(resolve_model("embedded"))
    models = {"one": "embedded", "other": str(other)}
    judging = {"base_urls": {"openai": server.base_url}, "cache": str(folder / "calls.sqlite")}
    fixed = {
        "limit": 8,
        "candidates": [{"name": name, "model": model} for name, model in models.items()],
        "engine": {"device": "gpu", "tensor_parallel": 2, "replicas": 2, "batch_size": 2},
        "judge": {"empathy": "openai/judge"},
        "judging": {"actors": 1, "max_in_flight": 1, **judging},
    }
    return embedded_job(folder / "results", **fixed | keys)


@pytest.fixture(autouse=True)
def _all_is_given_back(nodes: Nodes) -> Iterator[None]:
    """Each test leaves the cluster as it found it."""
    yield
    wait_until(lambda: ray.available_resources().get("GPU", 0.0) == 4.0, "GPUs are still held")


@dataclass(frozen=True)
class Seen:
    """A run of two models in turn, whose engines take all GPUs each time. `groups` are those of
    each moment, `nodes` those that ran each task, `memory` what actors declared, in bytes."""

    done: RunResult
    groups: list[list[Group]]
    nodes: dict[str, set[str]]
    memory: set[float]


@pytest.fixture(scope="session")
def two_models(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("two-models")
    with serving(lambda body: json.dumps(EMPATHY)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "VllmEngine", fake_engine())
        embedding = {"model": "openai/hashed", "base_url": server.base_url}
        metrics = ["empathy", "relevance"]
        job = two_models_job(folder, server, metrics=metrics, embedding=embedding)
        with watched_groups() as seen, watched_memory() as memory:
            done = finish(job)
        seen.append(groups())
        wait_until(tells_all, "Ray does not tell where all of it ran")
        yield Seen(done, seen, nodes_by_task(), memory)


def tells_all() -> bool:
    """Whether Ray tells where each stage and service of a run was; it hears so once a second."""
    names = " ".join(nodes_by_task())
    stages = ("prompts_to_ask", "collect_engine_answers", "JudgeRecords", "EmbedRecords")
    return all(name in names for name in (*stages, "write_block", *SERVICES))


Starts = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def other_job(nodes: Nodes) -> Iterator[Starts]:
    """Starts tests/clusters/other_job.py on the cluster, a job of its own, and waits for its first
    word; the job ends with the test."""
    with ExitStack() as stack:

        def start(*words: Any, first_word: str | None = None) -> subprocess.Popen[str]:
            process = stack.enter_context(_running(nodes.address, *map(str, words)))
            if first_word is not None:
                assert process.stdout is not None
                assert process.stdout.readline().strip() == first_word
            return process

        yield start


@contextmanager
def _running(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.clusters.other_job", *words]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(HANG_S)
        assert process.stdout is not None
        process.stdout.close()
