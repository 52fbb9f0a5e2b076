"""The reference of a job's keys: whole, and the same in the schema, in the page and in the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import memray_eval.cli.config  # noqa: F401 (its commands join the app)
from memray_eval.cli.app import app
from memray_eval.config.reference import job_keys, job_reference, job_schema
from tests.conftest import REPOSITORY


def test_every_key_is_described() -> None:
    texts = [key.description for key in job_keys()]
    assert all(texts)
    assert len(texts) > 200
    assert not [text for text in texts if len(text) >= 200 or "|" in text]  # a column of the page


def test_the_schema_has_every_description_and_default() -> None:
    schema = job_schema()
    replicas = schema["$defs"]["EngineConfig"]["properties"]["replicas"]
    assert (replicas["default"], replicas["description"]) == (1, "Engines of one model.")
    own = {key.owner.__name__ for key in job_keys()} & schema["$defs"].keys()
    assert len(own) > 10
    for home in (schema, *(schema["$defs"][name] for name in own)):
        assert all("description" in value for value in home["properties"].values()), home["title"]
    assert set(schema["required"]) == {"dataset", "candidates"}


def test_the_page_is_the_one_in_jobs() -> None:
    # memray-eval schema --markdown > jobs/keys.md
    assert (REPOSITORY / "jobs" / "keys.md").read_text("utf-8") == job_reference()


def test_commands_print_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app(["schema"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["title"] == "Job"
    job = tmp_path / "job.yaml"
    job.write_text(
        "dataset: d.jsonl\ncandidates: [{name: a, model: b}]\njudging: {tries: 2}\nlimit: 7\n"
    )
    words = ["config", "show", str(job), "--set", "engine.replicas=3", "--set", "limit=4"]
    app(words, standalone_mode=False)
    text = capsys.readouterr().out
    assert "  replicas: 3    # --set\n" in text
    assert "  tries: 2    # job.yaml\n" in text
    assert "limit: 4    # --set\n" in text
    assert "\ntolerance: 0.05\n" in text
    shown = yaml.safe_load(text)
    assert shown["dataset"] == str(tmp_path / "d.jsonl")
    assert (shown["engine"]["replicas"], shown["judging"]["tries"]) == (3, 2)
