"""Whole runs whose tasks have judges and rubrics of their own, and what stands in for a judge that
fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.runs import run
from memray_eval.execution.session import RunResult
from memray_eval.metric import NEEDS_JUDGE
from tests.build import GIVEN, Job, finish, go_on, write_lines
from tests.servers.provider import Answer, Fault, Provider, serving

METRIC, TASKS = "semantic_correctness", ("passkey", "vt", "qa")


@pytest.fixture
def build(job: Job, tmp_path: Path) -> Job:
    """A config that judges six responses, two a task, of which every other is right to the
    letter."""
    rows = [
        {
            "id": f"{task}-{number}",
            "task": task,
            "query": f"Where is {task}?",
            "answers": ["42"],
            "response": ["42", "It is 42."][number],
        }
        for task in TASKS
        for number in range(2)
    ]
    dataset = str(write_lines(tmp_path / "responses.jsonl", rows))

    def make(server: Provider, judging: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
        return job(
            server,
            dataset=dataset,
            candidates=[GIVEN],
            suite="needles",
            metrics=fields.pop("metrics", ["semantic_correctness"]),
            judging={"tries": 1, **(judging or {})},
            **fields,
        )

    return make


def summary_text(done: RunResult) -> str:
    return (Path(done.folder.path) / "summary.txt").read_text("utf-8")


def correct(body: dict[str, Any]) -> str | Answer | Fault:
    return json.dumps({"answer": "", "reasoning": "r", "verdict": "CORRECT", "confidence": 0.9})


def test_tasks_are_judged_by_their_own_judges_and_rubrics(build: Job, tmp_path: Path) -> None:
    own = tmp_path / "law.txt"
    own.write_text("Mind the digits.")
    messages: list[str] = []
    with serving(correct) as server:
        judge = {METRIC: "openai/usual", f"{METRIC}/passkey": "openai/own", f"{METRIC}/vt": "rules"}
        rubrics = {METRIC: "lenient", f"{METRIC}/passkey": str(own)}
        done = run(build(server, judge=judge, rubrics=rubrics), say=messages.append, quiet=True)
        systems = [(body["model"], body["messages"][0]["content"]) for body in server.requests]
        names = {
            "semantic_correctness": "openai/usual (as configured; rubric lenient)",
            "semantic_correctness/passkey": "openai/own (as configured; rubric law.txt)",
            "semantic_correctness/vt": "rules (offline estimate; preferred judge: "
            "openai/gpt-4o-mini)",
        }
        manifest = done.folder.read_manifest()
        own.write_text("Mind the letters.")
        with pytest.raises(ConfigError, match="the rubric of semantic_correctness/passkey was"):
            go_on(done.folder.path)
        own.write_text("Mind the digits.")
        with pytest.raises(ConfigError, match="without a verdict zero"):
            go_on(done.folder.path, settings=["judging.on_judge_failure=zero"])
        go_on(done.folder.path)
        assert len(server.requests) == len(systems) == 4
    assert {(model, text.splitlines()[-1]) for model, text in systems} == {
        ("usual", "-> INCORRECT: one of two required answers is missing"),
        ("own", "Mind the digits."),
    }
    assert manifest["judges"] == names
    # The rules' digest is that of the metric's usual rubric
    assert len(set(manifest["rubrics"].values())) == 2
    assert {*manifest["rubric_versions"].values()} == {"2"}
    assert manifest["rubrics"].keys() - manifest["rubric_versions"].keys() == {
        "semantic_correctness/passkey"
    }
    assert all(f"  {key}: {name}" in "\n".join(messages) for key, name in names.items())
    (summary,) = done.summary.metrics
    assert (summary.mean, summary.judges) == (1.0, {"openai/own": 2, "openai/usual": 2, "rules": 2})
    lenient, law = (
        manifest["rubrics"][key].partition(", ")[0]
        for key in ("semantic_correctness", "semantic_correctness/passkey")
    )
    assert (
        f"rubrics: semantic_correctness by lenient ({lenient}), "
        f"semantic_correctness/passkey by law.txt ({law})." in done.summary.notes
    )


def test_verdicts_that_stood_in_are_counted_apart(build: Job) -> None:
    def reply(body: dict[str, Any]) -> str | Answer | Fault:
        is_long = "It is 42." in body["messages"][1]["content"]
        return Answer("No.", "refused") if is_long else Fault(400)

    with serving(reply) as server:
        done = finish(build(server, judge="openai/m", judging={"on_judge_failure": "string_match"}))
    (summary,) = done.summary.metrics
    assert (summary.mean, summary.judges) == (0.5, {"string_match": 6})
    assert (summary.n_failed, done.exit_code) == (0, 0)
    scores = [record.scores[0] for record in done.folder.each()]
    seen = sorted({(score.value, (score.error or "").partition(":")[0]) for score in scores})
    assert seen == [(0.0, "Declined"), (1.0, "JudgeError")]
    text = summary_text(done)
    assert "Coverage: 6 of 6 scored, 6 by string match; judged by string_match" in text
    by_fallback = [line for line in text.splitlines() if line.endswith("  2 of 2 by fallback")]
    assert len(by_fallback) == len(TASKS)


def test_the_table_by_task_counts_every_call_that_was_paid_and_names_who_judged(build: Job) -> None:
    with serving(correct) as server:
        judge = {METRIC: "openai/m", f"{METRIC}/vt": "rules"}
        done = finish(build(server, judge=judge, judging={"repeats": 3}))
        calls = len(server.requests)
    by_task = {task.task: task.metrics[0] for task in done.summary.tasks}
    expected = {"qa": (6, 0), "passkey": (6, 0), "vt": (0, 2)}
    assert {task: (metric.calls, metric.estimates) for task, metric in by_task.items()} == expected
    assert calls == 12
    starts = ("task", *TASKS, "macro")
    rows = [line for line in summary_text(done).splitlines() if line.startswith(starts)]
    assert "judges" in rows[0]
    marks = {row.split()[0]: row.partition("estimate")[2] for row in rows[1:] if "estimate" in row}
    assert marks == {"vt": "", "macro": " for 2 of 6"}


def test_a_metric_that_needs_a_judge_scores_nothing_without_one_and_says_why(build: Job) -> None:
    messages: list[str] = []
    with serving(correct) as server:
        metrics = ["safety", "semantic_correctness"]
        done = run(build(server, judge="rules", metrics=metrics), messages.append, quiet=True)
        with pytest.raises(ConfigError, match="nothing would be scored: safety needs a judge"):
            run(build(server, judge="rules", metrics=["safety"]), messages.append, quiet=True)
        assert not server.requests
    assert f"  not scored: safety (each {NEEDS_JUDGE})" in "\n".join(messages).splitlines()
    safety, correctness = done.summary.metrics
    assert (safety.n_not_applicable, safety.mean, safety.reason) == (6, None, NEEDS_JUDGE)
    assert (correctness.n_scored, correctness.n_estimated) == (6, 6)
    scores = [score for record in done.folder.each() for score in record.scores]
    assert {score.error for score in scores if score.metric == "safety"} == {NEEDS_JUDGE}
    assert f"not scored: safety; each {NEEDS_JUDGE}." in done.summary.notes
    assert "SAFETY" not in summary_text(done)
