"""Appropriateness: is the reply fit to be spoken, and right for the situation? Source: seed 002,
metric 1.

Its automated score is `appropriateness` in _rules.py of this folder; how it is judged stands in
metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric("appropriateness", "APPROPRIATENESS", "Appropriateness")
