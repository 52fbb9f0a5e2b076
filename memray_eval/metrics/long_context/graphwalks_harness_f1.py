"""F1 of the listed nodes as lm-evaluation-harness scores GraphWalks: both empty is 0."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("graphwalks_harness_f1")
