"""Runs that stop or fail, and go on: nothing is asked twice that was answered, nothing is lost."""

import itertools
import json
import shlex
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from memray_eval.errors import ConfigError
from memray_eval.execution.session import RunResult
from memray_eval.judges.limits import breaker
from memray_eval.types import Record
from tests.build import Job, finish, go_on
from tests.conftest import SAMPLES, Call
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Fault, Provider, serving

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."
METRICS = ["empathy", "helpfulness", "safety"]


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    return ANSWER if body.get("stream") else judgment_reply(body)


def judged_by(server: Provider, **judging: Any) -> dict[str, Any]:
    return {
        "metrics": METRICS,
        "judge": "openai/j",
        "judging": {"base_urls": {"openai": server.base_url}, **judging},
    }


def judged(server: Provider) -> list[dict[str, Any]]:
    return [body for body in server.requests if not body.get("stream")]


def records(done: RunResult) -> list[Record]:
    return list(done.folder.each())


def test_a_call_that_was_paid_is_not_paid_again_by_another_run(job: Job) -> None:
    with serving(reply) as server:
        config = job(server, limit=4, **judged_by(server))
        first, second = finish(config), finish(config)
        assert len(judged(server)) == 12
        third = finish(job(server, limit=4, **judged_by(server, cache="off")))
        assert len(judged(server)) == 24
    assert not any(
        score.cached for record in (*records(first), *records(third)) for score in record.scores
    )
    for record in records(second):
        assert all(
            score.cached and score.cost_usd == 0.0 and score.usage.input_tokens == 0
            for score in record.scores
        )
    values = [
        {(r.sample.id, s.metric): s.value for r in records(done) for s in r.scores}
        for done in (first, second)
    ]
    assert values[0] == values[1]


def test_failed_scores_are_tried_again_and_nothing_else(job: Job) -> None:
    def without_safety(body: dict[str, Any]) -> str | Answer | Fault:
        return (
            Fault(400) if "safety" in json.dumps(body.get("response_format", "")) else reply(body)
        )

    with serving(without_safety) as server:
        first = finish(job(server, limit=4, **judged_by(server, cache="off")))
        assert (first.exit_code, first.summary.n_failed_units) == (1, 4)
        n_requests = len(server.requests)
        server.reply = reply
        second = go_on(first.folder.path)
        again = server.requests[n_requests:]
    assert len(again) == 4
    assert all("safety" in json.dumps(body["response_format"]) for body in again)
    assert (second.exit_code, second.summary.n_failed_units, second.summary.n_units) == (0, 0, 4)
    assert len({record.unit_id for record in records(second)}) == len(records(second)) == 4
    expected = ["finished", "finished"]
    assert [session["status"] for session in second.folder.read_manifest()["sessions"]] == expected
    assert second.folder.parts("responses") == []


def test_a_budget_counts_every_paid_call_of_the_sessions_before(job: Job) -> None:
    """Also those that came to nothing, of units that are tried again."""

    n_safety = itertools.count(1)

    def cut_off(body: dict[str, Any]) -> str | Answer | Fault:
        if "safety" in json.dumps(body.get("response_format", "")) and next(n_safety) <= 2:
            return Answer('{"safety": 1', ending="truncated")
        return reply(body)

    with serving(reply) as candidates, serving(cut_off) as judge:

        def spent() -> int:
            return judge.input_tokens + judge.output_tokens

        config = job(candidates, limit=4, budget={"tokens": 10**6}, **judged_by(judge))
        first = finish(config)
        assert first.summary.n_failed_units == 2
        assert first.folder.read_spending()["tokens"] == spent()
        paid = spent()
        enough_for_none = [f"budget.tokens={paid + 500}"]
        second = go_on(first.folder.path, settings=enough_for_none)
        assert "the next judge call does not fit the budget" in (second.stopped or "")
        assert spent() == paid
        third = go_on(first.folder.path, settings=["budget.tokens=null"])
        assert (third.exit_code, third.summary.n_failed_units) == (0, 0)
        assert spent() > paid
        assert third.folder.read_spending()["tokens"] == spent()


def test_the_first_failure_ends_a_run_that_says_so(job: Job) -> None:
    with serving(
        lambda body: Fault(400) if not body.get("stream") else ANSWER, latency_s=0.1
    ) as server:
        few = judged_by(server, max_in_flight=3)
        first = finish(job(server, limit=40, on_error="fail", rows_per_block=4, **few))
        assert first.exit_code == 1
        assert first.stopped is not None
        assert "JudgeError: the provider answered 400" in first.stopped
        assert 0 < first.summary.n_units < 40
        server.reply = reply
        second = go_on(first.folder.path)
    assert (second.exit_code, second.summary.n_units, second.summary.n_failed_units) == (0, 40, 0)
    assert len({record.unit_id for record in records(second)}) == len(records(second)) == 40


