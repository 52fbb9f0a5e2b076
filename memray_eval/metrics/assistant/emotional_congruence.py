"""Emotional congruence: does the tone answer the emotions that were detected in the user? Source:
seed 000, metric 5.

One rubric score from 1 to 5, given the distribution over emotions, the message and the response. An
empty response scores 1: nothing was answered."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import judge_silence, read_score, show, with_anchors
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    5: "the tone clearly answers the dominant emotions, and as strongly as they are felt",
    4: "it fits, with an emotion or an intensity slightly off",
    3: "mixed: some signals are answered and others missed or flattened",
    2: "most signals are missed",
    1: "the tone contradicts the signals or ignores them altogether",
}
RUBRIC = with_anchors(
    """
Score from 1 to 5 how well the tone of the response fits what the user feels. EMOTION gives the probability of each emotion, as
detected in the user's speech and text; QUERY is what the user wrote.
{anchors}
Weigh intensity: deep sadness asks for gentle, validating words and not for cheer; mild unease needs no drama; a mostly neutral
user needs a plain, friendly tone. Count only emotions that the distribution or the message supports, never ones you would
expect. Judge tone and emotional framing alone: whether the advice is medically right is scored elsewhere.
First quote in evidence the words of the response that carry its tone, exactly. Name in matched_emotions the emotions that the tone
answers, in mismatched_emotions those that it misses or clashes with, by their names in EMOTION if it has them. Then say in
tone_notes in a sentence or two what decides the score; then give emotional_congruence_score.
""",  # noqa: E501
    ANCHORS,
)


class EmotionalCongruenceJudgment(BaseModel):
    """How well the tone fits the user's emotions."""

    evidence: list[str] = Field(description="Exact quotes from the response.")
    matched_emotions: list[str]
    mismatched_emotions: list[str]
    tone_notes: str
    emotional_congruence_score: int = Field(ge=1, le=5)


def prompt(sample: Sample, response: Response) -> JudgePrompt:
    shares = sorted(sample.emotion.items(), key=lambda item: -item[1])
    lines = "\n".join(f"{label}: {share:.2f}" for label, share in shares)
    return JudgePrompt(RUBRIC, {"EMOTION": lines, **show(sample, response, "query", "response")})


METRIC = JudgedMetric(
    title="EMOTIONAL CONGRUENCE (TONE ALIGNMENT)",
    value_label="Congruence",
    scale=(1, 5),
    integer_scale=True,
    requires=("query", "emotion"),
    judgment=EmotionalCongruenceJudgment,
    prompt=prompt,
    measure=read_score("emotional_congruence_score"),
    on_empty=judge_silence(EmotionalCongruenceJudgment, emotional_congruence_score=1),
    verify=verify_quotes("evidence"),
    version=2,
    anchors=ANCHORS,
    preferred_judge="openai/gpt-4o",
)
