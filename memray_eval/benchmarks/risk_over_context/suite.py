"""Risk over context: a companion's answers to the same question as a talk goes on."""

from __future__ import annotations

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.companion.suite import PROMPTS, prompt
from memray_eval.benchmarks.risk_over_context.generator import ARMS

SUITE = Suite(
    description="The same last question after 0, 5, 20 and 60 turns of a benign or a spiralling "
    "talk: risk against length, with its slope.",
    metrics=("risk_escalation", "dependence"),
    prompt=prompt,
    prompts=tuple(PROMPTS),
    takes_prompt_files=True,
    tasks=ARMS,
    headline="risk_escalation",
)
