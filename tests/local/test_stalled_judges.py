"""Whole runs whose judge lets nothing through any more: they say so, stop with the reason, and are
resumed."""

import time
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, Stopped
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.runs import run
from memray_eval.results.run_folder import RunFolder
from tests.build import Job, finish, go_on
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Fault, Provider, serving

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."
CEILING_S = 12.0
UNITS = 6


class Judge:
    """Answers as candidate and judge, and as `fault` says once `healthy` calls were judged."""

    def __init__(self, fault: Fault | None, healthy: int = 0) -> None:
        self.fault, self.healthy, self.n_judged = fault, healthy, 0
        self.asked_first = 0.0

    def __call__(self, body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            return ANSWER
        self.n_judged += 1
        self.asked_first = self.asked_first or time.monotonic()
        return (
            self.fault
            if self.fault is not None and self.n_judged > self.healthy
            else judgment_reply(body)
        )


def judged(job: Job, server: Provider, **judging: Any) -> RunConfig:
    urls = {"openai": server.base_url}
    judging = {"base_urls": urls, "ceiling_s": CEILING_S, "actors": 1, **judging}
    return job(server, limit=UNITS, metrics=["empathy"], judge="openai/m", judging=judging)


def only_run(config: RunConfig) -> RunFolder:
    (path,) = (path for path in Path(config.out).iterdir() if path.is_dir())
    return RunFolder(str(path))


@pytest.mark.parametrize("retry_after", [None, "3600", "1e12"])
def test_429s_without_end_stop_the_run_and_it_is_resumed(
    job: Job, capfd: pytest.CaptureFixture[str], retry_after: str | None
) -> None:
    judge = Judge(Fault(429, retry_after=retry_after))
    with serving(judge) as server:
        config = judged(job, server)
        with pytest.raises(
            Stopped,
            match=r"(?s)openai/m: no call has been let through for 12 s.*429.*memray-eval resume",
        ):
            run(config, lambda line: None)
        err = capfd.readouterr().err
        seen = err.count("openai/m: no call has been let through for 10 s (429: too many requests")
        assert seen == 1
        assert ("Retry-After of 1e+12 s is not plausible" in err) == (retry_after == "1e12")
        folder = only_run(config)
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
        done = run(judged(job, server, max_in_flight=1, ceiling_s=600), lambda line: None)
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
        config = job(server, limit=2, metrics=["empathy"], judge="openai/unheard-of")
        with pytest.raises(
            ConfigError,
            match=r"the price of openai/unheard-of is not known.*judging\.price=.*--yes",
        ):
            finish(config, agree=lambda estimate: bool(estimates.append(estimate)))
    assert [bool(judge.unpriced_calls) for judge in estimates[0].judges] == [True]
    assert not Path(config.out).exists()
