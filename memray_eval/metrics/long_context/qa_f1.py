"""F1 of English words against the best answer, as LongBench scores seven tasks."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("qa_f1")
