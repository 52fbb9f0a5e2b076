"""difflib's ratio of the reply to the answer, 0 unless it begins with the asked string, as MRCR
scores."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("mrcr_ratio")
