"""Overall quality of a companion's reply: the weighted sum of the six other metrics of this family.
Source: seed 002, metric 7.

0.15 appropriateness + 0.20 conversational quality + 0.20 helpfulness + 0.25 emotional intelligence
+ 0.10 personalization + 0.10 trust, computed by us from the judgment's (or the rules') six figures:
a judge's own overall score is kept beside it."""

from __future__ import annotations

from memray_eval.metrics.companion._metric import overall_metric

METRIC = overall_metric("OVERALL QUALITY (COMPANION)", "Quality")
