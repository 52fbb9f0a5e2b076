"""How alike the first line of code and the answer are, as LongBench scores lcc and repobench-p."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("code_sim")
