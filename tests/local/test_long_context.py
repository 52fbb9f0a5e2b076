"""A whole long-context run: the shipped examples asked of a server, in the order of their contexts,
judged and ruled on."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render
from tests.build import Job, finish, served, write_lines
from tests.conftest import REPOSITORY
from tests.servers.provider import Answer, Fault, Provider, serving

EXAMPLES = REPOSITORY / "dataset" / "longbench"


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    """Two right answers, in their own words; the judge believes all it is told."""
    if body.get("stream"):
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        return (
            "They were Sula and Petrel."
            if "Which boats were laid up" in prompt
            else "<think>who?</think>It was done by Iver Dahl."
        )
    return json.dumps({"answer": "", "reasoning": "r", "verdict": "CORRECT", "confidence": 0.9})


@pytest.fixture
def long_job(job: Job) -> Job:
    def make(server: Provider, candidate: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
        return job(
            server,
            suite="longbench",
            candidates=[served(server, **(candidate or {}))],
            metrics=[],
            judging={"base_urls": {"openai": server.base_url}},
            server={"max_in_flight": 1},
            **{"dataset": str(EXAMPLES), "judge": "openai/judge", **fields},
        )

    return make


def test_both_kinds_of_score_stand_side_by_side_for_each_task(long_job: Job) -> None:
    with serving(reply) as server:
        done = finish(long_job(server))
    summary, text = done.summary, render(done.summary)
    expected = ["narrativeqa", "qasper"]
    assert [row.task for row in summary.tasks if row.bucket is None][:2] == expected
    records = {record.sample.id: record for record in done.folder.each()}
    assert len(records) == 10
    forms = {
        record.sample.task: record.response.prompt_form
        for record in records.values()
        if record.response
    }
    assert (forms["trec"], forms["lcc"], forms["qasper"]) == ("plain", "plain", "chat")
    assert all(record.sample.context is None for record in records.values())
    carpenter = records["qasper:h2"]
    assert carpenter.response is not None
    expected = ("It was done by Iver Dahl.", 1)
    assert (carpenter.response.text, carpenter.response.thinking_blocks) == expected
    scores = {score.metric: score for score in carpenter.scores}
    assert scores["semantic_correctness"].value == 1.0
    assert scores["rule_score"].judge == "qa_f1, LongBench 2e00731"
    assert scores["rule_score"].value == pytest.approx(0.5)  # 2 of 6 words, both of the answer's
    disagreements = [
        json.loads(line)
        for line in (Path(done.folder.path) / "disagreements.jsonl").read_text().splitlines()
    ]
    assert len(disagreements) == summary.n_disagreements
    assert {line["verdict"] for line in disagreements} == {"CORRECT"}
    assert "TASKS - served" in text


def test_questions_on_one_context_are_asked_together(long_job: Job, tmp_path: Path) -> None:
    contexts = [f"Book {number}. " + "It rains. " * 40 for number in range(4)]
    row = {"task": "qasper", "answers": ["x"]}
    rows = [
        {"id": f"q{n}", "query": f"Question {n}?", "context": contexts[n % 4], **row}
        for n in range(16)
    ]
    write_lines(tmp_path / "rows.jsonl", rows)
    with serving(reply) as server:
        finish(long_job(server, dataset=str(tmp_path / "rows.jsonl"), judge="rules"))
        texts = [body["messages"][-1]["content"] for body in server.requests if body.get("stream")]
    assert len(texts) == 16
    order = [next(number for number in range(4) if f"Book {number}." in prompt) for prompt in texts]
    assert len(list(groupby(order))) == 4
    first, second = texts[0], texts[1]  # all that varies comes after the context
    assert first[: first.index("Question")] == second[: second.index("Question")]
