"""Ray's recorders for the series of execution/exported_metrics.py."""

from __future__ import annotations

from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from memray_eval.execution.exported_metrics import RUN, Series


def new_recorder(series: Series, run_id: str) -> Any:
    """The counter, gauge or histogram of a series, tagged with the run. This process must be one of
    Ray's workers."""
    named: dict[str, Any] = {
        "name": series.name,
        "description": series.description,
        "tag_keys": (*series.tags, RUN),
    }
    if series.kind == "histogram":
        recorder: Any = Histogram(**named, boundaries=list(series.buckets))
    else:
        recorder = (Counter if series.kind == "counter" else Gauge)(**named)
    return recorder.set_default_tags({RUN: run_id})
