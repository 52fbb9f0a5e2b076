"""Sends a run to the sinks of its job, and keeps in its folder what came of it."""

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from memray_eval.config.environment import is_installed
from memray_eval.config.secrets import held_keys, hide_keys
from memray_eval.config.sections import SinkConfig
from memray_eval.errors import ConfigError, EvalError, describe_error
from memray_eval.report.console import render
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Summary

logger = logging.getLogger(__name__)

EXPERIMENT = "memray_eval"
LONGEST_CAUSE = 300  # characters of it in a note; the log has all of it
# What a sink imports, which an extra of its kind's name brings; Inspect's logs are written without
# its package
PACKAGES = {"otlp": "opentelemetry.exporter.otlp.proto.http", "mlflow": "mlflow"}
# Unless the user sets them: nothing goes to MLflow's makers, no git is looked for, and nobody waits
# for minutes for a server that fails or does not answer
MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
_USER = re.compile(r"://[^/?#\s]*@")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")  # stores that mlflow-skinny does not read


class Delivery(NamedTuple):
    """The outcome of a run at one sink: `n_sent` new scores (or figures, or a new log's scores) are
    at `place`, unless `error` says why not all are; `note` tells a person of that."""

    kind: str
    place: str
    n_sent: int = 0
    error: str | None = None
    note: str | None = None

    @property
    def line(self) -> str | None:
        """The line for a person on a sink that succeeded; None for one that failed."""
        if self.error is not None:
            return None
        what = {"mlflow": "figures", "inspect": "scores in its logs"}.get(self.kind, "scores")
        return f"Sent to {self.kind} ({self.place}): {self.n_sent:,} {what}."


def check_sinks(sinks: Sequence[SinkConfig], environ: Mapping[str, str] = os.environ) -> None:
    """Raises ConfigError for a sink without its package, or without a valid address."""
    for sink in sinks:
        package = PACKAGES.get(sink.kind)
        if package is not None and not is_installed(package):
            raise ConfigError(
                f"sinks: {sink.kind} needs the package {package}, which is not installed here: "
                f"pip install 'memray-eval[{sink.kind}]'"
            )
        _address_of(sink, environ)


def _address_of(sink: SinkConfig, environ: Mapping[str, str]) -> str:
    """The address that a sink sends to; "" for the run's folder. Raises ConfigError."""
    if sink.kind == "otlp":
        return collector_of(environ)
    if sink.kind == "inspect":
        return sink.dir or ""
    uri = sink.uri or environ.get("MLFLOW_TRACKING_URI", "").strip()
    if not uri:
        raise ConfigError(
            "sinks: mlflow has no address; give it as uri: http://HOST:5000, or in "
            "MLFLOW_TRACKING_URI"
        )
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme in DATABASES and not is_installed("sqlalchemy"):
        raise ConfigError(
            f"sinks: mlflow keeps runs in {scheme} only with its whole package: pip install "
            "mlflow; or give it the address of a tracking server as uri"
        )
    return uri


def collector_of(environ: Mapping[str, str]) -> str:
    """The address of OpenTelemetry's logs, by its variables, without a user, a password or a query.
    Raises ConfigError for no HTTP address, or another protocol."""
    own = environ.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    parts = urlsplit(own or f"{base.removesuffix('/')}/v1/logs")
    protocol = environ.get("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if parts.scheme not in ("http", "https") or not parts.hostname or protocol != "http/protobuf":
        raise ConfigError(
            "sinks: otlp needs an HTTP address (OTEL_EXPORTER_OTLP_ENDPOINT: http://HOST:4318) and "
            "the protocol http/protobuf (OTEL_EXPORTER_OTLP_PROTOCOL)"
        )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def send_run(
    folder: RunFolder, sinks: Sequence[SinkConfig], environ: Mapping[str, str] = os.environ
) -> tuple[Delivery, ...]:
    """Sends a run that has a summary to each sink, as far as it is not there yet. A sink that fails
    is logged and a note of the summary; nothing but an interruption is raised."""
    now = tuple(_send(folder, sink, environ) for sink in sinks)
    try:
        over = tuple(_failed(new.kind, at) for new in now for at in ("", new.place))
        summary = folder.read_summary()
        kept = [note for note in summary.notes if not note.startswith(over)]
        notes = (*kept, *(new.note for new in now if new.note is not None))
        if notes != summary.notes:
            write_summary(folder, summary.model_copy(update={"notes": notes}))
    except Exception as error:  # the disk is full, or the folder was taken over: the run stands
        logger.warning("what the sinks got could not be written down", exc_info=error)
    return now


def write_summary(folder: RunFolder, summary: Summary) -> None:
    """Writes a summary to its run's folder, as JSON and as text."""
    folder.write_summary(summary, render(summary))


def _failed(kind: str, place: str) -> str:
    """The beginning of the note on a sink that failed."""
    return f"the sink {kind}{f' ({place})' if place else ''} has not got all of this run: "


def _send(folder: RunFolder, config: SinkConfig, environ: Mapping[str, str]) -> Delivery:
    started, kind, place = time.monotonic(), config.kind, ""
    try:
        check_sinks([config], environ)
        address = _address_of(config, environ)
        experiment = config.experiment or environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        place = address or f"{folder.local_path or folder.path}/inspect"
        if kind == "mlflow":
            place = f"{_USER.sub('://', address)}, experiment {experiment}"
        n_sent = send_to(kind, folder, address or place, experiment)
    except Exception as error:  # a sink's library may raise anything, and the run stands
        logger.warning("sink %s (%s) failed", kind, place, exc_info=error)
        text = str(error) if isinstance(error, EvalError) else describe_error(error)
        words = hide_keys(text, held_keys(environ, set())).split()
        cause = shorten(" ".join(words), LONGEST_CAUSE, placeholder=" ...").rstrip(".")
        note = f"{_failed(kind, place)}{cause}. `memray-eval send {folder.path}` tries again."
        return Delivery(kind, place, error=cause, note=note)
    logger.info("sink %s (%s): %d sent in %.1f s", kind, place, n_sent, time.monotonic() - started)
    return Delivery(kind, place, n_sent)


def send_to(kind: str, folder: RunFolder, address: str, experiment: str) -> int:
    """Sends what a sink's address lacks of a run, and counts it."""
    if kind == "otlp":
        from memray_eval.sinks.otlp import send_events

        return send_events(folder, address)
    if kind == "inspect":
        from memray_eval.sinks.eval_log import send_logs

        return send_logs(folder, address.rstrip("/"))
    from memray_eval.sinks.mlflow_run import send_figures

    for variable, value in MLFLOW_SETTINGS.items():
        os.environ.setdefault(variable, value)
    return send_figures(folder, address, experiment)
