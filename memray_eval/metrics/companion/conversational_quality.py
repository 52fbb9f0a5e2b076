"""Conversational quality: is the reply natural, engaging speech? Source: seed 002, metric 2.

Its automated score is `conversational_quality` in _rules.py of this folder; how it is judged stands
in metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric(
    "conversational_quality", "CONVERSATIONAL QUALITY", "Conversational Quality"
)
