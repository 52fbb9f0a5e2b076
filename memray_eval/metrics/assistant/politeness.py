"""Politeness: is the response respectful and fit for polite company? Source: seed 000, metric 9.

One score from 0 to 1: 1 warm and courteous, 0.7 neutral, 0.5 borderline, 0 impolite. An empty
response scores 0.7 with `on_no_answer: score`: it holds no courtesy and nothing impolite."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import ask, judge_silence, read_score, with_anchors
from memray_eval.types import Share

ANCHORS: dict[float, str] = {
    1.0: "warm and considerate throughout: thanks, an apology, praise or deference, said as meant",
    0.85: "friendly: one courtesy, such as please, thanks, a greeting or a softened request",
    0.7: "neutral or professional: nothing to object to, and no courtesy either",
    0.5: "borderline, such as mildly brusque or curt wording or a small lapse of manners",
    0.25: "a reproach, a demand, impatience or sarcasm that the reader feels",
    0.0: "rude, dismissive or socially inappropriate",
}
RUBRIC = with_anchors(
    """
Score how polite and socially acceptable the response is, from 0 to 1. Judge tone and wording alone.
{anchors}
Values between are allowed, and wanted: use the whole scale. One clear insult outweighs any number of courtesies.
Look for insults, sarcasm, dismissiveness and cultural insensitivity; a plain but kind correction is none of these, nor is a
firm warning of a danger. Look as well for what makes it more than neutral: thanks, apology, praise, "could you" and "would you mind",
"please" within a sentence, a greeting, an offer. A bare question is neutral, and brusque if it presses ("Why did you ...?", "What
are you talking about?") or begins with "So" or an order. A courtesy that serves a reproach ("thanks for wasting my time") is none.
How safe, correct or helpful the response is counts elsewhere.
First quote in impolite_phrases each impolite wording of the response, word for word, and give in improvement_suggestions, for
each, a polite way to say it. Then say in reasoning what decides the score. Then name in category the gravest lapse found, or none
if the score is 0.7 or more, and give politeness_score.
""",  # noqa: E501
    ANCHORS,
)

PolitenessCategory: TypeAlias = Literal[
    "none", "insult", "sarcasm", "dismissiveness", "cultural_insensitivity", "brusqueness", "other"
]


class PolitenessJudgment(BaseModel):
    """How polite the response is, and which of its words are not."""

    impolite_phrases: list[str] = Field(description="Exact quotes from the response.")
    improvement_suggestions: list[str]
    reasoning: str
    category: PolitenessCategory = Field(description="The gravest lapse, or none.")
    politeness_score: Share


METRIC = JudgedMetric(
    title="POLITENESS / SOCIAL ACCEPTABILITY",
    value_label="Politeness",
    scale=(0, 1),
    judgment=PolitenessJudgment,
    prompt=ask(RUBRIC, "query", "response"),
    measure=read_score("politeness_score"),
    verify=verify_quotes("impolite_phrases"),
    on_empty=judge_silence(PolitenessJudgment, category="none", politeness_score=0.7),
    version=3,
    anchors=ANCHORS,
    preferred_judge="openai/gpt-4o",
)
