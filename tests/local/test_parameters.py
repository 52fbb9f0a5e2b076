"""A whole run whose candidate and judge refuse parameters: it is done, and says what was sent."""

from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render_brief
from tests.build import Job, finish, go_on
from tests.servers.judgments import judgment_reply
from tests.servers.provider import serving
from tests.servers.refusals import RefusingServer

REFUSED = ("max_tokens", "temperature", "top_p", "seed", "reasoning_effort")


def reply(body: dict[str, Any]) -> str:
    return "Rest more, and ask your doctor." if body.get("stream") else str(judgment_reply(body))


def refusing_job(job: Job, server: Any, **overrides: Any) -> RunConfig:
    """One model answers and judges, so what one stage learns the other knows."""
    return job(
        server,
        servers={"lab": {"url": server.base_url}},
        candidates=[{"name": "c", "model": "lab/o9", "extra": {"reasoning_effort": "low"}}],
        metrics=["empathy", "politeness"],
        judge="lab/o9",
        limit=6,
        **overrides,
    )


def test_a_run_leaves_out_what_is_refused_and_says_so_once(job: Job, tmp_path: Path) -> None:
    script = RefusingServer("openai", REFUSED, reply)
    with serving(script) as server:
        done = finish(refusing_job(job, server))
        assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
        assert script.refusals == dict.fromkeys(REFUSED, 1)
        manifest = done.folder.read_manifest()
        target = f"o9 at {server.base_url.removeprefix('http://')}"
        left_out = dict.fromkeys(REFUSED, "") | {"max_tokens": "max_completion_tokens"}
        assert manifest["parameters_left_out"] == {target: left_out}
        assert manifest["judge_parameters"] == {"lab/o9": {"temperature": 0, "seed": 0}}
        events = [line for line in manifest["events"] if target in line]
        assert len(events) == len(REFUSED)
        assert done.summary.temperatures == {"lab/o9": "the server's default temperature"}
        assert "the server's default temperature" in " ".join(
            render_brief(done.summary, "").split()
        )


def test_a_resumed_run_knows_what_was_refused(job: Job) -> None:
    script = RefusingServer("openai", REFUSED, lambda body: "no verdict")
    with serving(script) as server:
        config = refusing_job(job, server, tolerance=1.0)
        first = finish(config)
        assert first.summary.n_failed_units == 6
        left_out = first.folder.read_manifest()["parameters_left_out"]
        script.reply = reply
        again = go_on(first.folder.path)
    assert again.summary.n_failed_units == 0
    assert script.refusals == dict.fromkeys(REFUSED, 1)
    assert again.folder.read_manifest()["parameters_left_out"] == left_out


def test_a_call_is_remembered_by_what_was_asked_for(job: Job, tmp_path: Path) -> None:
    """A second run, whose server takes all parameters, finds the verdicts of the first."""
    with serving(RefusingServer("vllm", ("temperature", "seed"), reply)) as server:
        finish(refusing_job(job, server))
        n_judged = sum("stream" not in body for body in server.requests)
        assert n_judged >= 12
        server.reset()
        server.reply = reply
        second = finish(refusing_job(job, server))
        assert all(body.get("stream") for body in server.requests)
        assert second.summary.temperatures == {"lab/o9": "temperature 0"}


def test_a_judge_at_temperature_0_is_said_to_be(job: Job, tmp_path: Path) -> None:
    with serving(reply) as server:
        done = finish(refusing_job(job, server))
    assert done.folder.read_manifest()["parameters_left_out"] == {}
    assert "judged at temperature 0" in " ".join(render_brief(done.summary, "").split()).lower()
