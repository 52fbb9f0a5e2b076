"""Whole runs with a judge behind a real server."""

import json
from typing import Any

from memray_eval.report.console import render
from tests.build import Job, empathy_verdict, finish
from tests.servers.provider import Answer, Fault, serving

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
            judge={
                "empathy": "openai/judge",
                "safety": "openai/judge",
                "memory_utilization": "rules",
            },
            judging={"base_urls": {"openai": server.base_url}},
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
        judging = {"base_urls": {"openai": server.base_url}, "tries": 1}
        jury = {"empathy": ["openai/kind", "openai/mute"]}
        done = finish(job(server, limit=2, metrics=["empathy"], judge=jury, judging=judging))
    (note,) = [note for note in done.summary.notes if "gave no verdict" in note]
    assert "openai/mute gave no verdict on 2 of 2 answers; the other jurors decided" in note
