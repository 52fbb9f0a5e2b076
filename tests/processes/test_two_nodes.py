"""A cluster of two real nodes at addresses of their own, a job sent to it through its API, and the
second node killed in the middle: the run ends, every unit once. Minutes a round:
`make night KILLS=3` does three, and -s shows the books.

The driver runs on the head, as Ray's jobs do, with the memory of paid calls beside it; the limiter
is a detached actor of the cluster and starts again elsewhere when its node is lost."""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import locate, write_whole
from tests.build import served
from tests.conftest import HANG_S, REPOSITORY, SAMPLES, shipped_samples
from tests.processes.killing import METRICS, ROUNDS, UNITS, books, running, wait_for
from tests.processes.two_nodes import SECOND_ADDRESS, Node, environment, head_node, second_node
from tests.servers.process import ServerProcess, serving_process
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.night
IN_FLIGHT, LATENCY_S = 8, 0.2
CALLS = UNITS * (1 + len(METRICS))
# Beside the embedders
ON_ONE_NODE = ("--set", "judging.actors=1", "--set", "judging.cpus=0.3")


KEYS = {"NODE_KEY": "a key that the nodes have"}


@contextlib.contextmanager
def serving_two_nodes() -> Iterator[tuple[ServerProcess, Node, Node]]:
    with (
        serving_process(latency_s=LATENCY_S) as server,
        head_node(1, KEYS) as head,
        second_node(head, 1, KEYS) as second,
    ):
        yield server, head, second


def show(line: str) -> None:
    print(f"\n{line}", file=sys.__stdout__)


def config_file(
    folder: Path,
    server: ServerProcess,
    dataset: str = str(SAMPLES),
    out: str | None = None,
    own: tuple[str, ...] = (),
) -> Path:
    """Answers and judgments from one server. Two judge actors do not fit on one node."""
    judging = {"actors": 2, "cpus": 0.6, "max_in_flight": IN_FLIGHT}
    accounts = {"base_urls": server.base_url, "api_key_envs": "NODE_KEY"}
    job = {
        "dataset": dataset,
        "limit": UNITS,
        "candidates": [served(server)],
        "metrics": [*METRICS, *own],
        "judge": "openai/local",
        "judging": judging | {name: {"openai": value} for name, value in accounts.items()},
        "server": {"max_in_flight": IN_FLIGHT},
        "rows_per_block": 6,
        "out": out or str(folder / "out"),
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return path


def submitted(
    config: Path, head: Node, *more: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    words = ["submit", str(config), "--address", head.dashboard, "--run-id", "two-nodes"]
    log, env = config.with_name("log"), environment({})
    words += ["--follow", *more]
    return running("memray_eval", *words, log=log, cwd=REPOSITORY, env=env)


def titles(processes: list[psutil.Process]) -> list[str]:
    """What the judges and the others of Ray's workers say that they are."""
    results = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            results.append(" ".join(process.cmdline()).strip())
    return [title for title in results if title.startswith("ray::Map")]


def lose_a_node(
    config: Path, server: ServerProcess, head: Node, second: Node, moment: int
) -> tuple[list[str], int]:
    """Submits a job and kills the second node at its call `moment`; where the job died of it, goes
    on on the first. What ran on the second, and the first job's exit code."""
    with submitted(config, head) as process:
        wait_for(server, moment, process)
        lost = titles(second.processes())
        second.kill()
        code = process.wait(HANG_S)
    if code:  # one node has no room for two judges
        with submitted(config, head, *ON_ONE_NODE) as process:
            assert process.wait(HANG_S) == 0
    return lost, code


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_job_outlives_a_node(tmp_path: Path, round_: int) -> None:
    with serving_two_nodes() as (server, head, second):
        config, moment = config_file(tmp_path, server), random.randint(CALLS // 10, CALLS * 7 // 10)
        lost, code = lose_a_node(config, server, head, second, moment)
        results = books(RunFolder(str(tmp_path / "out" / "two-nodes")), server)
    show(
        f"node killed at call {moment} of {CALLS} with {lost}; the run "
        f"{'was resumed' if code else 'went on'}: {results}"
    )
    assert any("JudgeRecords" in title for title in lost)
    results.hold(3 * IN_FLIGHT, calls=CALLS)  # of one actor that answers and two that judge


MINE = """
import words

def sleepy(sample, response):
    return words.SLEEP in response.text.lower()
"""


def test_a_metric_of_ones_own_goes_to_both_nodes_and_a_changed_one_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "words.py").write_text("SLEEP = 'sleep'\n")
    with serving_two_nodes() as (server, head, second):
        config = config_file(tmp_path, server, own=("mine.py:sleepy",))
        lost, code = lose_a_node(config, server, head, second, CALLS // 3)
        folder = RunFolder(str(tmp_path / "out" / "two-nodes"))
        (sleepy,) = [
            metric for metric in folder.read_summary().metrics if metric.metric == "sleepy"
        ]
        assert (sleepy.n_scored, sleepy.n_failed) == (UNITS, 0)
        assert set(folder.read_manifest()["own_code"]) == {"mine.py"}
        (tmp_path / "words.py").write_text("SLEEP = 'rest'\n")
        with submitted(config, head, *ON_ONE_NODE) as process:
            assert process.wait(HANG_S) == 2
    assert any("JudgeRecords" in title for title in lost)
    refused = (tmp_path / "log").read_text()
    assert "the code of mine.py was" in refused
    show(f"lost {lost}; {'resumed' if code else 'went on'}; then {refused.splitlines()[-1]}")


def test_a_job_on_s3_goes_on_from_the_other_node_when_its_cluster_is_gone(
    tmp_path: Path, open_s3: S3Server
) -> None:
    """Both nodes of the first cluster are lost, its head too. The second cluster is another
    machine: it shares S3 alone."""
    out = "s3://bucket/runs"  # this process reads it in the end
    with serving_process(latency_s=LATENCY_S) as server:
        keys = KEYS | open_s3.environment()
        rows = [
            json.dumps(sample.model_dump(mode="json", exclude={"suite"}))
            for sample in shipped_samples()[:UNITS]
        ]
        write_whole(*locate("s3://bucket/data/samples.jsonl"), "\n".join(rows).encode())
        config = config_file(tmp_path, server, "s3://bucket/data/samples.jsonl", out)
        first, second = (keys | {"MEMRAY_EVAL_CACHE": str(tmp_path / name)} for name in "ab")
        with (
            head_node(1, first) as head,
            second_node(head, 1, first) as other,
            submitted(config, head) as process,
        ):
            wait_for(server, moment := random.randint(CALLS // 10, CALLS * 7 // 10), process)
            other.kill()
            head.kill()
            process.terminate()
        before = len(RunFolder(f"{out}/two-nodes").parts())
        with head_node(2, second, ip=SECOND_ADDRESS) as head, submitted(config, head) as process:
            assert process.wait(HANG_S) == 0
        results = books(RunFolder(f"{out}/two-nodes"), server)
    show(
        f"cluster lost at call {moment} of {CALLS} with {before} parts written; resumed elsewhere: "
        f"{results}"
    )
    assert (results.rows, results.units, results.scored) == (UNITS, UNITS, UNITS)
    assert results.paid_again <= 3 * IN_FLIGHT  # of one actor that answers and two that judge
