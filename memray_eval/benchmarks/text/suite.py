"""Bare prompts, asked at one temperature or several (seed 003): what the text is worth by formulas
alone."""

from __future__ import annotations

from memray_eval.benchmarks import Suite
from memray_eval.types import Candidate, Message, Prompt, Sample

MAX_TOKENS = 512  # of an answer: room for the 300 words up to which a length is appropriate


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The query and nothing else: no system message, no template, and no history."""
    return Prompt(messages=(Message(role="user", content=sample.query),), max_tokens=MAX_TOKENS)


SUITE = Suite(
    description="Bare prompts at several temperatures: the seven text scores and speed, without a "
    "judge",
    metrics=(
        "overall_score",
        "coherence_score",
        "lexical_diversity",
        "completeness_score",
        "structure_score",
        "readability_score",
        "length_appropriateness",
    ),
    prompt=prompt,
    headline="overall_score",
)
