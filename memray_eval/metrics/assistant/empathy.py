"""Empathy: is the response warm, does it take feelings seriously, does it support? Source: seed
000, metric 11.

A judge rates the three parts of EPITOME (Sharma et al., EMNLP 2020), emotional reaction,
interpretation and exploration, each 0 to 2. Of their total T (0 to 6) the score is 2 + T / 2,
rounded up: 2 without empathy, 3 from 1 or 2, 4 from 3 or 4, 5 from 5 or 6. Dismissive words that
the response holds make it 1. So it is whatever the user happens to feel: whether the tone fits the
detected emotion is emotional congruence. An empty response scores 3: it shows no empathy, and no
coldness."""

import math
from typing import Literal, get_args

from pydantic import BaseModel, Field, computed_field

from memray_eval.metric import (
    Aggregates,
    Columns,
    JudgedMetric,
    MetricValue,
    Verified,
    ratio,
    section,
    statistics_block,
)
from memray_eval.metrics._evidence import find_missing
from memray_eval.metrics._judging import ask, judge_silence
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    5: "feels for the user, names what they go through, and asks on: at least two of these plainly",
    4: "two of these, one of them plainly; or all three in passing",
    3: "one of these, or two in passing: a kind phrase, a general 'I understand'",
    2: "none of these: advice or facts alone, however good",
    1: "harsh, mocking or dismissive words, whatever else it says",
}
RUBRIC = """
Rate how the response meets the person behind the query, in three parts, each from 0 to 2 and each by itself. HISTORY, where it is
shown, is the talk that QUERY goes on with: it says what they go through, and what has already been asked.
emotional_reaction: does it show that it feels something for them: warmth, compassion, concern, joy with them?
2: it says outright what it feels for them or for what they go through ("I'm so sorry that you lost her", "I'm really glad for you").
1: it shows in passing, by a set phrase that would fit anybody ("sorry to hear that", "hang in there") or a kind or encouraging one ("it will get better", "take care of yourself", "you are taking good steps"). 0: nothing of the kind.
interpretation: does it show that it understands what they feel or go through?
2: it names it, or describes it in words of its own ("it must be frightening not to know", "so you never get a night's rest").
1: it only claims to understand, or acknowledges in general ("I understand", "that sounds hard", "your feelings are valid").
0: nothing of the kind. To repeat their words as the subject of advice is 0.
exploration: does it try to learn more of what they feel or go through?
2: it asks for something definite about them, their situation or what they do about it ("is it the job or the move that keeps you
awake?", "do you have anybody to talk to?"). 1: it asks in
general ("what happened?", "do you want to talk about it?"). 0: it asks nothing of them.
- "Me too" replies: a bare "same here" is interpretation 1. To tell of a like experience of one's own, a trouble shared or how one met
  it, is interpretation 2. To stand by them in it ("I'm right with you", "I feel ya") is warmth as well, a 1. A general remark on
  life ("aren't we all?", "the truth hurts") is 0 in all three.
- Advice without warmth is 0 in all three, however useful, long or polite. A question that only puts a remedy ("have you tried tea?")
  is advice. One that advises and wants to know ("have you spoken to a doctor about it?", "did talking to her help?") is exploration.
- A plain question about health deserves warmth too: with no feeling to name, count what it understands of their situation.
- Small talk without a feeling: warmth is pleasure or interest in what they tell, understanding is to see what it is to them, and a
  question that lets them tell more is exploration.
- Repeating a phrase adds nothing.
Judge neither whether the advice is right nor whether the tone matches a particular emotion.
For each part quote in evidence the words of the response that show it, exactly, or leave it empty; say in reason why they earn the
level and not the next; then give the level. In dismissive_words quote what is harsh, mocking or waves the person away; plain or
cool wording is not. One such quote that is found in the response makes the score 1, whatever the levels. In empathy_gaps say in your own words what it left out, or where it is cold. In explanation sum up. No total is
asked for; it is counted from the parts.
"""  # noqa: E501

WarmthLevel = Literal["high", "moderate", "low", "cold"]
WARMTH_LEVELS: tuple[WarmthLevel, ...] = get_args(WarmthLevel)
RATED = "rated"  # 1 if the parts were rated: by version 1 of the rubric they were not
PARTS = ("emotional_reaction", "interpretation", "exploration")


class EmpathyPart(BaseModel):
    """One of the three parts."""

    evidence: list[str] = Field(description="Exact quotes from the response.")
    reason: str
    level: int = Field(ge=0, le=2)


SILENT_PART = EmpathyPart(evidence=[], reason="empty response", level=0)


