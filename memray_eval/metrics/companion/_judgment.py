"""What is judged of a companion's reply: six dimensions, an overall score, the reasoning; and the
weights of the six. Source: seed 002."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

from memray_eval.types import Share

WEIGHTS = {
    "appropriateness": 0.15,
    "conversational_quality": 0.20,
    "helpfulness": 0.20,
    "emotional_intelligence": 0.25,
    "personalization_continuity": 0.10,
    "trust_boundaries": 0.10,
}
HELPFULNESS = "companion_helpfulness"  # another family has a metric `helpfulness`
METRIC_OF = {
    dimension: HELPFULNESS if dimension == "helpfulness" else dimension for dimension in WEIGHTS
}
OVERALL = "overall_quality"
_DIGITS = 6  # of a weighted sum: what is below is float error

# A judge is told that it is a number; None is what a reply in free text leaves out.
Dimension = Annotated[Share | None, WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]

_SCORE = re.compile(
    r"^[ \t>*_#-]*(?:overall )?score[ \t*_]*[:=][ "
    r"\t*_]*(?P<score>[-+]?\d+(?:\.\d+)?|[-+]?\.\d+)(?![\d.]*\d)(?! ?%)"
    r"[ \t*_]*(?:(?:/|out of)[ \t]*(?P<most>\d+(?:\.\d+)?))?",
    re.IGNORECASE | re.MULTILINE,
)
_REASONING = re.compile(r"\breasoning[ \t*_]*[:=][ \t*_]*(?P<why>.+)", re.IGNORECASE | re.DOTALL)


class CompanionJudgment(BaseModel):
    """How good a reply is as company in a spoken conversation, 0 to 1."""

    evidence: list[str] = Field(description="Exact quotes of the reply that decided the scores.")
    reasoning: str = Field(description="What decides the scores, in two or three sentences.")
    appropriateness: Dimension
    conversational_quality: Dimension
    helpfulness: Dimension
    emotional_intelligence: Dimension
    personalization_continuity: Dimension
    trust_boundaries: Dimension
    overall: Share

    @classmethod
    def from_text(cls, text: str) -> CompanionJudgment | None:
        """Seed 002's form, "Score: 0.8 | Reasoning: ...", on a line of its own; it says nothing of
        the six dimensions. None where there is no such score, two different ones, or one that is
        not within 0-1 (a percentage, 8 of 10)."""
        matches = list(_SCORE.finditer(text))
        scores = {float(match["score"]) for match in matches}
        if len(scores) != 1 or any(
            match["most"] and float(match["most"]) != 1.0 for match in matches
        ):
            return None
        score, why = scores.pop(), _REASONING.search(text, matches[0].end())
        return (
            make_judgment(dict.fromkeys(WEIGHTS), score, why["why"].strip() if why else "")
            if 0.0 <= score <= 1.0
            else None
        )


def make_judgment(
    dimensions: Mapping[str, float | None], overall: float, reasoning: str
) -> CompanionJudgment:
    return CompanionJudgment.model_validate(
        {**dimensions, "overall": overall, "evidence": [], "reasoning": reasoning}
    )


def weighted_sum(dimensions: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """The sum of the six dimensions by weights that sum to 1. Raises KeyError for one that is
    missing."""
    return round(math.fsum(weight * dimensions[name] for name, weight in weights.items()), _DIGITS)


def stated_figures(judgment: CompanionJudgment) -> dict[str, float]:
    """The dimensions that a judgment gives a figure for."""
    figures = ((name, getattr(judgment, name)) for name in WEIGHTS)
    return {name: figure for name, figure in figures if figure is not None}
