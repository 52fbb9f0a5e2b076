"""Whether "The correct answer is (X)" names the right letter, as LongBench v2 scores."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("longbench2_choice")
