"""InfiniteBench's rule of the sample's task as it was for the published table: see metrics/infinitebench.py."""

from __future__ import annotations

from memray_eval.metrics.task_rules import rule_metric

METRIC = rule_metric("infinitebench_v1")
