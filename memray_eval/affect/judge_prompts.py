"""Asks a judge model for the emotion in a message and for the traits of its author."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from memray_eval.affect.labels import EKMAN, Distribution
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import BIG_FIVE, Sample

FLAT = 0.5  # a trait of which nothing is known
Probability = Annotated[float, Field(ge=0, le=1)]

EMOTION_RUBRIC = """
How probable is each emotion in the user who wrote QUERY? EARLIER holds what they wrote before; it matters only as far as it
shows how they feel now. Give each of anger, disgust, fear, joy, neutral, sadness and surprise a probability; together they sum
to 1. Go by how it is said and by what the user says of themselves, not by how you would feel in their place: a calm question
about an illness is neutral. Worry counts as fear, disappointment as sadness, annoyance as anger, gratitude and hope as joy.
Where nothing shows, neutral has most.
"""  # noqa: E501


class EmotionJudgment(BaseModel):
    """The emotion of a message, as probabilities that sum to 1."""

    anger: Probability
    disgust: Probability
    fear: Probability
    joy: Probability
    neutral: Probability
    sadness: Probability
    surprise: Probability


def from_emotion(judgment: EmotionJudgment) -> Distribution:
    """Scales the probabilities to sum to 1; uniform if all are 0."""
    return EKMAN.normalised([getattr(judgment, label) for label in EKMAN.labels])


class TraitEstimate(BaseModel):
    """One trait as far as the user's own words show it."""

    score: Probability
    confidence: Probability
    evidence: str


class BigFiveJudgment(BaseModel):
    """What a user's words show of their Big Five traits."""

    openness: TraitEstimate
    conscientiousness: TraitEstimate
    extraversion: TraitEstimate
    agreeableness: TraitEstimate
    neuroticism: TraitEstimate


TRAITS_RUBRIC = """
Estimate the Big Five traits of the user who wrote QUERY and EARLIER, each by itself, as a score from 0 (very low) over 0.5
(like most people) to 1 (very high).
openness: curious about ideas and new things, against at home in the familiar. conscientiousness: orderly, planning, keeping at
it, against easy-going and careless of plans. extraversion: sociable, lively, talkative, against quiet and reserved.
agreeableness: trusting, warm, giving way, against blunt, critical and competitive. neuroticism: quick to worry and be upset,
against calm and even.
A few messages are weak evidence of a personality. A mood is not a trait: one who is afraid for a good reason is not thereby
neurotic. What a question is about says little; how it is asked says more. Do not go by a guess at age, sex, origin, illness or
occupation.
confidence is how sure the words make you, from 0 (they show nothing: score 0.5) over 0.3 (one passing sign) to 1 (many plain
signs that agree). For a single short message no confidence above 0.5 is earned. In evidence quote the words that you go by, or
say that there are none.
"""  # noqa: E501


def from_traits(judgment: BigFiveJudgment) -> dict[str, float]:
    """Returns the traits that a judge saw anything of. Each score is drawn to FLAT by its lack of
    confidence (FLAT + confidence x (score - FLAT)), so that weak evidence makes no marked trait: a
    model's reading of a few messages correlates with questionnaires by about 0.29."""
    estimates: dict[str, TraitEstimate] = {trait: getattr(judgment, trait) for trait in BIG_FIVE}
    return {
        trait: FLAT + estimate.confidence * (estimate.score - FLAT)
        for trait, estimate in estimates.items()
        if estimate.confidence > 0
    }


def judge_affect_prompt(rubric: str, sample: Sample) -> JudgePrompt:
    """Asks a judge by a rubric of the query and the user's own earlier turns (not the
    assistant's)."""
    earlier = "\n".join(turn.content for turn in sample.history if turn.role == "user") or "(none)"
    return JudgePrompt(rubric, {"EARLIER": earlier, "QUERY": sample.query})
