"""A run as a run of MLflow: its keys as params, one figure a metric with its interval, and its page
and summary as artifacts."""

from __future__ import annotations

import json
import posixpath
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

import memray_eval
from memray_eval.errors import SinkError
from memray_eval.report.answer import answer
from memray_eval.report.html import write_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import MetricSummary, Summary

RUN_TAG = "memray_eval.run_id"  # by which a resumed run finds its own again
STATUSES = {"finished": "FINISHED", "stopped": "KILLED"}
CONNECT_S = 5.0
LONGEST_PARAM, LONGEST_KEY, AT_ONCE = 500, 250, 100  # what servers of any version take
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]")


class MlflowSink:
    """Keeps one MLflow run for each run folder."""

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri, self._experiment = uri, experiment

    def send(self, folder: RunFolder) -> int:
        """Writes what the MLflow run of this folder does not have yet, and returns how many
        figures these were. A figure that a later session changed is the metric's next step."""
        check_reachable(self._uri)
        client = MlflowClient(tracking_uri=self._uri)
        summary, manifest = folder.read_summary(), folder.read_manifest()
        config = folder.read_config()
        run = self._find_run(client, folder.run_id)
        run_id = run.info.run_id
        step = len(manifest.get("sessions") or ())
        now_ms = time.time_ns() // 1_000_000
        metrics = [
            Metric(key, value, now_ms, step)
            for key, value in figures(summary, len(config.get("candidates") or ()) > 1).items()
            if run.data.metrics.get(key) != value
        ]
        params = [
            Param(key, value)
            for key, value in params_of(config, manifest).items()
            if key not in run.data.params
        ]
        tags = [RunTag(key, value) for key, value in tags_of(summary, manifest).items()]
        for first in range(0, max(len(metrics), len(params)), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            client.log_batch(run_id, metrics[here], params[here])
        client.log_batch(run_id, tags=tags)
        with tempfile.TemporaryDirectory(prefix="memray-eval-mlflow-") as place:
            write_html(folder, f"{place}/report.html")
            for name in ("summary.json", "summary.txt"):
                Path(place, name).write_bytes(folder.read_log(name))
            client.log_artifacts(run_id, place)
        client.set_terminated(run_id, STATUSES.get(str(manifest.get("status")), "FAILED"))
        return len(metrics)

    def _find_run(self, client: MlflowClient, run_id: str) -> Any:
        """The MLflow run that has our run's id, made with it where there is none."""
        found = client.get_experiment_by_name(self._experiment)
        if found is None:
            experiment_id = client.create_experiment(self._experiment)
        elif found.lifecycle_stage != "active":
            raise SinkError(f"the experiment {self._experiment!r} is deleted; restore it")
        else:
            experiment_id = found.experiment_id
        runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
        if runs:
            return runs[0]
        return client.create_run(experiment_id, run_name=run_id, tags={RUN_TAG: run_id})


def figures(summary: Summary, by_candidate: bool) -> dict[str, float]:
    """The figures of a run by MLflow's key: for each metric (METRIC/CANDIDATE with `by_candidate`)
    the one that stands for it, `.n`, how many answers were scored, and `.low` and `.high`,
    its 95 % interval; `.n_estimated` of them are offline estimates. What was not measured is
    left out."""
    found: dict[str, float | None] = {
        "run.n_units": summary.n_units,
        "run.n_failed_units": summary.n_failed_units,
        "run.total_s": summary.total_s,
    }
    for metric in summary.metrics:
        candidate = metric.candidate.replace("/", "_")
        key = f"{metric.metric}/{candidate}" if by_candidate else metric.metric
        found |= {f"{_to_key(key)}{suffix}": value for suffix, value in _of_metric(metric)}
    return {key: float(value) for key, value in found.items() if value is not None}


def _of_metric(metric: MetricSummary) -> Iterator[tuple[str, float | None]]:
    figure = metric.figure
    yield from (("", figure.value), (".low", figure.low), (".high", figure.high))
    yield ".n", metric.n_scored
    if metric.n_estimated:
        yield ".n_estimated", metric.n_estimated


def params_of(config: Any, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a run's config that hold something, dotted, with who judged each metric. A param
    of MLflow is written once: these are what the first session ran with."""
    judges = {f"judged_by.{name}": judge for name, judge in manifest.get("judges", {}).items()}
    found = dict(_leaves(config, "")) | judges
    dataset = manifest.get("dataset") or {}
    found["dataset_fingerprint"] = dataset.get("fingerprint")
    return {
        _to_key(key): str(value)[:LONGEST_PARAM]
        for key, value in found.items()
        if value not in (None, "", [], {})
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value of a config with its dotted key; a list of plain values is one."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}.{index}")
    else:
        yield path, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def tags_of(summary: Summary, manifest: Mapping[str, Any]) -> dict[str, str]:
    return {
        "mlflow.note.content": answer(summary),
        "memray_eval.version": memray_eval.__version__,
        "memray_eval.suite": summary.suite,
        "memray_eval.status": str(manifest.get("status")),
    }


def check_reachable(uri: str) -> None:
    """Raises SinkError for a server that takes no connection: the client itself would try for
    minutes."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), CONNECT_S).close()
    except OSError as error:
        raise SinkError(f"{parts.hostname}:{port} takes no connection: {error}") from None


def _to_key(name: str) -> str:
    """A name as MLflow takes it: letters, digits, some signs, and a path of no odd steps."""
    return posixpath.normpath(_NOT_IN_KEYS.sub("_", name)[:LONGEST_KEY]).lstrip("./")
