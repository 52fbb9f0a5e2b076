"""InfiniteBench's rule of the sample's task, as its head has it (51d9b37)."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("infinitebench_v2")
