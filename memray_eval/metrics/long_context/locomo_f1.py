"""F1 of stemmed words by category, as LoCoMo scores: see benchmarks/locomo/rules.py."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("locomo_f1")
