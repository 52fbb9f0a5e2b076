"""Whether the response holds any of the answers, as RULER scores qa."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("ruler_any")
