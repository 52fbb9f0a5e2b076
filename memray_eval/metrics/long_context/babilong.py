"""Whether the answer is the only label in the response's first sentence, as BABILong scores."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("babilong")
