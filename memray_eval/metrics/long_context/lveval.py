"""F1 of words, 0 where the answer's keywords are missing, as LV-Eval scores each task."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("lveval")
