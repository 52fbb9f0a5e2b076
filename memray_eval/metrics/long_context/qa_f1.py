"""F1 of English words against the best answer, as LongBench scores seven tasks: see metrics/longbench.py."""

from __future__ import annotations

from memray_eval.metrics.task_rules import rule_metric

METRIC = rule_metric("qa_f1")
