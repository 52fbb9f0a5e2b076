"""A run as a run of MLflow: params, a figure a metric with its interval, artifacts."""

import json
import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memray_eval._version import __version__
from memray_eval.config.sections import MEASURED_KEYS
from memray_eval.errors import SinkError
from memray_eval.report.answer import answer
from memray_eval.report.console import render
from memray_eval.report.html.page import write_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.leases import ScratchFolder
from memray_eval.types import Summary

RUN_TAG = "memray_eval.run_id"  # by which a resumed run finds its own again
STATUSES = {"finished": "FINISHED", "stopped": "KILLED"}
AT_ONCE = 100  # what servers of any version take
LONGEST_PARAM, LONGEST_KEY = 500, 230  # with a suffix, what servers of any version take
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]")


def send_figures(folder: RunFolder, uri: str, experiment: str) -> int:
    """Writes what the one MLflow run of this folder does not have yet, and returns how many figures
    these were. A figure that a later session changed is the metric's next step."""
    from mlflow import MlflowClient  # seconds, and an extra
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient(tracking_uri=uri)
    summary, manifest = folder.read_summary(), folder.read_manifest()
    config = folder.read_config()
    run = _find_run(client, folder.run_id, experiment)
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
    tags = [RunTag(*tag) for tag in tags_of(summary, manifest).items()]
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


def _find_run(client: Any, run_id: str, name: str) -> Any:
    """The MLflow run that has our run's id, made with it if there is none."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        experiment_id = client.create_experiment(name)
    elif experiment.lifecycle_stage != "active":
        raise SinkError(f"the experiment {name!r} is deleted; restore it")
    else:
        experiment_id = experiment.experiment_id
    runs = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1)
    if runs:
        return runs[0]
    return client.create_run(experiment_id, run_name=run_id, tags={RUN_TAG: run_id})


def figures(summary: Summary, by_candidate: bool) -> dict[str, float]:
    """The figures of a run by MLflow's key (METRIC/CANDIDATE with `by_candidate`, and of rows that
    name several), with `.n`, `.low`, `.high` (95 %) and `.n_estimated`. What was not measured is
    left out."""
    by_candidate |= len({metric.candidate for metric in summary.metrics}) > 1
    values: dict[str, float | None] = {
        "run.n_units": summary.n_units,
        "run.n_failed_units": summary.n_failed_units,
        "run.total_s": summary.total_s,
    }
    for metric in summary.metrics:
        candidate, figure = metric.candidate.replace("/", "_"), metric.figure
        key = _to_key(f"{metric.metric}/{candidate}" if by_candidate else metric.metric)
        while key in values:  # of a candidate whose name differs in what MLflow does not take
            key += "_2"
        values |= {
            key: figure.value,
            f"{key}.low": figure.low,
            f"{key}.high": figure.high,
            f"{key}.n": metric.n_scored,
            f"{key}.n_estimated": metric.n_estimated or None,
        }
    return {key: float(value) for key, value in values.items() if value is not None}


def params_of(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, str]:
    """The dotted keys that all sessions of a job share, and who judges each metric."""
    measured = {key: config[key] for key in MEASURED_KEYS if key in config}
    if not (measured.get("affect") or {}).get("enabled"):
        measured.pop("affect", None)
    values = dict(_leaves(measured, ""))
    values |= {f"judged_by.{name}": judge for name, judge in manifest.get("judges", {}).items()}
    values["dataset_fingerprint"] = (manifest.get("dataset") or {}).get("fingerprint")
    return {
        _to_key(key): str(value)[:LONGEST_PARAM]
        for key, value in values.items()
        if value not in (None, "", "[]")
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value of a config with its dotted key; a list of plain values is one."""
    if isinstance(value, list) and any(isinstance(element, dict | list) for element in value):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}".removeprefix("."))
    else:
        yield path, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def tags_of(summary: Summary, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The run's answer in a sentence, as its description, and its suite and status."""
    return {
        "mlflow.note.content": answer(summary),
        "memray_eval.version": __version__,
        "memray_eval.suite": summary.suite,
        "memray_eval.status": str(manifest.get("status")),
    }


def _to_key(name: str) -> str:
    """A name as MLflow takes it: letters, digits, some signs, and a path of no odd steps."""
    return posixpath.normpath(_NOT_IN_KEYS.sub("_", name)[:LONGEST_KEY]).lstrip("./")
