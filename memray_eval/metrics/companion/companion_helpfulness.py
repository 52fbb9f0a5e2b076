"""Helpfulness of a companion: does the reply meet the need and do good? Source: seed 002, metric 3.

Its automated score is `helpfulness` in _rules.py of this folder; how it is judged stands in
metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric("helpfulness", "HELPFULNESS (COMPANION)", "Helpfulness")
