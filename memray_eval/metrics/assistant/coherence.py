"""Coherence: is the response well formed and easy to follow, whatever it says? Source: seed 000,
metric 4.

One rubric score from 1 to 5 over logical flow, clarity, consistency, organisation and staying on
topic. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import ask_of_answer
from memray_eval.types import Response, Sample

RUBRIC = """
Score how well the response is written, from 1 to 5. Weigh five things: ideas follow from each other; the wording is clear; tone
and reasoning stay the same throughout; it is well organised, with smooth transitions; it keeps to the question without detours.
Judge language alone: whether the content is right is scored elsewhere.
5: natural, clear and smooth, nothing repeated. 4: reads well, with small flaws. 3: understandable, with flaws that one notices.
2: hard to follow, sentences poorly connected. 1: very hard to understand, or severe errors throughout.
In grammar_issues quote the words of the response that are wrong, exactly. In strengths name what it does well.
"""  # noqa: E501


class CoherenceJudgment(BaseModel):
    """How well the response is written."""

    coherence_score: int = Field(ge=1, le=5)
    explanation: str
    grammar_issues: list[str] = Field(
        default_factory=list, description="Exact quotes from the response."
    )
    strengths: list[str] = Field(default_factory=list)


def measure(judgment: CoherenceJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(value=judgment.coherence_score)


# Grammar is none of the five things that the score weighs
METRIC = JudgedMetric(
    title="RESPONSE COHERENCE (LLM RUBRIC SCORING)",
    value_label="Coherence",
    scale=(1, 5),
    integer_scale=True,
    judgment=CoherenceJudgment,
    prompt=ask_of_answer(RUBRIC),
    measure=measure,
    verify=verify_quotes("grammar_issues", decides=False),
    on_empty=lambda sample: CoherenceJudgment(coherence_score=1, explanation="empty response"),
    preferred_judge="openai/gpt-4o",
)
