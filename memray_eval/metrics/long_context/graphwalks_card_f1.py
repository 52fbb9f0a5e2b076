"""F1 of the listed nodes as the code on GraphWalks' card scores, its defects included."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("graphwalks_card_f1")
