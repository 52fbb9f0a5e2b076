"""The share that the right class has of the classes named, as LongBench scores trec and lsht."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("classification")
