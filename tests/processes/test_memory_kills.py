"""kill -9 of a run with memories at half of its questions: no session is written twice, and no
question that was answered is asked again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.execution.runs import resume
from memray_eval.results.run_folder import RunFolder
from tests.conftest import REPOSITORY
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
        candidate = {"name": "c", "model": "m", "backend": "openai", "base_url": server.base_url}
        job = {
            "suite": "locomo",
            "dataset": str(REPOSITORY / "dataset/locomo"),
            "candidates": [candidate | {"memory": f"{OWN}:Plain"}],
            "metrics": ["rule_score"],
            "judge": "rules",
            "server": {"max_in_flight": IN_FLIGHT},
            "executor": "local",
            "out": str(tmp_path / "results"),
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        command = [sys.executable, "-m", "memray_eval", "run", str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY
        ) as process:
            victim.append(process.pid)
            assert process.wait(120) == -signal.SIGKILL
        n_before = len(server.requests)
        (folder,) = (tmp_path / "results").iterdir()
        done = resume(str(folder), lambda line: None, quiet=True)
        asked = Counter(json.dumps(body["messages"]) for body in server.requests)
    assert (done.summary.n_units, done.summary.n_failed_units) == (N_QUESTIONS, 0)
    print("asked before the kill", n_before, "again", len(server.requests) - N_QUESTIONS)
    assert n_before < N_QUESTIONS or half == 13
    assert len(asked) == N_QUESTIONS
    again = sum(n - 1 for n in asked.values())
    assert again <= IN_FLIGHT  # what was under way, and nothing that was answered before
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
