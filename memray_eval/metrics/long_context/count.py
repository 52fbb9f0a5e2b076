"""The share of the response's numbers that are the answer, as LongBench scores passage_count."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("count")
