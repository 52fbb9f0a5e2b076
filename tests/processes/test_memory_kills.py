"""kill -9 of a run with memories at half of its questions: no session is written twice, and no
question that was answered is asked again, by a server or an engine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from memray_eval.execution.runs import resume
from memray_eval.results.run_folder import RunFolder
from tests.clusters.fake_engine import read_asked
from tests.conftest import HANG_S, REPOSITORY
from tests.processes.killing import evaluating, gone
from tests.servers.provider import serving

OWN = REPOSITORY / "tests/servers/stores.py"
N_QUESTIONS, N_SESSIONS, IN_FLIGHT = 14, 6, 2


night = pytest.mark.night


@pytest.mark.parametrize("half", [pytest.param(1, marks=night), 7, pytest.param(13, marks=night)])
def test_a_killed_run_writes_once_and_asks_once(tmp_path: Path, half: int) -> None:
    victim: list[int] = []

    def reply(body: dict[str, Any]) -> str:
        if victim and len(server.requests) > half:
            os.kill(victim.pop(), signal.SIGKILL)
        return "Not mentioned in the conversation"

    with serving(reply) as server:
        candidate = {"model": "m", "backend": "openai", "base_url": server.base_url}
        path = written_job(tmp_path, candidate, executor="local")
        command = [sys.executable, "-m", "memray_eval", "run", str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY
        ) as process:
            victim.append(process.pid)
            assert process.wait(HANG_S) == -signal.SIGKILL
        n_before = len(server.requests)
        (folder,) = (tmp_path / "out").iterdir()
        done = resume(str(folder), lambda line: None, quiet=True)
        times = Counter(json.dumps(body["messages"]) for body in server.requests)
    assert done.summary.n_failed_units == 0
    print("asked before the kill", n_before, "again", len(server.requests) - N_QUESTIONS)
    assert n_before < N_QUESTIONS or half == 13
    assert len(times) == N_QUESTIONS
    again = sum(n - 1 for n in times.values())
    assert again <= IN_FLIGHT  # what was under way, and nothing that was answered before
    check_written_once(folder)


def test_an_engine_answers_once(tmp_path: Path) -> None:
    """All questions are of one block, of which the engine answers IN_FLIGHT at a time."""
    engine = {"max_num_seqs": IN_FLIGHT, "max_model_len": 4096}
    path = written_job(tmp_path, {"model": "embedded"}, engine=engine, cluster={"num_cpus": 2})
    victim = "tests.processes.engine_victim"
    with evaluating(path, tmp_path / "log", victim) as process:
        while len(read_asked(tmp_path)) < N_QUESTIONS // 2 + IN_FLIGHT:
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.05)
        processes = psutil.Process(process.pid).children(recursive=True)
        for running in (process, *processes):  # else the engine goes on without its driver
            running.kill()
    gone(processes)
    n_before = len(read_asked(tmp_path))
    with evaluating(path, tmp_path / "log", victim) as process:
        assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
    times = Counter(read_asked(tmp_path))
    again = sum(times.values()) - N_QUESTIONS
    print("asked before the kill", n_before, "again", again)
    assert n_before < len(times) == N_QUESTIONS
    assert again <= IN_FLIGHT
    (folder,) = (path.parent for path in (tmp_path / "out").glob("*/run.yaml"))
    check_written_once(folder)


def written_job(tmp_path: Path, candidate: dict[str, Any], **fields: Any) -> Path:
    job = {
        "suite": "locomo",
        "dataset": str(REPOSITORY / "dataset/locomo"),
        "candidates": [{"name": "c", "memory": f"{OWN}:Plain", **candidate}],
        "metrics": ["rule_score"],
        "judge": "rules",
        "server": {"max_in_flight": IN_FLIGHT},
        "out": str(tmp_path / "out"),
        **fields,
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(job))
    return path


def check_written_once(folder: Path) -> None:
    """A record for each question, each session written and each question searched for once, and
    both conversations deleted."""
    units = [record.unit_id for record in RunFolder(str(folder)).each()]
    assert len(units) == len(set(units)) == N_QUESTIONS
    lines = (folder / "stores/calls.log").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    written = Counter(call["session"] + call["partition"] for call in calls if "session" in call)
    assert set(written.values()) == {1}
    assert len(written) == N_SESSIONS
    searched = Counter(call["query"] for call in calls if call["what"] == "search")
    assert set(searched.values()) == {1}
    assert [call["what"] for call in calls].count("delete") == 2
