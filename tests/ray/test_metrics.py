"""What a run tells of itself, to Prometheus and in its manifest, against the books of the provider
that it asked."""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from memray_eval.execution.ray.reporting import SERIES
from memray_eval.execution.session import RunResult
from tests.build import Job, finish
from tests.conftest import HANG_S
from tests.servers.judgments import judgment_reply
from tests.servers.provider import INPUT_TOKENS, Answer, Fault, Storm, serving

pytestmark = pytest.mark.night

JUDGE, METRICS, SAMPLES = "openai/j", ["empathy", "helpfulness", "safety"], 10
VERDICTS, OUTCOMES = SAMPLES * len(METRICS), ("ok", "throttled", "malformed")
ANSWER = "I hear you, and that sounds hard. Rest more."
PRICE = {"input_usd": 1000.0, "output_usd": 2000.0}
# Ray reports every 10 s, and when the process that counts ends; the rest is for a busy machine
_LINE = re.compile(r"^(?P<name>ray_memray_\w+)\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Books:
    """A provider that answers the candidate at once, refuses or garbles some of the judge's calls,
    and counts both."""

    def __init__(self) -> None:
        self._storm = Storm(rate_429=0.2, rate_malformed=0.4, seed=9, retry_after="0.05")
        self.counted: Counter[str] = Counter()

    def reply(self, body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            return ANSWER
        answer = self._storm(body)
        if isinstance(answer, Fault):
            self.counted["throttled"] += 1
        else:
            self.counted["ok" if answer == judgment_reply(body) else "malformed"] += 1
        if isinstance(answer, str):
            self.counted.update(input_tokens=INPUT_TOKENS, output_tokens=len(answer.split()))
        return answer


def scraped(run_id: str) -> Found:
    """The figures of a run on its node's page for Prometheus: by name and by those tags that are
    the run's own."""
    address = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(address, timeout=HANG_S) as page:
        text = page.read().decode()
    tags = {tag for series in SERIES for tag in series.tags}
    values: Found = {}
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"]))
        if labels.get("run_id") == run_id and labels.get("le", "+Inf") == "+Inf":
            own = frozenset((tag, value) for tag, value in labels.items() if tag in tags)
            values[line["name"], own] = values.get((line["name"], own), 0.0) + float(line["value"])
    return values


def exported(run_id: str) -> Callable[..., float]:
    """What the page says now, by name and tags."""
    values = scraped(run_id)
    return lambda name, **tags: values[f"ray_memray_{name}", frozenset(tags.items())]


def wait_for_export(done: RunResult, check: Callable[[Callable[..., float]], None]) -> None:
    """Waits until a run's exported figures pass `check`; then raises what the last look failed of.
    The page of a busy node shows some series of one process before others."""
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            return check(exported(done.folder.run_id))
        except (AssertionError, KeyError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def judged_by(folder: Path) -> dict[str, Any]:
    table = folder / "judges.yaml"
    table.write_text(yaml.safe_dump({"models": {JUDGE: PRICE}}))
    judging = {"models": str(table)}
    return {"limit": SAMPLES, "metrics": METRICS, "judge": JUDGE, "judging": judging}


def test_figures_are_those_of_the_provider(job: Job, tmp_path: Path) -> None:
    books = Books()
    with serving(books.reply) as server:
        done = finish(config := job(server, **judged_by(tmp_path)))
        counted = Counter(books.counted)
        assert server.n_requests == sum(counted[outcome] for outcome in OUTCOMES) + SAMPLES
        wait_for_export(done, lambda values: check_metrics(values, counted, done))
        check_manifest(done, counted)
        again = finish(config)
    n_failed = sum(metric.n_failed for metric in done.summary.metrics)
    assert n_failed > 0  # the storm did its part
    n_cached = VERDICTS - n_failed

    def check_cached(values: Callable[..., float]) -> None:
        assert values("judge_calls_total", judge=JUDGE, outcome="cached") == n_cached

    wait_for_export(again, check_cached)
    assert again.folder.read_manifest()["calls"]["cached"] == n_cached


def check_metrics(values: Callable[..., float], counted: Counter[str], done: RunResult) -> None:
    sent = sum(counted[outcome] for outcome in OUTCOMES)
    for outcome in OUTCOMES:
        assert values("judge_calls_total", judge=JUDGE, outcome=outcome) == counted[outcome] > 0
    assert values("tokens_total", judge=JUDGE, kind="in") == counted["input_tokens"]
    assert values("tokens_total", judge=JUDGE, kind="out") == counted["output_tokens"]
    assert values("cost_usd_total", judge=JUDGE) == pytest.approx(cost_usd(counted))
    assert values("limiter_wait_seconds_count", judge=JUDGE) == sent
    assert values("in_flight", judge=JUDGE) == values("calls_waiting", judge=JUDGE) == 0.0
    n_failed = done.summary.n_failed_units
    judged = SAMPLES - n_failed
    ok = {"read": SAMPLES, "generate": SAMPLES, "judge": judged, "write": judged}
    assert {stage: values("units_total", stage=stage, outcome="ok") for stage in ok} == ok
    assert values("units_total", stage="write", outcome="failed") == n_failed


def check_manifest(done: RunResult, counted: Counter[str]) -> None:
    manifest, sent = done.folder.read_manifest(), sum(counted[outcome] for outcome in OUTCOMES)
    calls = manifest["calls"]
    assert [calls[outcome] for outcome in OUTCOMES] == [counted[outcome] for outcome in OUTCOMES]
    assert (calls["sent"], calls["retried"], calls["verdicts"]) == (sent, sent - VERDICTS, VERDICTS)
    assert calls["failed"] == sum(metric.n_failed for metric in done.summary.metrics)
    assert sum(int(tries) * verdicts for tries, verdicts in calls["tries"].items()) == sent
    assert calls["cost_usd"] == pytest.approx(cost_usd(counted))


def cost_usd(counted: Counter[str]) -> float:
    return (
        counted["input_tokens"] * PRICE["input_usd"]
        + counted["output_tokens"] * PRICE["output_usd"]
    ) / 1e6
