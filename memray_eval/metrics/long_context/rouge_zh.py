"""ROUGE-L f over jieba's words, as LongBench scores Chinese summaries."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("rouge_zh")
