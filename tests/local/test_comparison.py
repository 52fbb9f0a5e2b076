"""Runs that compare candidates: with each other over the shipped instruction prompts, with speed
and exports; and with the baselines of the memory suite's splits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memray_eval.benchmarks.memory.generator import TASKS, samples
from memray_eval.cli import app
from memray_eval.config.loading import load_config
from memray_eval.report.console import render
from tests.build import Job, finish, served, write_lines
from tests.conftest import REPOSITORY
from tests.servers.provider import Answer, Fault, serving

PLAN = '{"steps": [{"action": "move", "parameters": {"distance": 2}}]}'


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    """The cold candidate plans, the warm one rambles."""
    return PLAN if body["temperature"] == 0 else "Well, one might perhaps go on"


def test_candidates_are_compared_and_exported(job: Job, tmp_path: Path) -> None:
    with serving(reply) as server:
        candidates = [served(server, f"c-t{t}", sampling={"temperature": t}) for t in (0.0, 1.0)]
        dataset = str(REPOSITORY / "dataset" / "instruction")
        keys = {"suite": "instruction", "tasks": ["navigation"], "metrics": []}
        done = finish(job(server, dataset=dataset, candidates=candidates, **keys))
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


def test_a_candidate_is_held_against_the_best_baseline(tmp_path: Path) -> None:
    rows = (json.loads(sample.model_dump_json()) for sample in samples(TASKS, [40]))
    write_lines(tmp_path / "splits.jsonl", rows)
    (tmp_path / "mine.py").write_text("def answer(messages):\n    return 'See a doctor.'\n")
    (tmp_path / "job.yaml").write_text(
        f"""
suite: memory
dataset: splits.jsonl
candidates: [{{baseline: dump}}, {{baseline: none}}, {{name: mine, model: "mine.py:answer"}}]
metrics: [memory_conduct]
out: {tmp_path / "results"}
limit: 90
"""
    )
    summary = finish(load_config(tmp_path / "job.yaml")).summary
    assert summary.n_failed_units == 0
    assert {task.task for task in summary.tasks} == set(TASKS)
    assert summary.recommendation is None  # no baseline is to be used
    (note,) = [note for note in summary.notes if "baseline" in note]
    assert re.fullmatch(
        r"mine is (not shown to be above|below) the best baseline, (dump|none): "
        r"0\.\d{3} and 0\.\d{3} in memory_conduct\.",
        note,
    )
    assert summary.notes[0] == note
    assert {(heat.measure, heat.lengths) for heat in summary.heat_maps} == {("entries", (40.0,))}
    assert {twin.candidate for twin in summary.twins} == {"dump", "none", "mine"}
