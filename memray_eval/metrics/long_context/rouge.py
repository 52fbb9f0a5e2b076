"""ROUGE-L f of PyPI rouge 1.0.1, as LongBench scores summaries: see
benchmarks/longbench/rouge.py."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("rouge")
