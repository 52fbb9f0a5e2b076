"""From labelled answers to a run's adjusted scores: what `calibrate --save` keeps holds for a run
by the same judge and rubric, and for no other."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError
from memray_eval.types import EXISTING
from tests.build import finish

METRIC = "semantic_correctness"


def answers(n: int, seed: int) -> list[dict[str, Any]]:
    """Rules take an answer for right that holds the expected words; people ask for a little more:
    one in four of those is wrong to them."""
    chance = random.Random(seed)
    rows = []
    for number in range(n):
        says_so = chance.random() < 0.6
        is_right = (says_so and chance.random() < 0.75) or chance.random() < 0.1
        rows.append(
            {
                "id": f"s{seed}-{number}",
                "query": f"What is the number of house {number}?",
                "response": f"It is {number}." if says_so else "Nobody knows that.",
                "answers": [f"{number}"],
                "people": int(is_right),
            }
        )
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def evaluated(path: Path, calibration: str, **keys: Any) -> Any:
    rows = [{key: row[key] for key in row if key != "people"} for row in answers(300, 2)]
    candidate = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}
    settings = {
        "dataset": write(path / "run.jsonl", rows),
        "candidates": [candidate],
        "metrics": [METRIC],
        "judge": "rules",
        "out": str(path / "results"),
        "executor": "local",
        "calibration": [calibration],
    }
    return finish(load_config(None, settings | keys))


def test_labels_adjust_a_run_by_the_judge_that_they_are_of(tmp_path: Path) -> None:
    labelled, saved = write(tmp_path / "labelled.jsonl", answers(200, 1)), tmp_path / "saved.json"
    words = ["--map", "query=query,response=response,answers=answers,human=people"]
    words += ["--metric", METRIC, "--judge", "rules", "--save", str(saved)]
    done = CliRunner().invoke(app, ["calibrate", labelled, *words])
    assert done.exit_code == 0, done.output
    result = evaluated(tmp_path, str(saved))
    (metric,) = result.summary.metrics
    adjusted = metric.adjusted
    assert adjusted is not None
    assert (adjusted.refused, adjusted.method, adjusted.n_labels) == ("", "Rogan-Gladen", 200)
    truth = sum(row["people"] for row in answers(300, 2)) / 300
    assert metric.figure.value is not None
    assert metric.figure.value - truth > 0.05
    assert (adjusted.low or 0.0) < truth < (adjusted.high or 0.0)
    assert "To people's labels:" in (Path(result.folder.path) / "summary.txt").read_text()
    other = json.loads(saved.read_text())
    other["calibrations"][0]["judge"] = "openai/gpt-4o"
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="are of verdicts by openai/gpt-4o, and rules is to"):
        evaluated(tmp_path, str(tmp_path / "other.json"))
    other["calibrations"][0] |= {"judge": "rules", "rubric": "0123456789abcdef"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="by the rubric 0123456789abcdef, and here it is"):
        evaluated(tmp_path, str(tmp_path / "other.json"))
    with pytest.raises(ConfigError, match="which this run does not score"):
        evaluated(tmp_path, str(saved), metrics=["readability_score"])
