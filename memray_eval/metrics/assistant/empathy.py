"""Empathy: is the response warm, does it take feelings seriously, does it support? Source: seed
000, metric 11.

One rubric score from 1 to 5, whatever the user happens to feel: whether the tone fits the detected
emotion is emotional congruence. An empty response scores 3: it shows no empathy, and no coldness.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, Field

from memray_eval.metric import Aggregates, Columns, JudgedMetric, MetricValue, statistics_block
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import ask_of_answer
from memray_eval.metrics._shared.layout import section
from memray_eval.types import Response, Sample

RUBRIC = """
Score the empathy of the response from 1 to 5. Weigh three things: warmth, a friendly, caring, human voice; validation, the
user's feelings or experience are acknowledged and taken seriously ("that sounds difficult"); support, it encourages without
judging ("let's work on this together").
5: warm and genuinely human, says outright that the feelings are valid, deeply supportive. 4: generally warm and supportive,
with a mechanical phrase here and there. 3: neutral and professional, some empathy, room for more warmth. 2: cold, clinical or
like a transaction; feelings are passed over. 1: no compassion at all: harsh, dismissive or out of place.
People who ask about their health are vulnerable: a plain question deserves warmth too. Judge tone alone, neither whether the
advice is right nor whether the tone matches a particular emotion.
Set warmth_level to high, moderate, low or cold, and validation_present to whether feelings are validated anywhere. In
supportive_elements quote the warm, validating or supportive words of the response, exactly. In empathy_gaps say in your own
words what it left out, or where it is cold. In explanation sum up what decided the score.
"""  # noqa: E501

WarmthLevel = Literal["high", "moderate", "low", "cold"]
WARMTH_LEVELS: tuple[WarmthLevel, ...] = get_args(WarmthLevel)


class EmpathyJudgment(BaseModel):
    """How much empathy the response shows."""

    empathy_score: int = Field(ge=1, le=5)
    warmth_level: WarmthLevel
    validation_present: bool
    supportive_elements: list[str] = Field(
        default_factory=list, description="Exact quotes from the response."
    )
    empathy_gaps: list[str] = Field(default_factory=list)
    explanation: str


def measure(judgment: EmpathyJudgment, sample: Sample, response: Response) -> MetricValue:
    """The score, with 0 or 1 for validation and each warmth level, and how many elements and gaps
    were named."""
    warmth = {f"warmth_{level}": float(judgment.warmth_level == level) for level in WARMTH_LEVELS}
    counts = {name: float(len(getattr(judgment, name))) for name in LISTS}
    return MetricValue(
        value=judgment.empathy_score,
        parts={"validated": float(judgment.validation_present), **warmth, **counts},
    )


def aggregate(columns: Columns) -> Aggregates:
    """The share of responses that validate; per warmth level how many and which share; per list its
    total and mean."""
    extras: dict[str, float | None] = {"validation_rate": float(columns["validated"].mean())}
    for level in WARMTH_LEVELS:
        extras[f"warmth_{level}"] = float(columns[f"warmth_{level}"].sum())
        extras[f"warmth_{level}_share"] = float(columns[f"warmth_{level}"].mean())
    for name in LISTS:
        extras[f"total_{name}"] = float(columns[name].sum())
        extras[f"avg_{name}"] = float(columns[name].mean())
    return Aggregates(extras=extras)


LISTS = ("supportive_elements", "empathy_gaps")
METRIC = JudgedMetric(
    title="EMPATHY SCORE (EMOTIONAL INTELLIGENCE)",
    value_label="Empathy",
    scale=(1, 5),
    integer_scale=True,
    judgment=EmpathyJudgment,
    prompt=ask_of_answer(RUBRIC),
    measure=measure,
    verify=verify_quotes("supportive_elements"),
    on_empty=lambda sample: EmpathyJudgment(
        empathy_score=3, warmth_level="low", validation_present=False, explanation="empty response"
    ),
    preferred_judge="openai/gpt-4o",
    parts=("validated", *(f"warmth_{level}" for level in WARMTH_LEVELS), *LISTS),
    aggregate=aggregate,
    layout=(
        statistics_block("Empathy", True),
        section(("Validation Rate", "extras.validation_rate", "percent")),
        section(
            *((level.title(), f"extras.warmth_{level}", "bar") for level in WARMTH_LEVELS),
            heading="Warmth Distribution:",
        ),
        section(
            ("Total Supportive Elements", "extras.total_supportive_elements", "count"),
            ("Avg per Sample", "extras.avg_supportive_elements", "average"),
            ("Total Empathy Gaps", "extras.total_empathy_gaps", "count"),
            ("Avg per Sample", "extras.avg_empathy_gaps", "average"),
        ),
    ),
)
