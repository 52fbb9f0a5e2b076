"""Runs whose candidates give no answer: counted by cause, and out of the figures unless asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.session import RunResult
from memray_eval.report.console import render, render_brief
from memray_eval.report.exports import write_parquet
from memray_eval.report.html.page import write_html
from memray_eval.types import RULES_ON_NO_ANSWER, Summary
from tests.build import GIVEN, Job, build_config, finish, go_on, served, write_lines
from tests.servers.judgments import judgment_reply
from tests.servers.no_answers import SERVERS, reply_with
from tests.servers.provider import Answer, Outcome, Reply, serving

TWELVE = (
    "politeness helpfulness empathy safety coherence relevance groundedness memory_utilization "
    "persona_consistency emotional_congruence logical_consistency conversational_continuity"
).split()
SAID = {"content": "Rest more. You sleep 4.5 hours."}


def in_turn(streams: bool) -> Callable[[dict[str, Any]], Outcome]:
    """Each cause once, by the order of asking, then answers."""
    left = [reply_with(*server, streams=streams) for server in SERVERS.values()]
    spoken = reply_with(SAID, "stop", {}, streams=streams)
    return lambda body: left.pop(0) if left else spoken


def finished(config: RunConfig) -> tuple[Summary, Any]:
    done = finish(config)
    return done.summary, done.folder


@pytest.mark.parametrize("streams", [False, True])
def test_six_servers_of_no_answer_are_left_out_if_the_job_says_so(
    job: Job, tmp_path: Path, streams: bool
) -> None:
    with serving(in_turn(streams)) as server:
        config = job(server, limit=8, metrics=TWELVE, judge="rules", on_no_answer="exclude")
        summary, folder = finished(config)
        # As earlier versions wrote it, whose runs can be resumed
        assert "relevance" not in folder.read_manifest()["rubrics"]
        (candidate,) = summary.candidates
        assert candidate.no_answer == dict.fromkeys(sorted(SERVERS), 1)
        assert (candidate.n, candidate.n_failed, candidate.answered) == (8, 0, 2)
        assert summary.n_failed_units == 0
        for metric in summary.metrics:
            applicable = metric.n - metric.n_not_applicable
            assert (metric.n_scored, metric.n_failed) == (applicable - metric.n_no_answer, 0)
            assert metric.n_scored <= 2
            assert (metric.min is None) == (metric.n_scored == 0)
        stored = json.loads((Path(folder.path) / "summary.json").read_text("utf-8"))
        assert stored["candidates"][0]["no_answer"]["refusal"] == 1
        screen = " ".join(render_brief(summary, folder.path).split())
        counts = "1 content filter, 1 limit, 1 null, 1 refusal, 1 thinking"
        assert f"No answer: 6 of 8 ({counts}" in screen
        assert "left out of the figures" in screen
        assert "6 without an answer" in render(summary)
        write_html(folder, str(tmp_path / "page.html"))
        page = (tmp_path / "page.html").read_text("utf-8")
        assert "I cannot help with that." in page
        assert '"statuses":["scored","abstained","not_applicable","error","no_answer"]' in page
        write_parquet(str(tmp_path / "long.parquet"), folder.records())
        rows = pq.read_table(tmp_path / "long.parquet").to_pylist()
        unscored = {
            (row["unit_id"], row["no_answer"]) for row in rows if row["status"] == "no_answer"
        }
        assert sorted(cause for _, cause in unscored) == sorted(SERVERS)
        n_asked = server.n_requests
        again = go_on(folder.path)
        assert (again.summary.n_units, server.n_requests) == (8, n_asked)


@pytest.mark.parametrize(
    ("way", "judge", "line"),
    [
        ("zero", "rules (no answer)", "counted as the lowest score (on_no_answer: zero)"),
        ("score", "fake", "scored as empty texts"),
    ],
)
def test_the_other_readings(job: Job, way: str, judge: str, line: str) -> None:
    metrics = ["memory_utilization", "relevance", "lexical_diversity"]
    with serving(in_turn(streams=True)) as server:
        summary, folder = finished(job(server, limit=8, metrics=metrics, on_no_answer=way))
    assert [metric.n_scored for metric in summary.metrics] == [8, 8, 8]
    assert [metric.n_no_answer for metric in summary.metrics] == [0, 0, 0]
    if way == "zero":
        assert all(row.judges[judge] == 6 and row.min == row.scale[0] for row in summary.metrics)
        assert "no answer: zero" in folder.read_manifest()["rubrics"]["relevance"]
    assert line in " ".join(render_brief(summary, folder.path).split())


def test_how_many_were_asked_again_and_answered_then(job: Job) -> None:
    def reply(body: dict[str, Any]) -> Outcome:
        has_room = body["max_tokens"] == 4096
        return reply_with(*((SAID, "stop", {}) if has_room else SERVERS["limit"]), streams=True)

    with serving(reply) as server:
        candidate = served(server, retry_max_tokens=4096)
        summary, folder = finished(job(server, limit=3, metrics=[], candidates=[candidate]))
    (row,) = summary.candidates
    assert (row.asked_again, row.answered_then, row.answered, row.no_answer) == (3, 3, 3, {})
    screen = " ".join(render_brief(summary, folder.path).split())
    assert "Asked again with a larger limit: 3, of which 3 answered then." in screen


@pytest.mark.parametrize(("suite", "n_by_rule"), [("infinitebench", 3), ("qa", 1)])
def test_a_published_suite_scores_an_empty_prediction_by_its_rule(
    tmp_path: Path, suite: str, n_by_rule: int
) -> None:
    own = {"query": "What is the pass key?", "task": "passkey", "answers": ["71"]}
    texts = ("71", "", None, "<think>71", "")
    rows: list[dict[str, Any]] = [
        {"id": f"{n}", **own, "response": text} for n, text in enumerate(texts)
    ]
    rows[-1]["finish_reason"] = "length"
    config = build_config(
        suite=suite,
        dataset=str(write_lines(tmp_path / "rows.jsonl", rows)),
        candidates=[GIVEN],
        metrics=["rule_score" if suite == "infinitebench" else "exact_match"],
        out=str(tmp_path / "results"),
        executor="local",
    )
    summary, folder = finished(config)
    (metric,) = summary.metrics
    assert (metric.n, metric.n_scored, metric.n_no_answer) == (5, 5, 0)
    assert metric.judges[RULES_ON_NO_ANSWER] == 5 - n_by_rule
    assert metric.mean == pytest.approx(1 / 5)
    assert summary.candidates[0].answered == 1
    screen = " ".join(render_brief(summary, folder.path).split())
    assert "counted as the lowest score" in screen


def judge_politeness(job: Job, juror: Reply, limit: int, **keys: Any) -> RunResult:
    spoken = reply_with(SAID, "stop", {}, streams=True)
    with serving(lambda body: spoken) as server, serving(juror) as judge:
        keys |= {"metrics": ["politeness"], "judge": "openai/juror", "limit": limit}
        return finish(job(server, judging={"base_urls": {"openai": judge.base_url}}, **keys))


@pytest.mark.parametrize(
    ("n", "n_unread", "tolerance", "exit_code"), [(4, 4, 0.05, 1), (4, 4, 1.0, 0), (13, 1, 0.05, 1)]
)
def test_verdicts_that_cannot_be_used_are_told_and_fail_the_run(
    job: Job, n: int, n_unread: int, tolerance: float, exit_code: int
) -> None:
    left = [["written nowhere"]] * n_unread

    def invents(body: dict[str, Any]) -> str:
        judgment = json.loads(judgment_reply(body))
        return json.dumps(judgment | {"impolite_phrases": left.pop() if left else []})

    done = judge_politeness(job, invents, n, tolerance=tolerance)
    (metric,) = done.summary.metrics
    assert (metric.n_scored, metric.n_abstained) == (n - n_unread, n_unread)
    start = f"politeness: {n_unread} of {n} verdicts ({n_unread / n:.0%}) could not be used"
    assert any(note.startswith(start) and "the first: " in note for note in done.summary.notes)
    assert (done.exit_code, len(done.warnings)) == (exit_code, exit_code)
    screen = render_brief(done.summary, done.folder.path)
    assert ("no usable verdict" in screen) is (n == n_unread)


@pytest.mark.parametrize(("n_declined", "exit_code"), [(1, 0), (5, 0), (6, 1)])
def test_what_a_judge_s_filter_declines_is_told_and_fails_the_run_only_if_nothing_is_left(
    job: Job, n_declined: int, exit_code: int
) -> None:
    left = [Answer("", "filtered")] * n_declined
    done = judge_politeness(job, lambda body: left.pop() if left else judgment_reply(body), 6)
    assert (done.summary.metrics[0].n_abstained, done.exit_code) == (n_declined, exit_code)
    start = f"politeness: {n_declined} of 6 verdicts"
    assert any(note.startswith(start) and "filter declined" in note for note in done.summary.notes)
    if n_declined == 5:
        screen = " ".join(render_brief(done.summary, done.folder.path).split())
        assert "not decided: 5 of 6 verdicts could not be read" in screen
