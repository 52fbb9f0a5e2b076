"""F1 of the set of nodes that the reply's last line lists (GraphWalks); both empty is 1."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("graphwalks_f1")
