"""A cluster of two real nodes at addresses of their own, a job sent to it through its API, and the second node killed in the
middle: the run ends, every unit once. Minutes a round: MEMRAY_EVAL_KILLS=3 does three, and -s shows the books.

The driver runs on the head, as Ray's jobs do, with the memory of paid calls beside it; the limiter is a detached actor of the
cluster and starts again elsewhere when its node is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from memray_eval.results import RunFolder
from memray_eval.rows import from_table
from tests.conftest import REPOSITORY, SAMPLES
from tests.ray.killing import ROUNDS
from tests.ray.two_nodes import Node, environment, head_node, second_node
from tests.servers.process import ServerProcess, serving_process

pytestmark = pytest.mark.skipif("MEMRAY_EVAL_KILLS" not in os.environ, reason="minutes a kill: set MEMRAY_EVAL_KILLS=3")
METRICS = ("helpfulness", "empathy", "safety")
UNITS, IN_FLIGHT, LATENCY_S, LIMIT_S = 90, 8, 0.2, 420.0
CALLS = UNITS * (1 + len(METRICS))


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> None:
    """No local Ray for this file: it has a cluster of its own."""


def config_file(folder: Path, server: ServerProcess) -> Path:
    """Answers and judgments from one server. Two judge actors do not fit on one node."""
    candidate = {"name": "served", "model": "m", "backend": "openai", "base_url": server.base_url}
    judging = {"base_urls": {"openai": server.base_url}, "actors": 2, "cpus": 0.6, "max_in_flight": IN_FLIGHT}
    job = {
        "dataset": str(SAMPLES),
        "limit": UNITS,
        "candidates": [candidate],
        "metrics": METRICS,
        "judge": "openai/local",
        "judging": judging | {"api_key_envs": {"openai": "NODE_KEY"}},
        "server": {"max_in_flight": IN_FLIGHT},
        "rows_per_block": 6,
        "out": str(folder / "out"),
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return path


def submitted(config: Path, head: Node, *more: str) -> subprocess.Popen[bytes]:
    words = ["submit", str(config), "--address", head.dashboard, "--run-id", "two-nodes", "--follow", *more]
    command = [sys.executable, "-m", "memray_eval", *words]
    with (config.parent / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment({}), stdout=log, stderr=log)


def wait_for_calls(server: ServerProcess, calls: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while server.stats()["n_answered"] < calls:
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, f"the job makes no calls: {log.read_text()[-2000:]}"
        time.sleep(0.05)


def titles(processes: list[psutil.Process]) -> list[str]:
    """What the judges and the others of Ray's workers say that they are."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()).strip())
    return [title for title in found if title.startswith("ray::Map")]


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_job_outlives_a_node(tmp_path: Path, round_: int) -> None:
    keys, log = {"NODE_KEY": "a key that the nodes have"}, tmp_path / "log"
    with serving_process(latency_s=LATENCY_S) as server, head_node(1, keys) as head, second_node(head, 1, keys) as second:
        config = config_file(tmp_path, server)
        with submitted(config, head) as process:
            wait_for_calls(server, moment := random.randint(CALLS // 10, CALLS * 7 // 10), process, log)
            lost = titles(second.processes())
            second.kill()
            code = process.wait(LIMIT_S)
        if code:
            with submitted(config, head, "--set", "judging.actors=1") as process:  # one node has no room for two
                assert process.wait(LIMIT_S) == 0, log.read_text()[-3000:]
        stats = server.stats()
    records = list(from_table(RunFolder(str(tmp_path / "out" / "two-nodes")).records().to_table()))
    units = {record.unit_id for record in records}
    scored = sum([score.status for score in record.scores] == ["scored"] * len(METRICS) for record in records)
    print(
        f"\nnode killed at call {moment} of {CALLS} with {lost}; the run {'was resumed' if code else 'went on'}: "
        f"{len(records)} rows, {len(units)} units, {scored} scored, {stats['n_answered']} calls, {stats['paid_again']} again",
        file=sys.__stdout__,
    )
    assert any("JudgeRecords" in title for title in lost)
    assert (len(records), len(units), scored) == (UNITS, UNITS, UNITS)
    assert stats["n_answered"] - stats["paid_again"] == CALLS
