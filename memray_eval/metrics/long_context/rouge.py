"""ROUGE-L f of PyPI rouge 1.0.1 against the best answer, as LongBench scores summaries."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("rouge")
