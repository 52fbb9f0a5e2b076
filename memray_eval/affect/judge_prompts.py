"""Asks a judge model for the emotion in a message, and turns its answer into a distribution."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from memray_eval.affect.labels import EKMAN, Distribution
from memray_eval.affect.traits import Frame
from memray_eval.types import Message, Sample

Probability = Annotated[float, Field(ge=0, le=1)]

RUBRIC = """
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


def judge_emotion_messages(sample: Sample, frame: Frame) -> tuple[Message, ...]:
    """The rubric, the query, and the user's own earlier turns, in the frame that every judge call
    has."""
    earlier = "\n".join(turn.content for turn in sample.history if turn.role == "user") or "(none)"
    return frame(RUBRIC, {"EARLIER": earlier, "QUERY": sample.query})


def from_emotion(judgment: EmotionJudgment) -> Distribution:
    """The probabilities, made to sum to 1; uniform where all are 0."""
    return EKMAN.normalised([getattr(judgment, label) for label in EKMAN.labels])