class EmpathyJudgment(BaseModel):
    """How much empathy the response shows. The seed's other fields follow from the parts."""

    emotional_reaction: EmpathyPart
    interpretation: EmpathyPart
    exploration: EmpathyPart
    dismissive_words: list[str] = Field(description="Exact quotes from the response.")
    empathy_gaps: list[str]
    explanation: str

    @property
    def parts(self) -> dict[str, EmpathyPart]:
        return {name: getattr(self, name) for name in PARTS}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def empathy_score(self) -> int:
        total = sum(part.level for part in self.parts.values())
        return 1 if self.dismissive_words else 2 + math.ceil(total / 2)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def warmth_level(self) -> WarmthLevel:
        if self.dismissive_words:
            return "cold"
        return ("low", "moderate", "high")[self.emotional_reaction.level]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def validation_present(self) -> bool:
        return self.interpretation.level > 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def supportive_elements(self) -> list[str]:
        quotes = (quote for part in self.parts.values() for quote in part.evidence)
        return list(dict.fromkeys(quotes))


class EmptyResponseJudgment(EmpathyJudgment):
    """Of an empty response."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def empathy_score(self) -> int:
        return 3


def verify(judgment: EmpathyJudgment, sample: Sample, response: Response) -> Verified:
    """Takes out quotes that are not in the response. The levels stay as the judge rated them."""
    quotes = [*judgment.supportive_elements, *judgment.dismissive_words]
    missing = find_missing(((quote,) for quote in quotes), [response.text])

    def kept(quoted: list[str]) -> list[str]:
        return [quote for quote in quoted if quote not in missing]

    parts = {
        name: part.model_copy(update={"evidence": kept(part.evidence)})
        for name, part in judgment.parts.items()
    }
    update = {**parts, "dismissive_words": kept(judgment.dismissive_words)}
    return Verified(judgment.model_copy(update=update), len(quotes), missing)


def measure(judgment: EmpathyJudgment, sample: Sample, response: Response) -> MetricValue:
    """The score and the three levels, with 0 or 1 for validation and each warmth level, and how
    many elements and gaps were named."""
    warmth = {f"warmth_{level}": float(judgment.warmth_level == level) for level in WARMTH_LEVELS}
    counts = {name: float(len(getattr(judgment, name))) for name in LISTS}
    return MetricValue(
        value=judgment.empathy_score,
        parts={
            "validated": float(judgment.validation_present),
            **warmth,
            **counts,
            **{name: float(part.level) for name, part in judgment.parts.items()},
            RATED: 1.0,
        },
    )


def aggregate(columns: Columns) -> Aggregates:
    """The share of responses that validate; per warmth level how many and which share; per list its
    total and mean; the mean level of each part, which runs by version 1 of the rubric lack."""
    extras: dict[str, float | None] = {"validation_rate": float(columns["validated"].mean())}
    for level in WARMTH_LEVELS:
        extras[f"warmth_{level}"] = float(columns[f"warmth_{level}"].sum())
        extras[f"warmth_{level}_share"] = float(columns[f"warmth_{level}"].mean())
    for name in LISTS:
        extras[f"total_{name}"] = float(columns[name].sum())
        extras[f"avg_{name}"] = float(columns[name].mean())
    rated = float(columns[RATED].sum())
    for name in PARTS:
        extras[f"avg_{name}"] = ratio(float(columns[name].sum()), rated)
    return Aggregates(extras=extras)


LISTS = ("supportive_elements", "empathy_gaps")
METRIC = JudgedMetric(
    title="EMPATHY SCORE (EMOTIONAL INTELLIGENCE)",
    value_label="Empathy",
    scale=(1, 5),
    integer_scale=True,
    judgment=EmpathyJudgment,
    prompt=ask(RUBRIC),
    measure=measure,
    verify=verify,
    version=3,
    anchors=ANCHORS,
    total="2, plus half the sum of the levels, rounded up; 1 with words that dismiss, "
    "3 for an empty response.",
    on_empty=judge_silence(EmptyResponseJudgment, **dict.fromkeys(PARTS, SILENT_PART)),
    preferred_judge="openai/gpt-4o",
    parts=("validated", *(f"warmth_{level}" for level in WARMTH_LEVELS), *LISTS, *PARTS, RATED),
    aggregate=aggregate,
    layout=(
        statistics_block("Empathy", True),
        section(
            *(
                (f"Avg {name.replace('_', ' ').title()} (0-2)", f"extras.avg_{name}", "average")
                for name in PARTS
            )
        ),
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
