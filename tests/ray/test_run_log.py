"""The log of a whole run: what its workers log is in the run folder, and shown where asked."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.run_log import show_log
from tests.build import finish, go_on
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Fault, serving

pytestmark = pytest.mark.night

Job = Callable[..., RunConfig]
ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."


def entries(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "log.jsonl").read_text("utf-8").splitlines()]


def test_what_workers_log_is_in_the_run_folder(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            return ANSWER
        asks_safety = "safety" in json.dumps(body.get("response_format", ""))
        return Fault(400, code="bad_schema") if asks_safety else judgment_reply(body)

    level = logging.getLogger("memray_eval").level
    show_log(1)
    try:
        with serving(reply) as server:
            judging = {"base_urls": {"openai": server.base_url}, "actors": 2}
            settings = {"metrics": ["empathy", "safety"], "judge": "openai/j", "judging": judging}
            done = finish(job(server, limit=6, **settings))
            first = entries(done.folder.path)
            go_on(done.folder.path)
    finally:
        show_log(0)
        logging.getLogger("memray_eval").setLevel(level)
    failed = [entry for entry in first if "gave no verdict" in entry["message"]]
    assert len(failed) == 1  # of six calls in two actors
    assert failed[0]["level"] == "WARNING"
    assert failed[0]["actor"]
    assert failed[0]["logger"] == "memray_eval.judges.structured_judge"
    assert "JudgeError, status 400, code bad_schema" in failed[0]["message"]
    assert first[0]["message"].startswith("session 1 of run ")
    assert first[-1]["message"].endswith("has ended")
    assert any(entry["message"] == "a pipeline begins: served" for entry in first)
    assert not any(ANSWER in json.dumps(entry) for entry in first)
    after = entries(done.folder.path)
    assert after[: len(first)] == first
    assert after[len(first)]["message"].startswith("session 2 of run ")
    assert "gave no verdict" in capsys.readouterr().err
