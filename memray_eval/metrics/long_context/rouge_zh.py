"""ROUGE-L f over jieba's words, as LongBench scores Chinese summaries: see metrics/longbench.py."""

from __future__ import annotations

from memray_eval.metrics.task_rules import rule_metric

METRIC = rule_metric("rouge_zh")
