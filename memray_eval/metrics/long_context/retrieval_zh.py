"""The share of the response's numbers that are the right 段落's, as LongBench scores
passage_retrieval_zh."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("retrieval_zh")
