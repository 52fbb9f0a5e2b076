"""A run that compares: one served model at two temperatures over the shipped instruction prompts,
with speed and exports."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.report.console import render
from tests.build import Job, finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Answer, Fault, serving

PLAN = '{"steps": [{"action": "move", "parameters": {"distance": 2}}]}'


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    """The cold candidate plans, the warm one rambles."""
    return PLAN if body["temperature"] == 0 else "Well, one might perhaps go on"


def test_candidates_are_compared_and_exported(job: Job, tmp_path: Path) -> None:
    with serving(reply) as server:
        candidates = [
            served(server, f"c-t{t}", sampling={"temperature": t, "max_tokens": 64})
            for t in (0.0, 1.0)
        ]
        config = job(
            server, suite="instruction", dataset=str(REPOSITORY / "dataset" / "instruction"),
            tasks=["navigation"],
            candidates=candidates, metrics=[],
        )  # fmt: skip
        done = finish(config)
    text = render(done.summary)
    assert done.exit_code == 0
    quality = {row.candidate: row.quality for row in done.summary.performance if row.task is None}
    assert (quality["c-t0.0"] or 0) > (quality["c-t1.0"] or 0)
    assert done.summary.recommendation is not None
    (pair,) = done.summary.recommendation.pairs
    assert (pair.a, pair.b, pair.n) == ("c-t0.0", "c-t1.0", done.summary.n_samples)
    assert pair.is_shown
    assert pair.difference == pytest.approx((quality["c-t1.0"] or 0) - (quality["c-t0.0"] or 0))
    blocks = ["SPEED AND QUALITY - c-t0.0", "RECOMMENDATIONS", "Pareto Front", "on Common Prompts"]
    assert [block for block in (*blocks, "Performance by Task:") if block not in text] == []
    assert done.summary.sweeps
    assert done.summary.sweeps[0].temperatures == (0.0, 1.0)
    out = tmp_path / "benchmark.json"
    shown = CliRunner().invoke(app, ["report", done.folder.path, "--benchmark", str(out)])
    assert shown.exit_code == 0, shown.output
    first, _ = json.loads(out.read_text())
    details = first["tests"][0]["quality_details"]
    assert (first["model"], set(details)) == ("c-t0.0", {"subscores", "issues", "passed_checks"})
    assert "json_validity" in details["subscores"]
