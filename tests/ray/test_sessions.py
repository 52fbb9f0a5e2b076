"""Sessions on Ray: their records are those of a run in one process."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.execution.session import RunResult
from memray_eval.results.schema import from_table
from tests.build import Job, finish, write_lines
from tests.servers.provider import serving

pytestmark = pytest.mark.night


def answer(body: dict[str, Any]) -> str:
    return f"Answer after {len(body['messages'])} messages to {body['messages'][-1]['content']}"


def turns(done: RunResult) -> dict[str, Any]:
    return {
        record.unit_id: (record.sample, record.response and record.response.text)
        for record in from_table(done.folder.records().to_table())
    }


def test_turns_are_those_of_a_run_in_one_process(job: Job, tmp_path: Path) -> None:
    rows = [{"id": f"s{n}", "turns": [f"{k} of {n}" for k in range(4)]} for n in range(40)]
    dataset = str(write_lines(tmp_path / "sessions.jsonl", rows))
    keys = {"suite": "chat", "dataset": dataset, "metrics": ["length_appropriateness"]}
    with serving(answer, latency_s=0.05) as server:
        on_ray = finish(job(server, executor="ray", rows_per_block=8, **keys))
        n_requests = len(server.requests)
        local = finish(job(server, executor="local", **keys))
    assert (on_ray.exit_code, on_ray.n_missing, n_requests) == (0, 0, 160)
    assert turns(on_ray) == turns(local)
    assert on_ray.summary.metrics == local.summary.metrics
    stages = on_ray.folder.read_manifest()["stages"]
    assert {stage["rows"] for stage in stages.values()} == {160, 0}
