"""kill -9 while scores are sent, at each of three sinks in turn, and a resume: every sink has each
score once by its id."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.sinks.otlp import EVENTS_AT_ONCE
from tests.build import judging_job, write_responses
from tests.processes.killing import evaluating, run_folder
from tests.servers.collector import collecting

UNITS, METRICS = 1200, ("lexical_diversity", "length_appropriateness", "readability_score")
SCORES = UNITS * len(METRICS)
UNASKED = "http://127.0.0.1:9/v1"  # no judge is
LATENCY_S = 0.3  # of the collector: four requests are under way for a second

pytestmark = pytest.mark.night


def kill_when(is_sending: Callable[[], bool], config: Path, log: Path) -> None:
    with evaluating(config, log) as process:
        deadline = time.monotonic() + 180
        while not is_sending():
            assert process.poll() is None, f"it ended before: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, "it sends nothing"
            time.sleep(0.001)
        process.kill()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow.*")  # SQLAlchemy's, of MLflow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:sqlalchemy.*")
def test_each_score_is_at_every_sink_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, logs, log = tmp_path / "mlflow.db", tmp_path / "logs", tmp_path / "log"
    client = open_mlflow(database, tmp_path / "artifacts")
    with collecting(latency_s=LATENCY_S) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        sinks = [
            {"kind": "otlp"},
            {"kind": "mlflow", "uri": f"sqlite:///{database}"},
            {"kind": "inspect", "dir": str(logs)},
        ]
        base = judging_job(
            write_responses(tmp_path, UNITS), tmp_path / "out", UNASKED, METRICS, "local"
        )
        settings = base.model_dump(mode="json") | {"sinks": sinks}
        config = tmp_path / "job.yaml"
        config.write_text(RunConfig.model_validate(settings).model_dump_json())

        kill_when(lambda: len(collector.events) >= EVENTS_AT_ONCE, config, log)
        # What was under way when it was killed arrives
        time.sleep(2 * LATENCY_S)
        assert EVENTS_AT_ONCE <= len(collector.events) < SCORES
        kill_when(lambda: count_metrics(database) > 0, config, log)
        assert not logs.exists()
        kill_when(lambda: any(logs.glob("*.pending*")), config, log)
        assert not list(logs.glob("*.eval"))
        with evaluating(config, log) as process:
            assert process.wait(180) == 0, log.read_text()[-2000:]

    folder = run_folder(tmp_path)
    scores = {
        f"{folder.run_id}/{record.unit_id}/{score.metric}": score.value
        for record in folder.each()
        for score in record.scores
    }
    assert len(scores) == SCORES
    got = {event["log.record.uid"]: event for event in collector.events}
    assert {key: entry["gen_ai.evaluation.score.value"] for key, entry in got.items()} == scores
    n_again = len(collector.events) - SCORES
    print(f"\n{n_again} of {SCORES} scores came to the collector again, under the same ids")
    assert n_again <= EVENTS_AT_ONCE
    check_mlflow(
        client, folder.run_id, {m.metric: m.figure.value for m in folder.read_summary().metrics}
    )
    check_inspect(logs, folder.run_id, scores)


def open_mlflow(database: Path, artifacts: Path) -> Any:
    """MLflow's own client of a store in a SQLite file."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    client.create_experiment("memray_eval", artifact_location=f"file://{artifacts}")
    return client


def count_metrics(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as opened:
        return int(opened.execute("SELECT count(*) FROM metrics").fetchone()[0])


def check_mlflow(client: Any, run_id: str, figures: dict[str, float | None]) -> None:
    """One run, which has each figure once."""
    experiment = client.get_experiment_by_name("memray_eval")
    (sent,) = client.search_runs([experiment.experiment_id])
    assert (sent.data.tags["memray_eval.run_id"], sent.info.status) == (run_id, "FINISHED")
    assert {name: sent.data.metrics[name] for name in figures} == figures
    for name in sent.data.metrics:
        if not name.startswith("run."):  # the run took longer by each session
            assert len(client.get_metric_history(sent.info.run_id, name)) == 1, name
    names = {entry.path for entry in client.list_artifacts(sent.info.run_id)}
    assert names == {"report.html", "summary.json", "summary.txt"}


def check_inspect(logs: Path, run_id: str, scores: dict[str, Any]) -> None:
    """One log, which has each score once."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    (info,) = list_eval_logs(str(logs))
    log = read_eval_log(info)
    assert log.samples is not None
    read = [
        (f"{run_id}/{sample.uuid}/{name}", score.value)
        for sample in log.samples
        for name, score in (sample.scores or {}).items()
    ]
    assert len(read) == SCORES
    assert dict(read) == scores
