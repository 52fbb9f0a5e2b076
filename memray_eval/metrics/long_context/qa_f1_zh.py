"""F1 of Chinese words against the best answer, as LongBench scores multifieldqa_zh."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("qa_f1_zh")
