"""The share of the numbers that are the right paragraph's (LongBench: passage_retrieval_en)."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("retrieval")
