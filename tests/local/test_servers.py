"""Several servers in one run, by their names: a candidate, a jury, and embeddings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import resume, run
from tests.build import finish, go_on
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Fault, serving


def test_each_is_asked_what_its_name_says(
    job: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "lab-key")
    with (
        serving(lambda body: "Rest more. You sleep 4.5 hours.") as candidate,
        serving(judgment_reply) as juror,
        serving(lambda body: Fault(500)) as lab,
    ):
        urls = {"mine": candidate.base_url, "one": juror.base_url}
        config = job(
            candidate,
            servers={
                **{name: {"url": url} for name, url in urls.items()},
                "lab": {"url": lab.base_url, "api_key_env": "LAB_KEY"},
            },
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
        assert {metric.metric: metric.n_scored for metric in again.summary.metrics} == {
            "empathy": 3,
            "relevance": 3,
        }
        assert juror.n_requests == 3  # its verdicts were paid
    stored = (Path(done.folder.path) / "run.yaml").read_text()
    assert "lab-key" not in stored


def test_a_pool_judges_a_run_and_one_of_its_servers_is_gone(
    job: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members are told at the start, its calls are booked by member, scores name the pool, and
    a resumed run may have another member."""
    messages = list[str]()
    with (
        serving(lambda body: "Rest more. You sleep 4.5 hours.") as candidate,
        serving(judgment_reply) as east,
        serving(judgment_reply) as west,
    ):
        servers = {
            "east": {"url": east.base_url},
            "west": {"url": west.base_url, "limits": {"requests_per_min": 6000}},
            "gone": {"url": "http://127.0.0.1:9/v1"},
            "both": {"pool": ["east", "west", "gone"]},
        }
        config = job(
            candidate,
            servers=servers,
            metrics=["empathy", "politeness"],
            judge="both/m",
            judging={"tries": 1},
            limit=6,
        )
        done = run(config, messages.append, quiet=True)
        assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
        n_asked = east.n_requests + west.n_requests
        assert n_asked == 12
        manifest = done.folder.read_manifest()
        by_judge = manifest["calls"]["judges"]
        assert by_judge["east/m"]["ok"] + by_judge["west/m"]["ok"] == 12
        assert by_judge["gone/m"]["ok"] == 0
        assert by_judge["gone/m"]["unavailable"] == by_judge["gone/m"]["sent"] <= 12
        assert manifest["judges"]["empathy"] == "both/m (as configured)"
        assert {metric.metric: list(metric.judges) for metric in done.summary.metrics} == {
            "empathy": ["both/m"],
            "politeness": ["both/m"],
        }
        shown = (
            f"The judge both/m is a pool of 3: east (127.0.0.1:{east.port}/v1), "
            f"west (127.0.0.1:{west.port}/v1, 6,000 requests/min), gone (127.0.0.1:9/v1)."
        )
        assert shown in messages
        again = resume(
            done.folder.path, messages.append, quiet=True, settings=["servers.both.pool=[west]"]
        )
        assert again.exit_code == 0
        assert east.n_requests + west.n_requests == 12
