"""The share of the numbers that are the right 段落's (LongBench: passage_retrieval_zh)."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("retrieval_zh")
