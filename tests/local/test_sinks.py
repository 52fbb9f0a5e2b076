"""Runs with sinks: MLflow's client, Inspect's readers and an OpenTelemetry collector read what was
sent; a sink that fails fails no run."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memray_eval as me
from memray_eval.errors import ConfigError, Interrupted
from memray_eval.execution import session
from memray_eval.execution.runs import resume, run
from memray_eval.execution.session import RunResult
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.build import Job, served
from tests.conftest import Call
from tests.servers.collector import Collector, collecting
from tests.servers.judgments import reply_to
from tests.servers.provider import Fault, Outcome, serving

N = 5


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"no {package}: the dev extra has it"
    )


def quiet(text: str) -> None:
    return


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    # mlflow-skinny, which needs no database, keeps runs in files where it is told to
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv(ENDPOINT, running.endpoint)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sinks"


def sinks(folder: Path, collector: Collector) -> list[dict[str, str]]:
    return [
        {"kind": "otlp"},
        {"kind": "mlflow", "uri": f"file://{folder}/mlruns", "experiment": "tests"},
        {"kind": "inspect", "dir": f"{folder}/logs"},
    ]


JUDGED: dict[str, Any] = {"metrics": ["empathy", "safety"], "judge": "openai/j", "limit": N}


def records(done: RunResult) -> list[Record]:
    return list(done.folder.each())


def values_of(done: RunResult) -> dict[tuple[str, str], float | None]:
    return {(r.unit_id, s.metric): s.value for r in records(done) for s in r.scores}


def mlflow_runs(folder: Path) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"file://{folder}/mlruns")
    experiment = client.get_experiment_by_name("tests")
    assert experiment is not None
    return client, list(client.search_runs([experiment.experiment_id]))


def read_logs(folder: Path) -> list[Any]:
    from inspect_ai.log import list_eval_logs, read_eval_log

    return [read_eval_log(info) for info in list_eval_logs(f"{folder}/logs")]


@needs("mlflow")
def test_mlflow_s_client_reads_the_figures_and_the_page(
    job: Job, folder: Path, collector: Collector
) -> None:
    with serving(reply_to) as server:
        done = run(job(server, sinks=sinks(folder, collector)[1:2], **JUDGED), quiet)
    client, (logged,) = mlflow_runs(folder)
    assert logged.info.status == "FINISHED"
    assert logged.data.tags["memray_eval.run_id"] == done.folder.run_id
    assert logged.data.params["judged_by.empathy"].startswith("openai/j")
    assert logged.data.params["limit"] == str(N)
    for metric in done.summary.metrics:
        assert logged.data.metrics[metric.metric] == metric.figure.value
        assert logged.data.metrics[f"{metric.metric}.low"] == metric.figure.low
        assert logged.data.metrics[f"{metric.metric}.high"] == metric.figure.high
        assert logged.data.metrics[f"{metric.metric}.n"] == metric.n_scored == N
    names = {artifact.path for artifact in client.list_artifacts(logged.info.run_id)}
    assert names == {"report.html", "summary.json", "summary.txt"}
    page = Path(client.download_artifacts(logged.info.run_id, "report.html")).read_text("utf-8")
    assert records(done)[0].unit_id in page


@needs("inspect_ai")
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # pandas', of what Inspect's frames do
def test_inspect_s_readers_and_data_frames_open_it(
    job: Job, folder: Path, collector: Collector
) -> None:
    from inspect_ai.analysis import samples_df
    from inspect_ai.log import read_eval_log_sample, read_eval_log_sample_summaries

    with serving(reply_to) as server:
        candidates = [served(server, name) for name in ("a", "b")]
        inspect = sinks(folder, collector)[2:]
        done = run(job(server, candidates=candidates, sinks=inspect, **JUDGED), quiet)
    logs = read_logs(folder)
    assert [(log.status, log.version, len(log.samples)) for log in logs] == [("success", 2, N)] * 2
    figures = {(metric.candidate, metric.metric): metric.figure for metric in done.summary.metrics}
    for log in logs:
        name = log.eval.metadata["candidate"]
        for score in log.results.scores:
            figure = figures[name, score.name]
            assert score.metrics[figure.average].value == figure.value
            assert score.metrics["ci_low"].value == figure.low
    first = logs[0].samples[0]
    assert read_eval_log_sample(logs[0].location, id=first.id).uuid == first.uuid
    assert len(read_eval_log_sample_summaries(logs[0].location)) == N
    frame = samples_df(f"{folder}/logs", quiet=True)
    assert len(frame) == 2 * N
    assert {
        (row["sample_id"], name): row[f"score_{name}"]
        for _, row in frame.iterrows()
        for name in ("empathy", "safety")
    } == values_of(done)


@needs("mlflow")
@needs("inspect_ai")
def test_what_failed_is_an_error_until_a_resume_scores_it(
    job: Job, folder: Path, collector: Collector
) -> None:
    is_broken = True

    def sometimes(body: dict[str, Any]) -> str | Outcome:
        judges_safety = not body.get("stream") and "safety_score" in json.dumps(body)
        return Fault(500) if is_broken and judges_safety else reply_to(body)

    with serving(sometimes) as server:
        own = {"sinks": sinks(folder, collector), "tolerance": 1.0, "judging": {"tries": 1}}
        first = run(job(server, **own, **JUDGED), quiet)
        assert first.summary.n_failed_units == N
        (log,) = read_logs(folder)
        assert all("safety: " in sample.error.message for sample in log.samples)
        assert log.samples[0].scores["safety"].metadata["status"] == "error"
        is_broken = False
        second = resume(first.folder.path, quiet)
    assert second.summary.n_failed_units == 0
    assert set(collector.received.values()) == {1}
    errors = {path for path in collector.received if path.endswith("/error")}
    assert errors == {f"{first.folder.run_id}/{r.unit_id}/safety/error" for r in records(first)}
    assert collector.received.keys() - errors == {
        f"{first.folder.run_id}/{unit}/{metric}" for unit, metric in values_of(second)
    }
    (log,) = read_logs(folder)
    assert not any(sample.error for sample in log.samples)
    client, (logged,) = mlflow_runs(folder)
    assert logged.data.metrics["safety.n"] == N
    history = client.get_metric_history(logged.info.run_id, "safety.n")
    assert [(point.step, point.value) for point in history] == [(1, 0.0), (2, float(N))]
    history = client.get_metric_history(logged.info.run_id, "empathy")
    assert [point.step for point in history] == [1]


def test_sinks_that_fail_are_notes_and_send_tries_again(
    job: Job, folder: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    folder.write_text("a file where the folder of the logs should be")
    down = [{"kind": "otlp"}, {"kind": "inspect", "dir": f"{folder}/logs"}]
    with serving(reply_to) as server:
        done = run(job(server, sinks=down, **JUDGED), quiet)
    assert done.exit_code == 0
    assert done.folder.read_manifest()["status"] == "finished"
    notes = [note for note in done.summary.notes if note.startswith("the sink")]
    assert ["otlp" in notes[0], "inspect" in notes[1], len(notes)] == [True, True, 2]
    assert "nobody answered" in notes[0]
    assert f"`memray-eval send {done.folder.path}` tries again" in notes[0]
    logged = done.folder.read("log.jsonl").decode()
    assert "sink otlp (http://127.0.0.1:1/v1/logs) failed" in logged

    code, _, err = cli("send", done.folder.path)
    assert (code, err.count("error: the sink")) == (1, 2)
    folder.unlink()
    monkeypatch.setenv(ENDPOINT, collector.endpoint)
    code, out, _ = cli("send", done.folder.path, "--sink", "otlp")
    assert code == 0
    assert out == f"Sent to otlp ({collector.endpoint}/v1/logs): {2 * N} scores.\n"
    assert set(collector.received.values()) == {1}
    code, out, _ = cli("send", done.folder.path, "--sink", "inspect")
    assert (code, f"{2 * N} scores in its logs" in out) == (0, True)
    left = [note for note in done.folder.read_summary().notes if note.startswith("the sink")]
    assert left == notes[:1]  # the first collector has nothing yet
    code, _, err = cli("send", done.folder.path, "--sink", "otpl")
    assert (code, err) == (2, "error: --sink 'otpl': there are: otlp, mlflow, inspect\n")


def test_send_says_when_there_is_nowhere_to_send(job: Job, cli: Call) -> None:
    with serving(reply_to) as server:
        done = run(job(server, **JUDGED), quiet)
    code, _, err = cli("send", done.folder.path)
    assert code == 2
    assert "names no sink; name one with --sink: otlp, mlflow, inspect" in err


def test_what_a_sink_lacks_is_told_before_anything_is_written(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memray_eval.sinks import sending

    monkeypatch.setattr(sending, "is_installed", lambda name: name != "mlflow")
    with serving(reply_to) as server:
        mlflow = [{"kind": "mlflow", "uri": "http://127.0.0.1:5000"}]
        with pytest.raises(ConfigError, match=r"pip install 'memray-eval\[mlflow\]'"):
            run(job(server, sinks=mlflow, **JUDGED), quiet)
        assert server.requests == []
    assert not (tmp_path / "results").exists()


def test_a_run_from_python_takes_sinks(tmp_path: Path, collector: Collector) -> None:
    rows = [{"query": "How do I rest?", "response": "Sleep early.", "answers": ["sleep early"]}]
    to: dict[str, Any] = {"out": str(tmp_path / "results"), "sinks": ["inspect", {"kind": "otlp"}]}
    done = me.evaluate(rows, ["semantic_correctness"], judge="rules", quiet=True, **to)
    assert len(list((Path(done.path) / "inspect").glob("*.eval"))) == 1
    (event,) = collector.events
    expected = ("semantic_correctness", True)
    assert (event["gen_ai.evaluation.name"], event["memray_eval.is_estimate"]) == expected


def test_an_interruption_while_it_sends_is_none_of_the_run(
    job: Job, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "send_run", interrupted)
    with serving(reply_to) as server, pytest.raises(Interrupted) as raised:
        run(job(server, sinks=[{"kind": "otlp"}], **JUDGED), quiet)
    assert "the run has ended before. Go on with `memray-eval send " in str(raised.value)
    folder = RunFolder(str(raised.value).rpartition(" ")[2].strip("`."))
    assert folder.read_manifest()["status"] == "finished"
    assert folder.read_summary().n_units == N
