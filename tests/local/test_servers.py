"""Several servers in one run, by their names: a candidate, a jury, and embeddings."""

from pathlib import Path

import pytest

from tests.build import Job, finish, go_on
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Fault, serving


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
        expected = {"empathy": 3, "relevance": 3}
        assert {metric.metric: metric.n_scored for metric in again.summary.metrics} == expected
        assert juror.n_requests == 3  # its verdicts were paid
    stored = (Path(done.folder.path) / "run.yaml").read_text()
    assert "lab-key" not in stored
