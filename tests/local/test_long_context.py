"""Whole long-context runs: the shipped examples of LongBench, asked in the order of their contexts,
judged and ruled on; and the job of all benchmarks, each scored by its own rule, on one page by
length."""

import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.long_context import SUITES
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.execution.session import RunResult
from memray_eval.report.console import render
from memray_eval.types import Record
from tests.build import Job, finish, served, write_lines
from tests.conftest import REPOSITORY
from tests.servers.provider import Answer, Fault, Provider, serving


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
    def make(server: Provider, **fields: Any) -> RunConfig:
        own = {"suite": "longbench", "metrics": [], "server": {"max_in_flight": 1}}
        own |= {"dataset": str(REPOSITORY / "dataset" / "longbench"), "judge": "openai/judge"}
        return job(server, **own | fields)

    return make


def test_both_kinds_of_score_stand_side_by_side_for_each_task(long_job: Job) -> None:
    with serving(reply) as server:
        done = finish(long_job(server))
    summary, text = done.summary, render(done.summary)
    tasks = [row.task for row in summary.tasks if row.bucket is None]
    assert tasks[:2] == ["narrativeqa", "qasper"]
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
    assert carpenter.response.text == "It was done by Iver Dahl."
    assert carpenter.response.thinking_blocks == 1
    scores = {score.metric: score for score in carpenter.scores}
    assert scores["semantic_correctness"].value == 1.0
    assert scores["rule_score"].judge == "qa_f1, LongBench 2e00731"
    assert scores["rule_score"].value == pytest.approx(0.5)  # 2 of 6 words, both of the answer's
    lines = done.folder.read("disagreements.jsonl").splitlines()
    disagreements = [json.loads(line) for line in lines]
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
    dataset = str(write_lines(tmp_path / "rows.jsonl", rows))
    with serving(reply) as server:
        finish(long_job(server, dataset=dataset, judge="rules"))
        texts = [body["messages"][-1]["content"] for body in server.requests if body.get("stream")]
    assert len(texts) == 16
    order = [next(number for number in range(4) if f"Book {number}." in prompt) for prompt in texts]
    assert len(list(groupby(order))) == 4
    first, second = texts[0], texts[1]  # all that varies comes after the context
    assert first[: first.index("Question")] == second[: second.index("Question")]


EDGE = re.compile(r"^(\w{10}) -> (\w{10})$", re.MULTILINE)


def reply_rightly(body: dict[str, Any]) -> str:
    """Two of the benchmarks answered rightly, by what the prompt says: MRCR after a thought, and
    GraphWalks' parents."""
    messages = [message["content"] for message in body["messages"]]
    prompt = messages[-1]
    if match := re.search(r"Repeat the (\w+) of these .* with (\w{10}) put", prompt):
        kind = re.search(r"request for (an? .*?) \d times", prompt)
        assert kind
        places = [n for n, message in enumerate(messages[:-1]) if message == f"Write {kind[1]}."]
        ordinals = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
        answer = messages[places[ordinals.index(match[1])] + 1]
        return f"<think>Which one?</think>{match[2]}{answer}"
    if match := re.search(r"the parents of the node (\w{10})", prompt):
        into = [source for source, target in EDGE.findall(prompt) if target == match[1]]
        return f"Final Answer: [{', '.join(into)}]"
    return "I cannot tell."


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    shipped = load_config(REPOSITORY / "jobs" / "long-context-2026.yaml")
    with serving(reply_rightly) as server:
        out = str(tmp_path_factory.mktemp("whole") / "results")
        fields = {"candidates": [served(server)], "out": out}
        return finish(RunConfig.model_validate(shipped.model_dump(exclude_unset=True) | fields))


def scores_of(records: list[Record], task: str) -> list[float | None]:
    return [record.scores[0].value for record in records if record.sample.task == task]


def test_every_benchmark_is_run_and_scored_by_its_own_rule(whole: RunResult) -> None:
    records = list(whole.folder.each())
    assert whole.exit_code == 0
    by_benchmark: dict[str, set[str]] = {}
    for record in records:
        (score,) = record.scores
        assert score.status == "scored", (record.sample.id, score.error)
        by_benchmark.setdefault(record.sample.task.partition(":")[0], set()).add(score.judge)
    assert set(by_benchmark) == set(SUITES)
    assert by_benchmark["mrcr"] == {"mrcr_ratio, openai/mrcr 204b0d4"}
    for n in (2, 4, 8):
        assert set(scores_of(records, f"mrcr:{n}needle")) == {1.0}
    assert set(scores_of(records, "graphwalks:parents")) == {1.0}
    assert set(scores_of(records, "graphwalks:bfs")) == {0.0}


def test_the_page_has_each_task_by_length(whole: RunResult) -> None:
    summary = whole.summary
    lengths: Mapping[str, list[str]] = {
        task: [row.bucket for row in summary.tasks if row.task == task and row.bucket]
        for task in ("mrcr:2needle", "graphwalks:parents", "needles:passkey", "babilong:qa1")
    }
    assert lengths == {
        "mrcr:2needle": ["3k", "4k"],
        "graphwalks:parents": ["2k", "4k"],
        "needles:passkey": ["1k", "2k", "4k"],
        "babilong:qa1": ["2k", "4k"],
    }
    text = render(summary)
    assert "TASKS - served" in text
    assert text.index("needles:passkey") < text.index("mrcr:2needle") < text.index("graphwalks:bfs")
    assert "LENGTH BY DEPTH: rule_score" in text
