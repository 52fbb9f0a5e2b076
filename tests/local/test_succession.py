"""Whole runs whose judges' models are off, or whose prices nobody knows."""

import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from memray_eval.execution.doctor import examine
from memray_eval.execution.estimate import estimate_lines
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.runs import estimate_of
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.report.console import render_brief
from memray_eval.report.exports import write_csv
from memray_eval.report.html.page import render_html
from tests.build import Job, finish, go_on
from tests.servers.judgments import reply_to, schema_of
from tests.servers.provider import Provider, serving
from tests.wire.test_environment import _no_keys, url_of  # noqa: F401 (a fixture of all tests here)

RETIRED = frozenset({"gpt-4o", "gpt-4o-mini", "claude-opus-4-5", "gemini-2.0-flash"})
HEIRS = {
    "openai": {"openai/gpt-6-luna", "openai/gpt-5.2"},
    "anthropic": {"anthropic/claude-opus-5-5"},
    "google": {"google/gemini-3.5-flash-lite"},
}


@pytest.mark.parametrize("provider", HEIRS)
def test_auto_with_one_key_finds_every_metric_a_judge_though_the_roles_are_off(
    job: Job, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-test")
    names = [
        name
        for name, metric in all_metrics().items()
        if isinstance(metric, JudgedMetric) and metric.family == "assistant"
    ]
    with serving(reply_to, retired=RETIRED) as server:
        judging = {"base_urls": {provider: url_of(provider, server)}}
        done = finish(job(server, limit=2, metrics=names, judge="auto", judging=judging))
    assert names
    assert {metric.metric for metric in done.summary.metrics} == set(names)
    for metric in done.summary.metrics:
        assert metric.judges or metric.n_not_applicable == metric.n, metric.metric
        assert set(metric.judges) <= HEIRS[provider], metric.metric
    log = (Path(done.folder.path) / "log.jsonl").read_text().splitlines()
    messages = [json.loads(line)["message"] for line in log]
    off = [line for line in messages if "judges in its place" in line]
    assert len(off) == len(set(off)), "each is said once"
    assert len(off) == len({line.partition(" is off")[0] for line in off}) > 0
    assert all(metric.n_failed == 0 for metric in done.summary.metrics)


def test_a_model_that_vanishes_in_the_middle_keeps_what_it_gave(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    server: Provider

    def until_gone(body: dict[str, Any]) -> str:
        if schema_of(body) is not None and server.n_requests > 10:
            server.retired = frozenset({"gpt-4o"})
        return reply_to(body)

    with serving(until_gone) as server:
        one_at_a_time = {"max_in_flight": 1}
        done = finish(
            job(server, limit=12, metrics=["empathy"], judge="auto", judging=one_at_a_time)
        )
        (empathy,) = done.summary.metrics
        assert set(empathy.judges) == {"openai/gpt-4o", "openai/gpt-6-luna"}
        assert (sum(empathy.judges.values()), empathy.n_failed) == (12, 0)
        assert sum(body["model"] == "gpt-4o" for body in server.requests) <= (
            empathy.judges["openai/gpt-4o"] + 3
        )
        again = go_on(done.folder.path)
    assert again.summary.metrics[0].judges == empathy.judges
    manifest = done.folder.read_manifest()
    assert manifest["judges"]["empathy"] == "openai/gpt-4o (preferred)"
    assert set(manifest["judged_by"]["empathy/served"]) == set(empathy.judges)


def test_a_cost_that_nobody_knows_is_nowhere_zero(job: Job, tmp_path: Path) -> None:
    with serving(reply_to) as server:
        servers = {"lab": {"url": server.base_url}}
        config = job(server, limit=3, metrics=["empathy"], judge="lab/m", servers=servers)
        done, estimate = finish(config), estimate_of(config)
    assert (done.summary.cost_usd, done.summary.unpriced_calls) == (None, 3)
    stored = json.loads((Path(done.folder.path) / "summary.json").read_text())
    assert (stored["cost_usd"], stored["unpriced_calls"]) == (None, 3)
    output = " ".join(render_brief(done.summary, done.folder.path).split())
    assert "cost unknown: no price for 3 judge calls" in output
    assert (estimate.usd, estimate.unpriced_calls) == (None, 3)
    lines = list(estimate_lines(estimate))
    assert "3 judge calls, an unknown sum (3 calls of unknown price)" in lines[0]
    assert not any("$0" in line for line in lines)
    path = tmp_path / "run.csv"
    write_csv(str(path), done.folder.records())
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert {(row["judge_cost_usd"], row["judge_unpriced_calls"]) for row in rows} == {("", "1")}
    page = render_html(done.folder)
    assert "<td>unknown</td>" in page


def test_a_sum_of_known_and_unknown_says_how_far_it_goes(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(reply_to) as server:
        config = job(
            server,
            limit=3,
            metrics=["empathy"],
            judge=["lab/m", "paid/m"],
            servers={
                "lab": {"url": server.base_url},
                "paid": {"url": server.base_url, "price": {"input_usd": 1e5, "output_usd": 0}},
            },
        )
        done = finish(config)
    # Ten tokens a prompt
    assert (done.summary.cost_usd, done.summary.unpriced_calls) == (pytest.approx(3.0), 3)
    output = " ".join(render_brief(done.summary, done.folder.path).split())
    assert "judge calls for at least $3 (3 calls of unknown price)" in output


@pytest.mark.parametrize(("day", "is_told"), [("2026-11-14", False), ("2026-11-15", True)])
def test_doctor_and_estimate_warn_60_days_before(
    job: Job, monkeypatch: pytest.MonkeyPatch, day: str, is_told: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with serving(reply_to) as server:
        names = {"judge": "openai/gpt-4o", "judging": {"base_urls": {}}}
        config = job(server, limit=3, metrics=["empathy"], **names)
        today = date.fromisoformat(day)
        estimate = estimate_of(config, today=today)
        checks = list(examine(config, today))
    warned = [check.what for check in checks if check.state == "warn" and "gpt-4o" in check.what]
    line = "openai/gpt-4o retires on 2027-01-14, in 60 days; its successor: openai/gpt-6-luna"
    assert list(estimate.warnings) == warned == ([line] if is_told else [])
    assert (f"  WARNING: {line}" in estimate_lines(estimate)) == is_told


def test_a_run_names_the_judge_that_is_asked_for_a_role(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with serving(reply_to) as server:
        judging = {"fallbacks": ["openai/gpt-4o-mini"], "base_urls": {}}
        config = job(server, metrics=["empathy"], judge="openai/gpt-4o", judging=judging)
        spec = resolve(config, today=date(2027, 1, 14))
    assert spec.judges["empathy"].judge == "openai/gpt-6-luna"
    assert spec.config.judging.fallbacks == ("openai/gpt-6-luna",)
    assert [item.role for item in spec.successions] == ["openai/gpt-4o", "openai/gpt-4o-mini"]


def test_speech_that_soon_falls_silent_is_told(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with serving(reply_to) as server:
        config = job(server, affect={"enabled": True, "speech": "transformers:m", "tts": "openai"})
        warnings = resolve(config).retiring(date(2026, 12, 1))
    assert warnings == [
        "openai/gpt-4o-mini-tts retires on 2027-01-06, in 36 days; its successor: unknown"
    ]
