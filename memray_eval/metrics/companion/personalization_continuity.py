"""Personalization and continuity: does it build on what is known and was said? Source: seed 002,
metric 5.

Its automated score is `personalization_continuity` in _rules.py of this folder; how it is judged
stands in metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric(
    "personalization_continuity", "PERSONALIZATION & CONTINUITY", "Personalization"
)
