"""Whole runs of the conversation-memory suites: the shipped examples asked of a server in two arms,
judged, and sorted by where they failed."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render
from memray_eval.report.html.page import render_html
from tests.build import Job, finish, go_on, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Answer, Fault, Provider, serving

DATASETS = {
    "locomo": ("locomo", 14),
    "longmemeval": ("longmemeval", 8),
    "beam": ("beam/chats", 20),
    "personamem": ("personamem", 8),
}


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    """The candidate declines; the judge finds every other answer right by its length."""
    if body.get("stream"):
        return "That was not mentioned, (b)."
    schema = json.dumps(body.get("response_format", {}))
    is_odd = len(body["messages"][-1]["content"]) % 2
    if "verdict" in schema:
        verdict = "CORRECT" if is_odd else "INCORRECT"
        return json.dumps({"answer": "", "reasoning": "r", "verdict": verdict, "confidence": 0.9})
    if '"order"' in schema:
        return json.dumps({"reason": "r", "order": [2, 1]})
    if '"reply"' in schema:
        return json.dumps({"reply": "yes" if is_odd else "no"})
    return json.dumps({"reason": "r", "score": 0.5})


@pytest.fixture
def memory_job(job: Job) -> Job:
    def make(server: Provider, suite: str, **fields: Any) -> RunConfig:
        retrieved = {"context": "retrieved", "retrieved": {"k": 2}}
        own = {
            "candidates": [served(server, "full"), served(server, "found", **retrieved)],
            "metrics": [],
            "dataset": str(REPOSITORY / "dataset" / DATASETS[suite][0]),
            "judge": "openai/judge",
        }
        return job(server, suite=suite, **{**own, **fields})

    return make


@pytest.mark.parametrize("suite", DATASETS)
def test_every_wrong_answer_has_its_place_in_either_arm(memory_job: Job, suite: str) -> None:
    with serving(reply) as server:
        done = finish(memory_job(server, suite))
    summary = done.summary
    assert (summary.n_units, summary.n_failed_units) == (2 * DATASETS[suite][1], 0)
    assert [arm.arm for arm in summary.arms] == ["retrieved: 2 turns by bm25", "full"]
    retrieved, full = summary.arms
    for arm in summary.arms:
        assert sum(arm.failures.values()) == arm.n_wrong
        assert arm.n_wrong + arm.n_unexplained > 0
        assert all(value is not None for value in arm.overall.values())
        assert {row.category for row in arm.categories} > {None}
    assert full.failures["not_retrieved"] == 0
    if suite != "personamem":  # whose tables name no evidence
        assert (full.recall, retrieved.recall is not None) == (1.0, True)
        assert (retrieved.recall or 0.0) < 1.0
        assert full.n_abstention > 0
    assert "CONVERSATION MEMORY" in render(summary)
    assert 'id="memory"' in render_html(done.folder)


def test_gold_is_in_no_prompt_of_a_whole_run(memory_job: Job, tmp_path: Path) -> None:
    raw = json.loads((REPOSITORY / "dataset/locomo/locomo_example.json").read_text("utf-8"))
    for conversation in raw:
        for question in conversation["qa"]:
            question["answer"] = question["adversarial_answer"] = "PLANTED"
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(raw))
    prompts: list[str] = []

    def listen(body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            prompts.append(json.dumps(body))
        return reply(body)

    with serving(listen) as server:
        finish(memory_job(server, "locomo", dataset=str(path)))
    assert len(prompts) == 28
    assert not any("PLANTED" in text or "adversarial" in text or "D1:" in text for text in prompts)


def test_errata_stand_in_the_summary_and_after_a_resume(memory_job: Job, tmp_path: Path) -> None:
    errata = tmp_path / "errata.json"
    wrong = {"question_id": "example-1:qa4", "error_type": "HALLUCINATION",
             "golden_answer": "Blue", "correct_answer": "Green"}  # fmt: skip
    errata.write_text(json.dumps([wrong]))
    with serving(reply) as server:
        job = memory_job(server, "locomo", errata=str(errata), metrics=["rule_score"])
        done = finish(job)
        again = go_on(done.folder.path)
    for summary in (done.summary, again.summary):
        [figure] = summary.arms[0].errata
        assert (figure.n, figure.n_without) == (14, 13)
        assert figure.ceiling == pytest.approx(13 / 14)
