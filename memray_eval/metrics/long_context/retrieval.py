"""The share of the response's numbers that are the right paragraph's, as LongBench scores
passage_retrieval_en."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("retrieval")
