"""The share of all answers that the response holds, as RULER scores niah, vt, cwe and fwe."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("ruler_recall")
