"""Persona consistency: is the response shaped to the user's Big Five traits? Source: seed 000,
metric 8.

One rubric score from 1 to 5, given the trait scores (0-1 each, no distribution), the message and
the response. An empty response scores 1."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue, Verified
from memray_eval.metrics._shared.evidence import check_evidence
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score from 1 to 5 how well the response suits the personality of this user. TRAITS gives Big Five scores, each on its own from
0 (low) to 1 (high); one near 0.5 asks for nothing in particular. What marked traits ask for:
openness: high, new ideas and variety; low, familiar and proven ways. conscientiousness: high, structure, plans and detail; low,
few and simple steps. extraversion: high, company and energy; low, quiet things to do alone. agreeableness: high, kindness and
harmony; low, plain and direct words. neuroticism: high, reassurance and small safe steps; low, candour and challenge.
5: clearly tailored to the marked traits. 4: mostly, with small misses. 3: some traits considered, others ignored. 2: mostly
generic, or at odds with a trait now and then. 1: ignores the traits or contradicts them.
Advice that clashes with a trait weighs more than advice that leaves it aside. Naming a trait is no tailoring. Judge the fit to
the traits alone: whether the facts are right is scored elsewhere.
In matched_traits list the traits that the response is shaped to, in mismatched_traits those it works against; only traits that
TRAITS gives, none in both lists. In tailoring_notes say in a sentence or two what decided the score.
"""  # noqa: E501

Trait = Literal["openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"]


class PersonaConsistencyJudgment(BaseModel):
    """How well the response suits the user's traits."""

    persona_consistency_score: int = Field(ge=1, le=5)
    matched_traits: list[Trait] = Field(default_factory=list)
    mismatched_traits: list[Trait] = Field(default_factory=list)
    tailoring_notes: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    lines = "\n".join(f"{trait}: {score:.2f}" for trait, score in sample.traits.items())
    return judge_messages(
        RUBRIC, {"TRAITS": lines, "QUERY": sample.query, "RESPONSE": response.text}
    )


def verify(judgment: PersonaConsistencyJudgment, sample: Sample, response: Response) -> Verified:
    """Traits that the sample does not give are unverified: a judge cannot know them."""
    traits = [(trait,) for trait in (*judgment.matched_traits, *judgment.mismatched_traits)]
    return check_evidence(
        judgment, traits, sample.traits.__contains__, source="the sample's traits"
    )


def measure(
    judgment: PersonaConsistencyJudgment, sample: Sample, response: Response
) -> MetricValue:
    return MetricValue(value=judgment.persona_consistency_score)


METRIC = JudgedMetric(
    title="PERSONA CONSISTENCY",
    value_label="Persona Consistency",
    scale=(1, 5),
    integer_scale=True,
    requires=("query", "traits"),
    judgment=PersonaConsistencyJudgment,
    prompt=prompt,
    measure=measure,
    verify=verify,
    on_empty=lambda sample: PersonaConsistencyJudgment(
        persona_consistency_score=1, tailoring_notes="empty response"
    ),
    preferred_judge="anthropic/claude-opus-4-5",
)
