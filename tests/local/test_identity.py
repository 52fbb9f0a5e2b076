"""For whom a candidate is asked: what a server and a function get of it, in whole runs."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.config.secrets import refuse_keys
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate
from tests.build import Job, finish, served, write_lines
from tests.servers.provider import serving

FUNCTION = """
def plain(messages):
    return messages[-1]["content"]

def whole(request):
    who = f"{request.user}/{request.session}/{request.epoch}/{request.sample.id}"
    return f"{who}/{len(request.messages)}/{request.sample.answers}"
"""


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Any]:
    row = {"query": "q?", "answers": ["a"]}
    fields = [{"id": "x", **row, "metadata": {"user": "ux"}}, {"id": "y", **row}]
    dataset = str(write_lines(tmp_path / "rows.jsonl", fields))
    return {"suite": "qa", "dataset": dataset, "metrics": ["exact_match"], "epochs": 2}


def test_a_server_is_told_for_whom_it_is_asked(
    job: Job, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_SECRET", "a-long-secret")
    with serving(lambda body: "a") as server:
        candidate = served(
            server, user="{sample.user}", session="{partition}",
            headers={"X-Run": "{run}", "X-Memory-Key": "{env.MEMORY_SECRET}"},
            extra={"metadata": {"who": ["{sample.id}-{epoch}"]}},
        )  # fmt: skip
        config = job(server, candidates=[candidate], **rows)
        refuse_keys(config, {"MEMORY_SECRET": "a-long-secret"})
        done = finish(config)
        run = done.folder.run_id
        seen = sorted((body["user"], body["session_id"]) for body in server.requests)
        assert seen == [("ux", f"{run}/x/1"), ("ux", f"{run}/x/2")]
        assert server.requests[0]["metadata"]["who"][0] in ("x-1", "x-2")
        sent = {name.lower(): value for name, value in server.headers[0].items()}
    assert (sent["x-run"], sent["x-memory-key"]) == (run, "a-long-secret")
    failed = [record for record in done.folder.each() if record.response and record.response.error]
    assert [record.sample.id for record in failed] == ["y", "y"]
    assert "the sample has no 'user'" in str(failed[0].response)
    for file in Path(done.folder.path).rglob("*.*"):
        assert b"a-long-secret" not in file.read_bytes()


def test_a_function_may_take_a_request(job: Job, rows: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "assistant.py"
    path.write_text(FUNCTION)
    candidates = [
        {"name": name, "model": f"{path}:{name}", "session": "s-{sample.id}"}
        for name in ("plain", "whole")
    ]
    with serving(lambda body: "a") as server:
        done = finish(job(server, candidates=candidates, **rows))
    answers = {
        (record.candidate.name, record.sample.id, record.epoch): record.response.text
        for record in done.folder.each()
        if record.response
    }
    assert answers["whole", "x", 2] == "/s-x/2/x/1/()"
    assert answers["plain", "x", 1].endswith("q?")


@pytest.mark.parametrize(
    "fields", [{"user": "{sample.a.b}"}, {"user": "{env.HOME}"}, {"headers": {"X": "{nobody}"}}]
)
def test_what_no_template_may_say(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="may name"):
        Candidate.model_validate({"name": "c", "model": "m", "backend": "openai"} | fields)


def test_a_variable_that_is_not_set_is_said_before_the_run(job: Job, rows: dict[str, Any]) -> None:
    with serving(lambda body: "a") as server:
        candidate = served(server, headers={"X": "{env.NOT_SET_AT_ALL}"})
        with pytest.raises(ConfigError, match="variable NOT_SET_AT_ALL, which is not set"):
            finish(job(server, candidates=[candidate], **rows))
