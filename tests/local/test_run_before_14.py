"""A run folder that the version before issue 14 wrote is resumed by this one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from memray_eval.config.schema import RunConfig
from memray_eval.execution.prepare import run
from memray_eval.results.run_folder import RunFolder
from tests.conftest import REPOSITORY
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Fault, serving

DATA = REPOSITORY / "tests" / "data" / "run-before-14"


def test_what_had_failed_is_judged_and_nothing_else_is_asked(tmp_path: Path) -> None:
    """The same job with its files in other folders, as it is submitted again: the run of this id is
    gone on with."""
    shutil.copytree(DATA / "before-14", tmp_path / "before-14")
    folder = RunFolder(str(tmp_path / "before-14"))
    before = {record.unit_id: record for record in folder.each()}
    job: dict[str, Any] = yaml.safe_load((DATA / "before-14" / "run.yaml").read_text("utf-8"))
    for candidate in job["candidates"]:
        del candidate["sampling"]["max_tokens"]  # stored as null, which nobody had written

    def reply(body: dict[str, Any]) -> str | Answer | Fault:
        return Fault(500) if body.get("stream") else judgment_reply(body)

    said: list[str] = []
    with serving(reply) as server:
        job |= {"dataset": str(DATA / "samples.jsonl"), "out": str(tmp_path)}
        job["judging"] |= {"base_urls": {"openai": server.base_url}}
        done = run(RunConfig.model_validate(job), said.append, quiet=True, run_id="before-14")
        assert len(server.requests) == 1
    assert "11 of 12 units are finished, 1 more generated; 1 had failed" in "".join(said)
    assert (done.exit_code, done.summary.n_units, done.summary.n_failed_units) == (0, 12, 0)
    after = {record.unit_id: record for record in folder.each()}
    assert after.keys() == before.keys()
    for unit, record in before.items():
        assert after[unit].response == record.response
        then = {score.metric: score for score in record.scores if score.status != "error"}
        now = {score.metric: score for score in after[unit].scores}
        assert {name: now[name] for name in then} == then
        assert now["empathy"].value is not None
    manifest = folder.read_manifest()
    assert [session["status"] for session in manifest["sessions"]] == ["finished", "finished"]
    # Which code ran is known of the session that went on
    before_14, now = (session.get("package") for session in manifest["sessions"])
    assert (before_14, now) == (None, manifest["package"]["digest"])
