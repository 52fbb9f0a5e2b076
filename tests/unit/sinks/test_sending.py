"""A run is sent by its sinks; one that fails is a note, until it has succeeded."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import SinkConfig
from memray_eval.errors import ConfigError, SinkError
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks import Delivery, check_sinks, sending
from memray_eval.sinks.sending import send_run
from tests.runs import plain_records, write_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", plain_records(4), 4)


def send(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, **errors: Exception | None
) -> tuple[Delivery, ...]:
    """Sends 3 scores to otlp and inspect each, or raises its error, if any."""

    def make(config: SinkConfig, *args: Any) -> Callable[[RunFolder], int]:
        def send_three(folder: RunFolder) -> int:
            if (error := errors[config.kind]) is not None:
                raise error
            return 3

        return send_three

    monkeypatch.setattr(sending, "make_sink", make)
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
    assert failed.line is None
    assert sent.line == f"Sent to inspect ({folder.path}/inspect): 3 scores in its logs."
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


def test_somebody_else_s_file_in_its_place_is_no_error(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(folder.path, "sinks.json").write_text('[{"kind": 3}]')
    assert send(monkeypatch, folder, otlp=None)[0].error is None
    Path(folder.path, "sinks.json").write_text("no JSON")
    assert send(monkeypatch, folder, otlp=None)[0].error is None


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for kind in ("otlp", "mlflow"):
        with pytest.raises(ConfigError, match=rf"pip install 'memray-eval\[{kind}\]'"):
            check_sinks([SinkConfig.model_validate(kind)], {})
    check_sinks([SinkConfig(kind="inspect")], {})


def test_an_address_that_is_missing_or_needs_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "is_installed", lambda name: name != "sqlalchemy")
    with pytest.raises(ConfigError, match="mlflow has no address"):
        check_sinks([SinkConfig(kind="mlflow")], {})
    check_sinks([SinkConfig(kind="mlflow")], {"MLFLOW_TRACKING_URI": "http://host:5000"})
    with pytest.raises(ConfigError, match="in sqlite only with its whole package: pip install"):
        check_sinks([SinkConfig(kind="mlflow", uri="sqlite:///m.db")], {})
    with pytest.raises(ConfigError, match="needs an HTTP address"):
        check_sinks([SinkConfig(kind="otlp")], {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"})
