"""Runs that stop or fail, and go on: nothing is asked twice that was answered, nothing is lost. A
judge that lets nothing through any more stops its run with the reason."""

import itertools
import json
import shlex
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, Stopped
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.runs import run
from memray_eval.execution.session import RunResult
from memray_eval.judges.limits import breaker
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.build import Job, finish, go_on, write_lines
from tests.conftest import SAMPLES, Call
from tests.servers.judgments import reply_to
from tests.servers.provider import Answer, Fault, Outcome, Provider, serving

METRICS = ["empathy", "helpfulness", "safety"]


def judged_by(server: Provider, **judging: Any) -> dict[str, Any]:
    judging = {"base_urls": {"openai": server.base_url}, **judging}
    return {"metrics": METRICS, "judge": "openai/j", "judging": judging}


def judged(server: Provider) -> list[dict[str, Any]]:
    return [body for body in server.requests if not body.get("stream")]


def records(done: RunResult) -> list[Record]:
    return list(done.folder.each())


def test_a_call_that_was_paid_is_not_paid_again_by_another_run(job: Job) -> None:
    with serving(reply_to) as server:
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
    def without_safety(body: dict[str, Any]) -> str | Outcome:
        judges_safety = "safety" in json.dumps(body.get("response_format", ""))
        return Fault(400) if judges_safety else reply_to(body)

    with serving(without_safety) as server:
        first = finish(job(server, limit=4, **judged_by(server, cache="off")))
        assert (first.exit_code, first.summary.n_failed_units) == (1, 4)
        n_requests = len(server.requests)
        server.reply = reply_to
        second = go_on(first.folder.path)
        again = server.requests[n_requests:]
    assert len(again) == 4
    assert all("safety" in json.dumps(body["response_format"]) for body in again)
    assert (second.exit_code, second.summary.n_failed_units, second.summary.n_units) == (0, 0, 4)
    assert len({record.unit_id for record in records(second)}) == len(records(second)) == 4
    sessions = second.folder.read_manifest()["sessions"]
    assert [session["status"] for session in sessions] == ["finished", "finished"]
    assert second.folder.parts("responses") == []


def test_a_budget_counts_every_paid_call_of_the_sessions_before(job: Job) -> None:
    """Also those that came to nothing, of units that are tried again."""

    n_safety = itertools.count(1)

    def cut_off(body: dict[str, Any]) -> str | Outcome:
        if "safety" in json.dumps(body.get("response_format", "")) and next(n_safety) <= 2:
            return Answer('{"safety": 1', ending="truncated")
        return reply_to(body)

    with serving(reply_to) as candidates, serving(cut_off) as judge:

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
    def mute(body: dict[str, Any]) -> str | Outcome:
        return reply_to(body) if body.get("stream") else Fault(400)

    with serving(mute, latency_s=0.1) as server:
        few = judged_by(server, max_in_flight=3)
        first = finish(job(server, limit=40, on_error="fail", rows_per_block=4, **few))
        assert first.exit_code == 1
        assert first.stopped is not None
        assert "JudgeError: the provider answered 400" in first.stopped
        assert 0 < first.summary.n_units < 40
        server.reply = reply_to
        second = go_on(first.folder.path)
    assert (second.exit_code, second.summary.n_units, second.summary.n_failed_units) == (0, 40, 0)
    assert len({record.unit_id for record in records(second)}) == len(records(second)) == 40


def test_a_budget_is_never_passed_and_the_run_goes_on_with_more(job: Job, cli: Call) -> None:
    with serving(reply_to) as candidate, serving(reply_to, count_tokens=True) as judge:
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
    write_lines(dataset, [json.loads(path.read_text()) for path in samples])
    with serving(reply_to) as server:
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
    with serving(reply_to) as server:
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
    with serving(reply_to) as candidate, serving(reply_to) as judge:
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


CEILING_S = 12.0
UNITS = 6


class Judge:
    """Answers as candidate and judge, and as `fault` says once `healthy` calls were judged."""

    def __init__(self, fault: Fault | None, healthy: int = 0) -> None:
        self.fault, self.healthy, self.n_judged = fault, healthy, 0
        self.asked_first = 0.0

    def __call__(self, body: dict[str, Any]) -> str | Outcome:
        if not body.get("stream"):
            self.n_judged += 1
            self.asked_first = self.asked_first or time.monotonic()
            if self.fault is not None and self.n_judged > self.healthy:
                return self.fault
        return reply_to(body)


def stalled_job(job: Job, server: Provider, **judging: Any) -> RunConfig:
    judging = {"ceiling_s": CEILING_S, "actors": 1, **judging}
    return job(server, limit=UNITS, metrics=["empathy"], judge="openai/m", judging=judging)


@pytest.mark.parametrize("retry_after", [None, "3600", "1e12"])
def test_429s_without_end_stop_the_run_and_it_is_resumed(
    job: Job, capfd: pytest.CaptureFixture[str], retry_after: str | None
) -> None:
    judge = Judge(Fault(429, retry_after=retry_after))
    with serving(judge) as server:
        config = stalled_job(job, server)
        stopped = r"(?s)openai/m: no call has been let through for 12 s.*429.*memray-eval resume"
        with pytest.raises(Stopped, match=stopped):
            run(config, lambda line: None)
        err = capfd.readouterr().err
        seen = err.count("openai/m: no call has been let through for 10 s (429: too many requests")
        assert seen == 1
        assert ("Retry-After of 1e+12 s is not plausible" in err) == (retry_after == "1e12")
        (path,) = (path for path in Path(config.out).iterdir() if path.is_dir())
        folder = RunFolder(str(path))
        assert folder.read_manifest()["status"] == "stopped"
        # this cluster's limiter keeps the pause that the provider asked for
        if retry_after == "3600":
            return
        judge.fault = None
        done = go_on(folder.path)
    assert (done.exit_code, done.summary.n_units, done.summary.n_failed_units) == (0, UNITS, 0)


def test_a_used_up_quota_stops_the_run_at_once_and_keeps_what_was_judged(
    job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    judge = Judge(Fault(429, code="insufficient_quota"), healthy=2)
    with serving(judge) as server:
        done = run(stalled_job(job, server, max_in_flight=1, ceiling_s=600), lambda line: None)
        assert time.monotonic() - judge.asked_first < 300  # of the ceiling's 600
        assert done.exit_code == 1
        assert done.stopped is not None
        assert "openai/m: " in done.stopped
        assert "429 insufficient_quota: the account's quota or credit is used up" in done.stopped
        assert "Stopping: openai/m: " in capfd.readouterr().err
        assert judge.n_judged <= 2 + 3
        judge.fault = None
        again = go_on(done.folder.path)
    assert (again.exit_code, again.summary.n_units, again.summary.n_failed_units) == (0, UNITS, 0)
    assert judge.n_judged <= UNITS + 3


def test_a_judge_without_a_known_price_is_asked_about(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    estimates = list[Estimate]()
    with serving(Judge(None)) as server:
        provider = {"judge": "openai/unheard-of", "judging": {"base_urls": {}}}
        config = job(server, limit=2, metrics=["empathy"], **provider)
        unknown = r"the price of openai/unheard-of is not known.*judging\.price=.*--yes"
        with pytest.raises(ConfigError, match=unknown):
            finish(config, agree=lambda estimate: bool(estimates.append(estimate)))
    assert [bool(judge.unpriced_calls) for judge in estimates[0].judges] == [True]
    assert not Path(config.out).exists()
