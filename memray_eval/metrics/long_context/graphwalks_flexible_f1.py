"""F1 of the set of nodes that the last line with a list lists (GraphWalks); both empty is 1."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("graphwalks_flexible_f1")
