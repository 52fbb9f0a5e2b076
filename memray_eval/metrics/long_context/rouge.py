"""ROUGE-L f of PyPI rouge 1.0.1, as LongBench scores summaries: see metrics/rouge.py."""

from __future__ import annotations

from memray_eval.metrics.task_rules import rule_metric

METRIC = rule_metric("rouge")
