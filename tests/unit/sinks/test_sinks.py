"""What sinks send, to whom, and what they say of it."""

import importlib.util
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import SinkConfig
from memray_eval.errors import ConfigError, SinkError
from memray_eval.report.exports import LONGEST_TEXT, explain, parse_judgment
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.sinks import sending
from memray_eval.sinks.mlflow_run import figures, params_of, tags_of
from memray_eval.sinks.otlp import make_events
from memray_eval.sinks.sending import Delivery, check_sinks, collector_of, send_run
from memray_eval.types import Figure, Record, Score
from tests.build import build_metric, build_score, build_summary
from tests.runs import candidates, full_summary, plain_records, write_run


def to_row(record: Record) -> dict[str, Any]:
    """The record as a sink reads it from a run's folder."""
    (row,) = to_table([record]).to_pylist(maps_as_pydicts="strict")
    return dict(row)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", plain_records(4), 4)


def send(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, **errors: Exception | None
) -> tuple[Delivery, ...]:
    """Sends 3 scores to otlp and inspect each, or raises its error, if any."""

    def send_three(kind: str, *args: Any) -> int:
        if (error := errors[kind]) is not None:
            raise error
        return 3

    monkeypatch.setattr(sending, "send_to", send_three)
    return send_run(folder, [SinkConfig.model_validate(kind) for kind in errors], {})


def notes(folder: RunFolder) -> list[str]:
    return [note for note in folder.read_summary().notes if "sink" in note]


def test_a_sink_that_fails_is_a_note_and_the_others_send(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = folder.read_summary().notes
    failed, sent = send(monkeypatch, folder, otlp=SinkError("nobody\nanswers."), inspect=None)
    assert (failed.error, sent.error, sent.n_sent) == ("nobody answers", None, 3)
    note = (
        "the sink otlp (http://localhost:4318/v1/logs) has not got all of this run: nobody "
        f"answers. `memray-eval send {folder.path}` tries again."
    )
    assert folder.read_summary().notes == (*before, note)
    assert note[:60] in folder.read("summary.txt").decode()
    into = f"Sent to inspect ({folder.path}/inspect): 3 scores in its logs."
    assert (failed.line, sent.line) == (None, into)
    (warning,) = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert "sink otlp" in warning.getMessage()
    assert warning.exc_info is not None


def test_a_note_goes_when_its_own_sink_has_succeeded(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder.read_summary().notes
    send(monkeypatch, folder, otlp=OSError("first"), inspect=OSError("second"))
    assert len(notes(folder)) == 2
    # The same folder by another name
    monkeypatch.chdir(Path(folder.path).parent)
    send(monkeypatch, RunFolder("run"), inspect=None)
    assert ["otlp" in note for note in notes(folder)] == [True]
    send(monkeypatch, folder, otlp=None)
    assert folder.read_summary().notes == before


def test_a_library_s_error_shows_no_secret(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "https://me:hunter2@host and sk-abcdefghijklmnopqrstuv"
    (failed,) = send(monkeypatch, folder, otlp=RuntimeError(secret))
    assert failed.error == "RuntimeError: https://[key]@host and [key]"


def test_a_package_or_an_address_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as bare:
        bare.setattr(importlib.util, "find_spec", lambda name: None)
        for kind in ("otlp", "mlflow"):
            with pytest.raises(ConfigError, match=rf"pip install 'memray-eval\[{kind}\]'"):
                check_sinks([SinkConfig.model_validate(kind)], {})
        check_sinks([SinkConfig(kind="inspect")], {})
    monkeypatch.setattr(sending, "is_installed", lambda name: name != "sqlalchemy")
    with pytest.raises(ConfigError, match="mlflow has no address"):
        check_sinks([SinkConfig(kind="mlflow")], {})
    check_sinks([SinkConfig(kind="mlflow")], {"MLFLOW_TRACKING_URI": "http://host:5000"})
    with pytest.raises(ConfigError, match="in sqlite only with its whole package: pip install"):
        check_sinks([SinkConfig(kind="mlflow", uri="sqlite:///m.db")], {})


def events_of(record: Record, *scores: Score) -> list[dict[str, Any]]:
    return list(make_events(to_row(record.model_copy(update={"scores": scores})), "run-1"))


def test_a_score_is_an_event_of_the_conventions_with_a_stable_id(record: Record) -> None:
    judgment = '{"empathy_score": 0, "explanation": "It is cold."}'
    judged = build_score("empathy", 0.0, judge="openai/gpt-4o", judgment=judgment)
    assert events_of(record, judged) == [
        {
            "log.record.uid": f"run-1/{record.unit_id}/empathy",
            "gen_ai.evaluation.name": "empathy",
            "gen_ai.evaluation.score.value": 0.0,
            "gen_ai.evaluation.explanation": "It is cold.",
            "gen_ai.request.model": "small-model",
            "memray_eval.run_id": "run-1",
            "memray_eval.unit_id": record.unit_id,
            "memray_eval.sample_id": "T001",
            "memray_eval.candidate": "small",
            "memray_eval.suite": "memory",
            "memray_eval.judge": "openai/gpt-4o",
            "memray_eval.status": "scored",
            "memray_eval.is_estimate": False,
        }
    ]


def test_what_has_no_value_says_why_and_an_estimate_that_it_is_one(record: Record) -> None:
    abstained = Score(metric="empathy", status="abstained", judge="openai/gpt-4o")
    failed = build_score("safety", None, error="Throttled: too many calls")
    odd = build_score("safety", None, error="the judge said: nothing")
    *unscored, estimate = events_of(record, abstained, failed, odd, build_score(judge="rules"))
    assert not any("gen_ai.evaluation.score.value" in event for event in unscored)
    names = ("gen_ai.evaluation.score.label", "error.type", "error.message")
    assert [tuple(map(event.get, names)) for event in unscored] == [
        ("abstained", None, None),
        (None, "Throttled", "Throttled: too many calls"),
        (None, "_OTHER", "the judge said: nothing"),
    ]
    assert unscored[1]["log.record.uid"] == f"run-1/{record.unit_id}/safety/error"
    estimates = [event["memray_eval.is_estimate"] for event in (unscored[1], estimate)]
    assert estimates == [False, True]


@pytest.mark.parametrize(
    ("judgment", "why"),
    [
        ('{"reasoning": "Because."}', "Because."),
        ('{"score": 3}', '{"score": 3}'),
        ('{"explanation": ["no text"]}', '{"explanation": ["no text"]}'),
        ("[1, 2]", "[1, 2]"),
        ("not JSON", "not JSON"),
        (r'{"reason": "half \ud83d"}', r"half \ud83d"),
        ("", None),
        (None, None),
        ("x" * 10**6, "x" * LONGEST_TEXT),
    ],
)
def test_a_judgment_is_explained_by_its_own_words(judgment: str | None, why: str | None) -> None:
    assert explain(judgment, parse_judgment(judgment)) == why


BASE, LOGS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "http://localhost:4318/v1/logs"),
        ({BASE: "https://c:4318/"}, "https://c:4318/v1/logs"),
        ({BASE: "https://c/otlp"}, "https://c/otlp/v1/logs"),
        ({BASE: "https://c", LOGS: "https://user:pass@logs/in?key=1"}, "https://logs/in"),
    ],
)
def test_the_address_is_the_environment_s_without_its_secrets(
    environ: dict[str, str], address: str
) -> None:
    assert collector_of(environ) == address


PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
WRONG = ({BASE: "localhost:4318"}, {BASE: "grpc://c:4317"}, {PROTOCOL: "grpc"})


@pytest.mark.parametrize("environ", WRONG)
def test_what_is_no_address_is_told(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs an HTTP address"):
        check_sinks([SinkConfig(kind="otlp")], environ)


KEY = re.compile(r"[/\w.\- :]*")  # of MLflow's own validation


def test_mlflow_has_the_figures_of_a_run_and_its_answer_as_description() -> None:
    summary = full_summary(12, candidates(1))
    logged = figures(summary, by_candidate=False)
    for metric in summary.metrics:
        assert logged[metric.metric] == metric.figure.value
        assert logged[f"{metric.metric}.n"] == metric.n_scored
        assert logged.get(f"{metric.metric}.low") == metric.figure.low
    assert logged["run.n_units"] == 12.0
    tags = tags_of(summary, {"status": "finished"})
    assert tags["memray_eval.status"] == "finished"
    assert tags["mlflow.note.content"]


@pytest.mark.parametrize("has_several", [True, False])  # in its job; else its rows name them
def test_candidates_have_keys_of_their_own_and_what_was_not_measured_has_none(
    has_several: bool,
) -> None:
    odd = build_metric("empathy", candidate="org/model@é:1", figure=Figure(), n_scored=0)
    like = odd.model_copy(update={"candidate": "org/model:é@1", "n_scored": 7})
    logged = figures(build_summary(metrics=(odd, like)), by_candidate=has_several)
    of_metrics = {key: value for key, value in logged.items() if not key.startswith("run.")}
    assert of_metrics == {"empathy/org_model_é_1.n": 0.0, "empathy/org_model_é_1_2.n": 7.0}
    assert all(KEY.fullmatch(key) for key in logged)


@pytest.mark.parametrize("key", ["../../etc", "a//b", "a/../b", "/a", "x" * 1000])
def test_a_name_is_no_path_elsewhere(key: str) -> None:
    (name,) = params_of({"rubrics": {key: "v"}}, {})
    assert not name.startswith(("/", "."))
    assert "//" not in name
    assert len(name) <= 250


def test_params_are_what_all_sessions_share() -> None:
    config: dict[str, Any] = {
        "suite": "memory",
        "candidates": [{"name": "a", "sampling": {"temperature": 0.0, "stop": []}, "seed": None}],
        "metrics": ["empathy", "safety"],
        "affect": {"enabled": False, "emotion": "lexicon"},
        "judging": {"actors": 3},
    }
    manifest = {"judges": {"empathy": "openai/gpt-4o"}, "dataset": {"fingerprint": "2:ab"}}
    assert params_of(config, manifest) == {
        "suite": "memory",
        "candidates.0.name": "a",
        "candidates.0.sampling.temperature": "0.0",
        "metrics": '["empathy", "safety"]',
        "judged_by.empathy": "openai/gpt-4o",
        "dataset_fingerprint": "2:ab",
    }
    heard = params_of(config | {"affect": {"enabled": True, "emotion": "lexicon"}}, {})
    assert heard["affect.emotion"] == "lexicon"
