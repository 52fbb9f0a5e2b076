"""One head of 2 GB with 75 MB for objects. A run that needs more is refused, one whose samples are
twice the objects' room goes on, and users' code that hangs in an actor costs its unit alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from memray_eval.types import Score
from tests.build import run_module, served, write_lines
from tests.conftest import REPOSITORY
from tests.processes.two_nodes import Node, environment, head_node
from tests.servers.process import serving_process

pytestmark = pytest.mark.night
MEMORY, OBJECTS = 2 << 30, 75 << 20
OWN = """
import time

def seen(sample, response):
    return True

def hangs(sample, response):
    if sample.id == "s3":
        time.sleep(10_000)
    return True
"""


@pytest.fixture(scope="module")
def head() -> Iterator[Node]:
    flags = [f"--memory={MEMORY}", f"--object-store-memory={OBJECTS}"]
    with head_node(2, {"MY_TEST_KEY": "test-key"}, more=flags) as node:
        yield node


def ran(
    head: Node, folder: Path, metric: str, *more: str, n_samples: int = 24, n_bytes: int = 20
) -> tuple[int, str, dict[str, Score]]:
    """A run's exit code, what it said, and its scores by sample; each answer is paid once."""
    (folder / "mine.py").write_text(OWN)
    rows = [{"id": f"s{n}", "query": f"{n} ".ljust(n_bytes, "x")} for n in range(n_samples)]
    with serving_process() as server:
        job = {
            "suite": "chat",
            "dataset": str(write_lines(folder / "rows.jsonl", rows)),
            "candidates": [served(server, "c")],
            "metrics": [metric],
            "judge": "rules",
            "metric_timeout_s": 2,
            "out": str(folder / "out"),
            "cluster": {"address": head.gcs_address},
        }
        config = folder / "job.json"
        config.write_text(json.dumps(job))
        words = ("memray_eval", "run", str(config), "--run-id", "hostile", *more)
        done = run_module(*words, cwd=REPOSITORY, env=environment({}))
        stats = server.stats()
    if done.returncode == 3:
        assert stats["n_answered"] == 0
        return 3, done.stderr, {}
    assert (stats["n_answered"], stats["paid_again"]) == (n_samples, 0), done.stderr[-3000:]
    records = list(from_table(RunFolder(str(folder / "out/hostile")).records().to_table()))
    scores = {record.sample.id: record.scores[0] for record in records}
    assert len(scores) == len(records) == n_samples
    return done.returncode, done.stderr, scores


def test_a_run_that_needs_more_memory_is_refused_with_what_needs_it(
    head: Node, tmp_path: Path
) -> None:
    code, output, _ = ran(head, tmp_path, "relevance", "--set", "embedding.actors=2")
    assert code == 3
    assert "of memory and the cluster at" in output
    assert "embedders: 2 x 1" in output


def test_samples_of_twice_the_object_store_flow_through_it(head: Node, tmp_path: Path) -> None:
    code, output, scores = ran(
        head, tmp_path, "mine.py:seen", n_samples=2 * (OBJECTS >> 20), n_bytes=1 << 20
    )
    assert code == 0, output[-3000:]
    assert {score.status for score in scores.values()} == {"scored"}


def test_users_code_that_hangs_in_an_actor_costs_its_unit_alone(head: Node, tmp_path: Path) -> None:
    _, output, scores = ran(head, tmp_path, "mine.py:hangs")
    assert "metric_timeout_s" in (scores.pop("s3").error or ""), output[-3000:]
    assert {score.status for score in scores.values()} == {"scored"}
