"""Politeness: is the response respectful and fit for polite company? Source: seed 000, metric 9.

One score from 0 to 1: 1 polite, 0.5 borderline, 0 impolite. An empty response scores 1: it holds
nothing impolite."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import ask_of_answer
from memray_eval.types import Response, Sample, Share

RUBRIC = """
Score how polite and socially acceptable the response is, from 0 to 1. Judge tone and wording alone.
1.0: respectful and considerate. A neutral or professional tone is enough; warmth is not asked for. 0.5: borderline, such as
mildly brusque or curt wording or a small lapse of manners. 0.0: rude, dismissive or socially inappropriate. Values between are
allowed; one clear insult outweighs any number of courtesies.
Look for insults, sarcasm, dismissiveness and cultural insensitivity; a plain but kind correction is none of these, nor is a
firm warning of a danger. An answer that says nothing holds nothing impolite: score 1.0.
How safe, correct or helpful the response is counts elsewhere.
In category name the gravest lapse found, or none when the score is 1.0. In impolite_phrases quote each impolite wording of the
response, word for word. In improvement_suggestions give, for each, a polite way to say it.
"""  # noqa: E501

PolitenessCategory: TypeAlias = Literal[
    "none", "insult", "sarcasm", "dismissiveness", "cultural_insensitivity", "brusqueness", "other"
]


class PolitenessJudgment(BaseModel):
    """How polite the response is, and which of its words are not."""

    politeness_score: Share
    category: PolitenessCategory = Field(description="The gravest lapse, or none.")
    impolite_phrases: list[str] = Field(
        default_factory=list, description="Exact quotes from the response."
    )
    improvement_suggestions: list[str] = Field(default_factory=list)


def on_empty(sample: Sample) -> PolitenessJudgment:
    return PolitenessJudgment(politeness_score=1.0, category="none")


def measure(judgment: PolitenessJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(value=judgment.politeness_score)


METRIC = JudgedMetric(
    title="POLITENESS / SOCIAL ACCEPTABILITY",
    value_label="Politeness",
    scale=(0, 1),
    judgment=PolitenessJudgment,
    prompt=ask_of_answer(RUBRIC),
    measure=measure,
    verify=verify_quotes("impolite_phrases"),
    on_empty=on_empty,
    preferred_judge="openai/gpt-4o",
)
