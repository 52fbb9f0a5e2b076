"""Whether the reply names the right option alone, as PersonaMem scores."""

from __future__ import annotations

from memray_eval.benchmarks.rules import rule_metric

METRIC = rule_metric("personamem_letter")
