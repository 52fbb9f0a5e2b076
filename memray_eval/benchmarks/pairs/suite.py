"""Pairs of answers to the same question, of which a judge says which is better."""

from __future__ import annotations

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.chat.suite import prompt

SUITE = Suite(
    description="Two answers to each question, compared in both orders; `memray-eval pairwise RUN "
    "RUN` makes them of runs",
    metrics=("preference",),
    prompt=prompt,
)
