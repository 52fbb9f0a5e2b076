"""Whole runs that stop when their question is decided, say so everywhere, and are completed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError
from memray_eval.execution.session import RunResult
from memray_eval.report.brief import render_brief
from memray_eval.report.html.page import render_html
from memray_eval.types import EXISTING
from tests.build import finish, go_on

N = 2400


def write_answers(path: Path, names: tuple[str, ...] = ("mine",)) -> str:
    """Answers of which 3 in 4 are right, of a second candidate 1 in 4."""
    rows = [
        {
            "id": f"s{number}",
            "query": f"What is {number}?",
            "task": "even" if number % 2 else "odd",
            "answers": [f"{number}"],
            "response": f"{number}" if (number % 4 > 0) == (n == 0) else "I cannot say.",
            "candidate": name,
            "model": "m",
        }
        for n, name in enumerate(names)
        for number in range(N)
    ]
    file = path / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def evaluated(path: Path, stop_at: str | None, **keys: Any) -> RunResult:
    candidate = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}
    config = load_config(
        None,
        {
            "dataset": write_answers(path, keys.pop("names", ("mine",))),
            "candidates": [candidate],
            "metrics": ["exact_match"],
            "judge": "rules",
            "out": str(path / "results"),
            "executor": "local",
            "stop_at": stop_at,
        }
        | keys,
    )
    return finish(config)


def test_a_run_stops_when_its_mean_is_known_and_is_completed(tmp_path: Path) -> None:
    done = evaluated(tmp_path, "exact_match ±0.1")
    decided = done.summary.decided
    assert decided is not None
    assert done.is_decided
    assert done.exit_code == 0
    assert 100 < decided.n_looked_at < done.summary.n_units < N
    (figure,) = (metric.figure for metric in done.summary.metrics)
    assert figure.value == pytest.approx(0.75, abs=0.06)
    assert decided.low < 0.75 < decided.high
    manifest = done.folder.read_manifest()
    assert manifest["status"] == "stopped"
    assert manifest["decided"]["rule"] == "exact_match ±0.1"
    screen = render_brief(done.summary, done.folder.path)
    assert "stopped when decided (exact_match ±0.1)" in screen
    assert f"`memray-eval resume {done.folder.path} --all`" in done.summary.notes[0]
    assert "stopped when decided: exact_match ±0.1" in render_html(done.folder)
    # It is decided already: nothing more is done
    again = go_on(done.folder.path)
    assert again.is_decided
    assert again.summary.n_units == done.summary.n_units
    shown = CliRunner().invoke(app, ["resume", "--all", "--json", done.folder.path])
    assert shown.exit_code == 0, shown.output
    completed = done.folder.read_summary()
    assert completed.n_units == N
    assert completed.decided is None
    assert completed.metrics[0].figure.value == 0.75
    assert done.folder.read_manifest()["status"] == "finished"


def test_two_candidates_are_compared_until_one_is_better(tmp_path: Path) -> None:
    done = evaluated(tmp_path, "compare exact_match", names=("mine", "yours"))
    decided = done.summary.decided
    assert decided is not None
    assert decided.of == "yours"
    assert decided.high < 0
    assert done.summary.n_units < 2 * N
    sides = [f"{done.folder.path}:{name}" for name in ("mine", "yours")]
    shown = CliRunner().invoke(app, ["compare", *sides])
    assert "since compare exact_match was decided after" in shown.output


def test_what_is_never_decided_runs_to_its_end(tmp_path: Path) -> None:
    done = evaluated(tmp_path, "exact_match ±0.001", limit=200)
    assert (done.is_decided, done.summary.decided, done.summary.n_units) == (False, None, 200)
    assert done.folder.read_manifest()["status"] == "finished"


@pytest.mark.parametrize(
    ("stop_at", "message"),
    [
        ("helpfulness ±0.1", "does not score 'helpfulness'; it scores exact_match"),
        ("compare exact_match", "compares two candidates, and there are 1: mine"),
        ("exact_match 0.1", "cannot read"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_an_error_before_anything_runs(
    tmp_path: Path, stop_at: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluated(tmp_path, stop_at)
    assert not list((tmp_path / "results").glob("*/records/*"))
