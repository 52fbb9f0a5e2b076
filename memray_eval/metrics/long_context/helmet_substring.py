"""Whether a right answer is a part of the reply, both normalised, as HELMET scores RAG."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("helmet_substring")
