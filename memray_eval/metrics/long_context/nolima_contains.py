"""Whether the reply holds a right answer to the letter, as NoLiMa scores."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("nolima_contains")
