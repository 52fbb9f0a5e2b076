"""What MLflow gets of a run, by the keys that it takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from memray_eval.sinks.mlflow_run import figures, params_of, tags_of
from tests.runs import candidates, full_summary

KEY = re.compile(r"[/\w.\- :]*")  # of MLflow's own validation


def test_each_metric_has_its_figure_its_interval_and_its_n() -> None:
    summary = full_summary(12, candidates(1))
    logged = figures(summary, by_candidate=False)
    for metric in summary.metrics:
        assert logged[metric.metric] == metric.figure.value
        assert logged[f"{metric.metric}.n"] == metric.n_scored
        assert logged.get(f"{metric.metric}.low") == metric.figure.low
    assert logged["run.n_units"] == 12.0


def test_candidates_have_keys_of_their_own_and_what_was_not_measured_has_none() -> None:
    summary = full_summary(12, candidates(2))
    odd = summary.metrics[0].model_copy(
        update={"candidate": "org/model@é:1", "figure": summary.metrics[0].figure.model_copy()}
    )
    nothing = odd.figure.model_copy(update={"value": None, "low": None, "high": None})
    odd = odd.model_copy(update={"figure": nothing, "n_scored": 0, "n_estimated": 0})
    logged = figures(summary.model_copy(update={"metrics": (odd,)}), by_candidate=True)
    assert [key for key in logged if odd.metric in key] == [f"{odd.metric}/org_model_é_1.n"]
    assert all(KEY.fullmatch(key) for key in logged)


@pytest.mark.parametrize("key", ["../../etc", "a//b", "a/../b", "/a", "x" * 1000])
def test_a_name_is_no_path_elsewhere(key: str) -> None:
    (name,) = params_of({"rubrics": {key: "v"}}, {})
    assert not name.startswith(("/", "."))
    assert "//" not in name
    assert len(name) <= 250


def test_params_are_what_all_sessions_share() -> None:
    config: dict[str, Any] = {
        "suite": "memory",
        "candidates": [{"name": "a", "sampling": {"temperature": 0.0, "stop": []}, "seed": None}],
        "metrics": ["empathy", "safety"],
        "affect": {"enabled": False, "emotion": "lexicon"},
        "judging": {"actors": 3},
    }
    manifest = {"judges": {"empathy": "openai/gpt-4o"}, "dataset": {"fingerprint": "2:ab"}}
    assert params_of(config, manifest) == {
        "suite": "memory",
        "candidates.0.name": "a",
        "candidates.0.sampling.temperature": "0.0",
        "metrics": '["empathy", "safety"]',
        "judged_by.empathy": "openai/gpt-4o",
        "dataset_fingerprint": "2:ab",
    }
    heard = params_of(config | {"affect": {"enabled": True, "emotion": "lexicon"}}, {})
    assert heard["affect.emotion"] == "lexicon"


def test_the_run_s_answer_is_its_description() -> None:
    summary = full_summary(12, candidates(1))
    tags = tags_of(summary, {"status": "finished"})
    assert tags["memray_eval.status"] == "finished"
    assert tags["mlflow.note.content"]
