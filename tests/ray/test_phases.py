"""Generating first and judging afterwards gives what both at a time do, stops and goes on in either
phase, and reads a dataset once."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare import scanning
from memray_eval.execution.runs import resume, run
from memray_eval.execution.session import RunResult
from memray_eval.types import Record
from tests.build import Job
from tests.conftest import SAMPLES
from tests.servers.judgments import reply_to
from tests.servers.provider import Fault, Outcome, Provider, Reply, serving

pytestmark = pytest.mark.night

METRICS = ["empathy", "helpfulness", "relevance", "memory_utilization"]
UNITS = 12


def fails_on(*queries: str) -> Reply:
    """Candidates fail on prompts with one of these texts."""

    def answer(body: dict[str, Any]) -> str | Outcome:
        has_failed = body.get("stream") and any(text in json.dumps(body) for text in queries)
        return Fault(400) if has_failed else reply_to(body)

    return answer


def phased(job: Job, server: Provider, phases: str, /, **changes: Any) -> RunConfig:
    judging = {"cache": "off", "latency_s": 0.1}
    options: dict[str, Any] = {
        "limit": UNITS,
        "metrics": METRICS,
        "judge": dict.fromkeys(("empathy", "helpfulness"), "openai/j") | {METRICS[-1]: "rules"},
        "rows_per_block": 3,
        "cluster": {"phases": phases},
        "judging": judging | changes.pop("judging", {}),
    }
    return job(server, **options | changes)


def kinds(server: Provider) -> list[str]:
    """What each request that is no embedding was for, in the order they came."""
    chats = [body for body in server.requests if "messages" in body]
    return ["generate" if body.get("stream") else "judge" for body in chats]


def scores(done: RunResult) -> dict[str, list[dict[str, Any]]]:
    """The scores of each sample, without what differs from run to run."""

    def plain(record: Record) -> list[dict[str, Any]]:
        return [score.model_dump(exclude={"latency_s"}) for score in record.scores]

    return {record.sample.id: plain(record) for record in done.folder.each()}


def figures(done: RunResult) -> dict[str, Any]:
    summary = done.summary.model_dump(exclude={"run_id", "total_s", "generation_s"})
    for metric in summary["metrics"]:
        for name in [name for name in metric if "latency" in name or name.endswith("_s")]:
            metric.pop(name)
    names = ("n_units", "n_failed_units", "metrics", "causes")
    return {name: rounded(summary[name]) for name in names}


def rounded(value: Any) -> Any:
    """The value with figures that do not depend on the order in which rows were added up."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


def test_apart_gives_what_together_gives(job: Job) -> None:
    """Also of units whose generation fails: they are finished in the first phase."""
    lines: list[str] = []
    with serving(reply_to) as server:
        plain = run(phased(job, server, "together"), lines.append, quiet=True)
        first = sorted(scores(plain))[:2]
        queries = [
            record.sample.query for record in plain.folder.each() if record.sample.id in first
        ]
        server.reply = fails_on(*queries)
        together = run(phased(job, server, "together"), lines.append, quiet=True)
        assert not any("Phases" in line for line in lines)
        n_before = len(kinds(server))
        apart = run(phased(job, server, "apart"), lines.append, quiet=True)
        order = kinds(server)[n_before:]
    n_asked = order.count("generate")
    assert order == ["generate"] * n_asked + ["judge"] * (len(order) - n_asked)
    assert order.count("judge") == 2 * (UNITS - 2)
    assert "Phases: apart (cluster.phases says so)." in lines
    assert scores(apart) == scores(together)
    assert (apart.exit_code, apart.summary.n_failed_units) == (1, 2)
    assert figures(apart) == figures(together)
    manifests = [done.folder.read_manifest() for done in (together, apart)]
    assert [item["phases"]["phase"] for item in manifests] == [None, "judge"]
    assert manifests[1]["phases"]["order"] == "apart"
    rows = [{stage: count["rows"] for stage, count in item["stages"].items()} for item in manifests]
    assert rows[0] == rows[1] == dict.fromkeys(rows[0], UNITS)
    assert apart.summary.generation_s is not None
    assert apart.folder.parts("responses") == []


