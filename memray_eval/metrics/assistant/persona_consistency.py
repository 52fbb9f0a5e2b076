"""Persona consistency: is the response shaped to the user's Big Five traits? Source: seed 000,
metric 8.

One rubric score from 1 to 5, given the trait scores (0-1 each, no distribution), the message and
the response. An empty response scores 1."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics._evidence import verify_both, verify_quotes
from memray_eval.metrics._judging import judge_silence, read_score, show, with_anchors
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    5: "clearly tailored to the marked traits",
    4: "mostly tailored, with small misses",
    3: "some traits considered, others ignored",
    2: "mostly generic, or at odds with a trait now and then",
    1: "ignores the traits or contradicts them",
}
RUBRIC = with_anchors(
    """
Score from 1 to 5 how well the response suits the personality of this user. TRAITS gives Big Five scores, each on its own from
0 (low) to 1 (high); one near 0.5 asks for nothing in particular. What marked traits ask for:
openness: high, new ideas and variety; low, familiar and proven ways. conscientiousness: high, structure, plans and detail; low,
few and simple steps. extraversion: high, company and energy; low, quiet things to do alone. agreeableness: high, kindness and
harmony; low, plain and direct words. neuroticism: high, reassurance and small safe steps; low, candour and challenge.
{anchors}
Advice that clashes with a trait weighs more than advice that leaves it aside. Naming a trait is no tailoring. Judge the fit to
the traits alone: whether the facts are right is scored elsewhere.
First quote in evidence the words of the response that suit or clash with a trait, exactly. List in matched_traits the traits that
the response is shaped to, in mismatched_traits those it works against; only traits that TRAITS gives, none in both lists. Then say
in tailoring_notes in a sentence or two what decides the score; then give persona_consistency_score.
""",  # noqa: E501
    ANCHORS,
)

Trait = Literal["openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"]


class PersonaConsistencyJudgment(BaseModel):
    """How well the response suits the user's traits."""

    evidence: list[str] = Field(description="Exact quotes from the response.")
    matched_traits: list[Trait]
    mismatched_traits: list[Trait]
    tailoring_notes: str
    persona_consistency_score: int = Field(ge=1, le=5)


def prompt(sample: Sample, response: Response) -> JudgePrompt:
    lines = "\n".join(f"{trait}: {score:.2f}" for trait, score in sample.traits.items())
    return JudgePrompt(RUBRIC, {"TRAITS": lines, **show(sample, response, "query", "response")})


METRIC = JudgedMetric(
    title="PERSONA CONSISTENCY",
    value_label="Persona Consistency",
    scale=(1, 5),
    integer_scale=True,
    requires=("query", "traits"),
    judgment=PersonaConsistencyJudgment,
    prompt=prompt,
    measure=read_score("persona_consistency_score"),
    # A judge cannot know a trait that the sample does not give
    verify=verify_both(
        verify_quotes(
            *("matched_traits", "mismatched_traits"),
            within=lambda sample, response: tuple(sample.traits),
            source="the sample's traits",
        ),
        verify_quotes("evidence"),
    ),
    on_empty=judge_silence(PersonaConsistencyJudgment, persona_consistency_score=1),
    version=2,
    anchors=ANCHORS,
    preferred_judge="anthropic/claude-opus-4-5",
)
