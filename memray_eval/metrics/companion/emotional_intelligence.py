"""Emotional intelligence: does the reply notice feelings and answer them? Source: seed 002, metric
4.

Its automated score is `emotional_intelligence` in _rules.py of this folder; how it is judged stands
in metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric(
    "emotional_intelligence", "EMOTIONAL INTELLIGENCE", "Emotional Intelligence"
)
