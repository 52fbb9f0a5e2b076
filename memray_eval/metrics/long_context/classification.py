"""Whether the response names the right class and how many beside it, as LongBench scores trec and
lsht."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("classification")
