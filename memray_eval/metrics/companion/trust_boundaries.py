"""Trust and boundaries: is the reply honest about itself, and no crutch? Source: seed 002, metric
6.

Its automated score is `trust_boundaries` in _rules.py of this folder; how it is judged stands in
metrics/companion/_metric.py."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import dimension_metric

METRIC = dimension_metric("trust_boundaries", "TRUST & BOUNDARIES", "Trust")
