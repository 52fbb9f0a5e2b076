"""InfiniteBench's rule of the sample's task, as it was for the published table (88b3daa)."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("infinitebench_v1")
