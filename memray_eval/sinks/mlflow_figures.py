"""A run's figures, params and tags, by the keys that MLflow takes."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from memray_eval._version import __version__
from memray_eval.config.sections import MEASURED_KEYS
from memray_eval.report.answer import answer
from memray_eval.types import Summary

LONGEST_PARAM, LONGEST_KEY = 500, 230  # with a suffix, what servers of any version take
_NOT_IN_KEYS = re.compile(r"[^\w\-. /]")


def figures(summary: Summary, by_candidate: bool) -> dict[str, float]:
    """The figures of a run by MLflow's key (METRIC/CANDIDATE with `by_candidate`), with `.n`,
    `.low`, `.high` (95 %) and `.n_estimated`. What was not measured is left out."""
    values: dict[str, float | None] = {
        "run.n_units": summary.n_units,
        "run.n_failed_units": summary.n_failed_units,
        "run.total_s": summary.total_s,
    }
    for metric in summary.metrics:
        candidate, figure = metric.candidate.replace("/", "_"), metric.figure
        key = _to_key(f"{metric.metric}/{candidate}" if by_candidate else metric.metric)
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
        if value not in (None, "", [], {})
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value of a config with its dotted key; a list of plain values is one."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif not isinstance(value, list) or not value:
        yield path, value
    elif any(isinstance(element, dict | list) for element in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, json.dumps(value, ensure_ascii=False)


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