def test_a_run_that_stops_while_generating_judges_nothing_and_goes_on(job: Job) -> None:
    with serving(reply_to) as server:
        plain = run(phased(job, server, "together"), print, quiet=True)
        query = next(plain.folder.each()).sample.query
        server.requests.clear()
        server.reply = fails_on(query)
        config = phased(job, server, "apart", on_error="fail", server={"max_in_flight": 1})
        stopped = run(config, print, quiet=True)
        assert stopped.stopped is not None
        assert "judge" not in kinds(server)
        server.reply = reply_to
        done = resume(stopped.folder.path, print, quiet=True)
    assert kinds(server).count("judge") == 2 * UNITS
    assert kinds(server).count("generate") == UNITS + 1  # that which failed, again
    assert (done.exit_code, done.summary.n_units) == (0, UNITS)
    assert len(scores(done)) == UNITS


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A dataset of three files, as if written a minute ago."""
    folder = tmp_path / "data"
    folder.mkdir()
    samples = sorted(SAMPLES.glob("*/sample.json"))[:9]
    for number in range(3):
        rows = [json.loads(item.read_text()) for item in samples[number::3]]
        (folder / f"part-{number}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    for file in folder.iterdir():
        os.utime(file, (time.time() - 60, time.time() - 60))
    return folder


def test_a_scan_is_kept_for_those_that_go_on(
    job: Job, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the dataset is scanned again")

    with serving(fails_on("")) as server:
        config = phased(job, server, "together", dataset=str(data), limit=None, executor="local")
        failed = run(config, print, quiet=True)
        assert failed.summary.n_failed_units == 9
        server.reply = reply_to
        kept = data.with_name("kept")
        shutil.copytree(failed.folder.path, kept)
        with monkeypatch.context() as patch:
            patch.setattr(scanning, "scan", never)
            done = resume(failed.folder.path, print, quiet=True)
        assert (done.exit_code, len(scores(done))) == (0, 9)
        # Touched, the same in it: read again, and gone on with
        os.utime(data / "part-1.jsonl")
        again = resume(str(kept), print, quiet=True)
        assert (again.exit_code, len(scores(again))) == (0, 9)
        with (data / "part-1.jsonl").open("a") as file:
            file.write("\n" + json.dumps({"id": "new", "query": "Why?", "memory": {"k": "v"}}))
        with pytest.raises(ConfigError, match="has changed since the run began"):
            resume(str(kept), print, quiet=True)


def test_files_of_a_large_dataset_are_scanned_in_tasks(
    job: Job, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (data / "part-2.jsonl").open("a") as file:
        first = json.loads((data / "part-0.jsonl").read_text().splitlines()[0])
        file.write("\nno JSON\n" + json.dumps(first))
    with serving(reply_to) as server:
        config = phased(
            job,
            server,
            "together",
            dataset=str(data),
            limit=None,
            skip_invalid=True,
            metrics=["empathy", "helpfulness"],
            judge="openai/j",
        )
        plain = run(config, print, quiet=True)
        monkeypatch.setattr(scanning, "LARGE_BYTES", 0)
        tasks = run(config, print, quiet=True)
    manifests = [done.folder.read_manifest()["dataset"] for done in (plain, tasks)]
    assert manifests[0] == manifests[1]
    assert (manifests[0]["n_samples"], manifests[0]["n_invalid"]) == (9, 2)
    problems = [Path(done.folder.path, "problems.jsonl").read_text() for done in (plain, tasks)]
    assert problems[0] == problems[1]
    log = Path(tasks.folder.path, "log.jsonl")
    assert sorted(scores(plain)) == sorted(scores(tasks)), log
