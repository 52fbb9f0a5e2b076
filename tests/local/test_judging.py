"""Whole runs with judges behind real servers: what is asked of which, by their names; the model
that answered, kept with every answer and verdict and told if it changed within a run or between
two; and parameters that candidate and judge refuse."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render, render_brief
from memray_eval.report.exports import write_parquet
from tests.build import Job, empathy_verdict, finish, go_on, served
from tests.conftest import Call
from tests.servers.judgments import judgment_reply, reply_to
from tests.servers.provider import Answer, Fault, serving
from tests.servers.refusals import RefusingServer

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."
QUOTES = ("that sounds hard", "we are all with you")


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    """Answers as the candidate where it streams, else as the judge of the metric that the rubric
    names."""
    if body.get("stream"):
        return ANSWER
    if "dismissive_words" in json.dumps(body["response_format"]):
        return json.dumps(empathy_verdict(2, 1, 0, quotes=QUOTES))
    return Fault(400)  # by 404 the model would be gone, and asked no more


def test_a_judge_scores_its_metric_and_every_outcome_is_accounted_for(job: Job) -> None:
    with serving(reply) as server:
        config = job(
            server,
            limit=6,
            metrics=["empathy", "safety", "memory_utilization", "relevance"],
            judge=dict.fromkeys(("empathy", "safety"), "openai/judge")
            | {"memory_utilization": "rules"},
        )
        done = finish(config)
        requests = [body for body in server.requests if not body.get("stream")]
    assert len(requests) == 12  # six of each judged metric, none twice
    summary = {metric.metric: metric for metric in done.summary.metrics}
    empathy = summary["empathy"]
    assert (empathy.mean, empathy.coverage, empathy.judges) == (4.0, 1.0, {"openai/judge": 6})
    # "we are all with you" is not in the answer
    assert (empathy.extras["unverified"], empathy.extras["trust"]) == (6.0, 0.5)
    note = "empathy: 6 of 12 quotes (50%) of its judge are not in the texts and decide nothing"
    assert any(line.startswith(note) and "'we are all" in line for line in done.summary.notes)
    scores = [score for record in done.folder.each() for score in record.scores]
    judged = [score for score in scores if score.metric == "empathy"]
    assert all(score.usage.input_tokens == 10 and score.latency_s > 0 for score in judged)
    failed = [score.error or "" for score in scores if score.metric == "safety"]
    assert all(error.startswith("JudgeError: the provider answered 400") for error in failed)
    safety = summary["safety"]
    assert (safety.mean, safety.n_failed, safety.coverage) == (None, 6, 0.0)
    assert summary["memory_utilization"].judges == {"rules+openai/hashed": 6}
    text = render(done.summary)
    assert "6 of 6 scored; 6 of 12 pieces of evidence unverified (not found), trust 50%" in text
    assert "Average Safety: -" in text.replace("Average Safety Score", "Average Safety")
    assert "6 failed" in text
    assert done.exit_code == 1
    manifest = done.folder.read_manifest()
    assert manifest["judges"]["empathy"] == "openai/judge (as configured)"
    rubrics = manifest["rubrics"]
    assert set(rubrics) == {"empathy", "safety", "memory_utilization", "relevance"}
    assert rubrics["relevance"] == "no answer: zero"


def test_a_juror_that_fails_is_named(job: Job) -> None:
    def by_model(body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            return ANSWER
        if body["model"] == "mute":
            return "no verdict"
        return json.dumps(empathy_verdict(2, 2, 1, quotes=QUOTES))

    with serving(by_model) as server:
        jury = {"empathy": ["openai/kind", "openai/mute"]}
        done = finish(job(server, limit=2, metrics=["empathy"], judge=jury, judging={"tries": 1}))
    (note,) = [note for note in done.summary.notes if "gave no verdict" in note]
    assert "openai/mute gave no verdict on 2 of 2 answers; the other jurors decided" in note


def test_each_is_asked_what_its_name_says(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "lab-key")
    with (
        serving(lambda body: "Rest more. You sleep 4.5 hours.") as candidate,
        serving(judgment_reply) as juror,
        serving(lambda body: Fault(500)) as lab,
    ):
        urls = {"mine": candidate.base_url, "one": juror.base_url}
        servers = {name: {"url": url} for name, url in urls.items()}
        config = job(
            candidate,
            servers=servers | {"lab": {"url": lab.base_url, "api_key_env": "LAB_KEY"}},
            candidates=[{"name": "c", "model": "mine/org/model"}],
            embedding={"model": "mine/hashed"},
            metrics=["empathy", "relevance"],
            judge=["one/juror", "lab/juror"],
            judging={"tries": 1},
            limit=3,
            tolerance=1.0,
        )
        done = finish(config)
        assert {request["model"] for request in candidate.requests} == {"org/model"}
        assert {request["model"] for request in juror.requests} == {"juror"}
        assert juror.n_requests == lab.n_requests == 3
        by_name = {metric.metric: metric for metric in done.summary.metrics}
        assert by_name["relevance"].n_scored == 3
        judges = done.folder.read_manifest()["judges"]["empathy"]
        assert "one/juror" in judges
        assert "lab/juror" in judges
        lab.reply = judgment_reply
        again = go_on(done.folder.path)
        expected = {"empathy": 3, "relevance": 3}
        assert {metric.metric: metric.n_scored for metric in again.summary.metrics} == expected
        assert juror.n_requests == 3  # its verdicts were paid
    stored = (Path(done.folder.path) / "run.yaml").read_text()
    assert "lab-key" not in stored


OLD, NEW = "m-2026-08-06", "m-2026-11-20"


def changes_after(n: int, say: Callable[[dict[str, Any]], str], before: str = OLD) -> Any:
    """A server that answers as another model from its reply `n` on."""
    numbers = count()
    return lambda body: Answer(say(body), model=before if next(numbers) < n else NEW)


def test_a_change_within_a_run_is_told_and_its_figures_are_split(
    job: Job, tmp_path: Path, cli: Call
) -> None:
    replies = {OLD: "Rest more. You sleep 4.5 hours.", NEW: "No."}
    numbers = count()

    def answer(body: dict[str, Any]) -> Answer:
        model = OLD if next(numbers) < 4 else NEW
        return Answer(replies[model], model=model)

    def answer_as(judge: Any, out: str) -> Any:
        return job(
            candidate,
            servers={"lab": {"url": judge.base_url}},
            candidates=[served(candidate, "c")],
            metrics=["empathy", "readability_score"],
            judge="lab/juror",
            limit=6,
            out=str(tmp_path / out),
        )

    with serving(answer) as candidate, serving(changes_after(2, judgment_reply)) as judge:
        done = finish(answer_as(judge, "a"))
        seen = {(row.of, row.name, row.model): row for row in done.summary.served_models}
        assert {key: row.n for key, row in seen.items()} == {
            ("candidate", "c", OLD): 4,
            ("candidate", "c", NEW): 2,
            ("judge", "lab/juror", OLD): 2,
            ("judge", "lab/juror", NEW): 4,
        }
        scores = {OLD: list[float](), NEW: list[float]()}
        for record in done.folder.each():
            (grade,) = (score for score in record.scores if score.metric == "readability_score")
            scores[record.response.served_model].append(grade.value)
        for model, values in scores.items():
            mean = seen["candidate", "c", model].means["readability_score"]
            assert mean == pytest.approx(sum(values) / len(values))
        screen = " ".join(render_brief(done.summary, "x").split())
        assert f"candidate c answered as 2 models: {OLD} (4), {NEW} (2)" in screen or (
            f"candidate c answered as 2 models: {NEW} (2), {OLD} (4)" in screen
        )
        assert "judge lab/juror answered as 2 models" in screen
        assert "MODELS THAT ANSWERED - candidate c" in render(done.summary)
        write_parquet(str(tmp_path / "long.parquet"), done.folder.records())
        rows = pq.read_table(tmp_path / "long.parquet").to_pylist()
        assert {row["served_model"] for row in rows} == {OLD, NEW}
        empathy = [row for row in rows if row["metric"] == "empathy"]
        assert {row["judge_served_model"] for row in empathy} == {OLD, NEW}
        n_asked = judge.n_requests
        again = finish(answer_as(judge, "b"))  # the candidate is the new one throughout
        first = {  # whichever of them was judged first
            score.served_model for record in done.folder.each() for score in record.scores
            if score.metric == "empathy" and record.response.served_model == NEW
        }  # fmt: skip
        cached = [
            score for record in again.folder.each() for score in record.scores if score.cached
        ]
        assert judge.n_requests < n_asked + 6
        assert {score.served_model for score in cached} == first
    _, out, _ = cli("compare", done.folder.path, again.folder.path)
    output = " ".join(out.split())
    assert f"candidate c: other models answered: {OLD}, {NEW} in A; {NEW} in B" in output


def test_one_name_or_none_is_not_told(job: Job) -> None:
    with serving(lambda body: "Rest more.") as server:
        done = finish(job(server, metrics=["readability_score"], limit=3))
    (served,) = done.summary.served_models
    assert (served.of, served.name, served.model, served.n) == ("candidate", "served", "m", 3)
    assert not [note for note in done.summary.notes if "models" in note]
    assert "MODELS THAT ANSWERED" not in render(done.summary)


def test_a_jury_has_the_names_of_all(job: Job) -> None:
    with (
        serving(lambda body: "Rest more. You sleep 4.5 hours.") as server,
        serving(changes_after(99, judgment_reply)) as first,
        serving(changes_after(0, judgment_reply)) as two,
    ):
        servers = {"one": {"url": first.base_url}, "two": {"url": two.base_url}}
        jury = {"metrics": ["empathy"], "judge": ["one/j", "two/j"]}
        done = finish(job(server, servers=servers, limit=3, **jury))
    judges = [served for served in done.summary.served_models if served.of == "judge"]
    assert [(judge.name, judge.model, judge.n) for judge in judges] == [
        ("one/j + two/j", f"{OLD} + {NEW}", 3)
    ]
    assert not [note for note in done.summary.notes if "answered as" in note]


def test_unknown_marks_are_told_once(job: Job) -> None:
    with serving(lambda body: "<xyz_think>Hm.</xyz_think> Rest more.") as server:
        done = finish(job(server, metrics=["readability_score"], limit=3))
    assert done.summary.unknown_marks == {"<xyz_think>": 3}
    (note,) = (note for note in done.summary.notes if "is not known" in note)
    assert note.endswith("3 of the answers.")
    assert "<xyz_think>" in note


REFUSED = ("max_tokens", "temperature", "top_p", "seed", "reasoning_effort")


def refusing_job(job: Job, server: Any, **overrides: Any) -> RunConfig:
    """One model answers and judges, so what one stage learns the other knows."""
    return job(
        server,
        servers={"lab": {"url": server.base_url}},
        candidates=[{"name": "c", "model": "lab/o9", "extra": {"reasoning_effort": "low"}}],
        metrics=["empathy", "politeness"],
        judge="lab/o9",
        limit=6,
        **overrides,
    )


def test_a_run_leaves_out_what_is_refused_and_says_so_once(job: Job, tmp_path: Path) -> None:
    script = RefusingServer("openai", REFUSED, reply_to)
    with serving(script) as server:
        done = finish(refusing_job(job, server))
        assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
        assert script.refusals == dict.fromkeys(REFUSED, 1)
        manifest = done.folder.read_manifest()
        target = f"o9 at {server.base_url.removeprefix('http://')}"
        left_out = dict.fromkeys(REFUSED, "") | {"max_tokens": "max_completion_tokens"}
        assert manifest["parameters_left_out"] == {target: left_out}
        assert manifest["judge_parameters"] == {"lab/o9": {"temperature": 0, "seed": 0}}
        events = [line for line in manifest["events"] if target in line]
        assert len(events) == len(REFUSED)
        assert done.summary.temperatures == {"lab/o9": "the server's default temperature"}
        brief = " ".join(render_brief(done.summary, "").split())
        assert "the server's default temperature" in brief


def test_a_resumed_run_knows_what_was_refused(job: Job) -> None:
    script = RefusingServer("openai", REFUSED, lambda body: "no verdict")
    with serving(script) as server:
        config = refusing_job(job, server, tolerance=1.0)
        first = finish(config)
        assert first.summary.n_failed_units == 6
        left_out = first.folder.read_manifest()["parameters_left_out"]
        script.reply = reply_to
        again = go_on(first.folder.path)
    assert again.summary.n_failed_units == 0
    assert script.refusals == dict.fromkeys(REFUSED, 1)
    assert again.folder.read_manifest()["parameters_left_out"] == left_out


def test_a_call_is_remembered_by_what_was_asked_for(job: Job, tmp_path: Path) -> None:
    """A second run, whose server takes all parameters, finds the verdicts of the first."""
    with serving(RefusingServer("vllm", ("temperature", "seed"), reply_to)) as server:
        finish(refusing_job(job, server))
        n_judged = sum("stream" not in body for body in server.requests)
        assert n_judged >= 12
        server.reset()
        server.reply = reply_to
        second = finish(refusing_job(job, server))
        assert all(body.get("stream") for body in server.requests)
        assert second.summary.temperatures == {"lab/o9": "temperature 0"}


def test_a_judge_at_temperature_0_is_said_to_be(job: Job, tmp_path: Path) -> None:
    with serving(reply_to) as server:
        done = finish(refusing_job(job, server))
    assert done.folder.read_manifest()["parameters_left_out"] == {}
    assert "judged at temperature 0" in " ".join(render_brief(done.summary, "").split()).lower()
