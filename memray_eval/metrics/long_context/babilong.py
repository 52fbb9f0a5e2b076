"""Whether the answer is the only label in the response's first sentence, as BABILong scores."""

from __future__ import annotations

from memray_eval.metrics.task_rules import rule_metric

METRIC = rule_metric("babilong")
