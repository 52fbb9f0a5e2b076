"""A run as a run of MLflow: params, a figure a metric with its interval, artifacts."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from memray_eval.errors import SinkError
from memray_eval.report.console import render
from memray_eval.report.html import write_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks.mlflow_figures import figures, params_of, tags_of
from memray_eval.storage.scratch import ScratchFolder

RUN_TAG = "memray_eval.run_id"  # by which a resumed run finds its own again
STATUSES = {"finished": "FINISHED", "stopped": "KILLED"}
CONNECT_S = 5.0
AT_ONCE = 100  # what servers of any version take


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
            chunk = slice(first, first + AT_ONCE)
            client.log_batch(run_id, metrics[chunk], params[chunk])
        client.log_batch(run_id, tags=tags)
        with ScratchFolder("mlflow") as copies:
            write_html(folder, f"{copies}/report.html")
            Path(copies, "summary.json").write_text(summary.model_dump_json(indent=2), "utf-8")
            Path(copies, "summary.txt").write_text(render(summary), "utf-8")
            client.log_artifacts(run_id, copies)
        client.set_terminated(run_id, STATUSES.get(str(manifest.get("status")), "FAILED"))
        return len(metrics)

    def _find_run(self, client: MlflowClient, run_id: str) -> Any:
        """The MLflow run that has our run's id, made with it if there is none."""
        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is None:
            experiment_id = client.create_experiment(self._experiment)
        elif experiment.lifecycle_stage != "active":
            raise SinkError(f"the experiment {self._experiment!r} is deleted; restore it")
        else:
            experiment_id = experiment.experiment_id
        runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
        if runs:
            return runs[0]
        return client.create_run(experiment_id, run_name=run_id, tags={RUN_TAG: run_id})


def check_reachable(uri: str) -> None:
    """Raises SinkError for a server that takes no connection: the client would try for minutes."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), CONNECT_S).close()
    except OSError as error:
        raise SinkError(f"{parts.hostname}:{port} takes no connection: {error}") from None