def test_a_budget_is_never_passed_and_the_run_goes_on_with_more(job: Job, cli: Call) -> None:
    with serving(reply) as candidate, serving(reply, count_tokens=True) as judge:
        options = judged_by(judge, max_output_tokens=200)
        first = finish(
            job(candidate, limit=30, rows_per_block=4, budget={"tokens": 30_000}, **options)
        )
        assert first.stopped == "the next judge call does not fit the budget"
        assert 15_000 < judge.input_tokens + judge.output_tokens <= 30_000
        assert first.summary.n_units < 30
        command = f"memray-eval resume {first.folder.path} --set budget.tokens=60000"
        assert command == first.resume_command
        assert any(f"`{command}`" in note for note in first.summary.notes)
        code, _, errors = cli(*shlex.split(command)[1:], "--json")
        if code:  # 60,000 were not enough either
            command = command.replace("60000", "120000")
            assert command in errors
            code, _, errors = cli(*shlex.split(command)[1:], "--json")
        assert code == 0, errors
        assert (len(candidate.requests), len(judge.requests)) == (30, 90)  # none was made twice
    second = first.folder.read_summary()
    assert (second.n_units, second.n_failed_units) == (30, 0)


def test_what_would_be_another_run_is_refused(job: Job, tmp_path: Path) -> None:
    dataset = tmp_path / "d.jsonl"
    samples = sorted(SAMPLES.glob("*/sample.json"))[:3]
    dataset.write_text("".join(json.dumps(json.loads(path.read_text())) + "\n" for path in samples))
    with serving(reply) as server:
        done = finish(job(server, dataset=str(dataset), **judged_by(server)))
        for setting in ("judge=rules", "rubrics.safety=kind.txt"):
            with pytest.raises(ConfigError, match="a resumed run keeps its"):
                go_on(done.folder.path, settings=[setting])
        with pytest.raises(ConfigError, match="no such key"):
            go_on(done.folder.path, settings=["judging.actor=2"])
        with done.folder.held(), pytest.raises(ConfigError, match="another process is at work"):
            go_on(done.folder.path)
        manifest = done.folder.read_manifest()
        done.folder.write_manifest(
            manifest | {"rubrics": manifest["rubrics"] | {"safety": "other"}}
        )
        with pytest.raises(ConfigError, match="the rubric of safety was other when the run began"):
            go_on(done.folder.path)
        done.folder.write_manifest(manifest)
        dataset.write_text(dataset.read_text().replace("I ", "You ", 1))
        with pytest.raises(ConfigError, match="has changed since the run began"):
            go_on(done.folder.path)


def test_paid_calls_are_found_in_a_folder_of_segments_too(job: Job, tmp_path: Path) -> None:
    """As where the run's folder is in the cloud: no file there can be appended to."""
    folder = tmp_path / "calls"
    with serving(reply) as server:
        config = job(server, limit=3, **judged_by(server, cache=f"file://{folder}"))
        finish(config)
        assert list(folder.glob("*.jsonl.zst"))
        second = finish(config)
        assert len(judged(server)) == 9
    assert all(score.cached for record in records(second) for score in record.scores)


def mend_later(judge: Provider) -> None:
    """Has a judge answer again, some seconds after a probe: at most three calls were in flight
    beside the three that failed."""
    deadline = time.monotonic() + 120
    while judge.n_requests < 8 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(5.0)
    judge.down = False


def test_a_judge_that_is_down_is_left_alone_and_the_run_says_so(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FAILURES", 3)
    monkeypatch.setattr(breaker, "LONGEST_PROBE_S", 0.5)
    with serving(reply) as candidate, serving(reply) as judge:
        judge.down = True
        few = judged_by(judge, breaker={"probe_s": 0.5}, actors=1, max_in_flight=4)
        config = job(candidate, limit=20, **few)
        mended = threading.Thread(target=mend_later, args=(judge,))
        mended.start()
        done = finish(config)
        mended.join()
        asked_while_down = judge.n_requests - 60
    assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
    assert 3 <= asked_while_down < 60  # a few in a row, then a probe now and then
    events = done.folder.read_manifest()["events"]
    assert any("openai/j: " in line and "calls in a row failed" in line for line in events)
    assert any("answers again" in line for line in events)
