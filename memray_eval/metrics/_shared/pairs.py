"""What metrics of pairs share: the judgment, its figures, and when a pair is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue, means_of, section
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.types import Message, Response, Sample, pair_of

# What a verdict is for, as parts of a score: one of them is 1
FIRST, TIE, SECOND = "first", "tie", "second"
VALUES = {FIRST: 1.0, TIE: 0.5, SECOND: 0.0}
JUDGE = "anthropic/claude-opus-4-5"  # whom `judge: auto` asks

# A rubric's text, a pair's sample, and the answer that is shown first -> what a judge is asked
Ask = Callable[[str, Sample, Response], tuple[Message, ...]]


class PreferenceJudgment(BaseModel):
    """Which of the two answers is better."""

    evidence: list[str] = Field(description="Exact quotes of either answer that decide.")
    reason: str = Field(description="Why, in one or two sentences, by the rubric.")
    preferred: Literal["first", "tie", "second"]


def other_text(sample: Sample) -> str:
    """The answer that is shown second; "" where the sample is no pair."""
    pair = pair_of(sample)
    return "" if pair is None else pair.other


def applies(sample: Sample) -> str | None:
    """The reason why a sample is not judged: it is no pair, or one of the two gave no answer."""
    pair = pair_of(sample)
    if pair is None:
        return "the sample is no pair of answers; `memray-eval pairwise RUN_A RUN_B` makes pairs"
    missing = (
        f"{answer.candidate}: {answer.kind} {answer.why}".strip() for answer in pair.unanswered
    )
    return "no answer to compare: " + "; ".join(missing) if pair.unanswered else None


def measure(judgment: Any, sample: Sample, response: Response) -> MetricValue:
    preferred = judgment.preferred
    return MetricValue(VALUES[preferred], {part: float(part == preferred) for part in VALUES})


def pairwise_metric(rubric: str, ask: Ask, **fields: Any) -> JudgedMetric:
    """A metric whose judge says which of a pair's answers is better by a rubric. Its value is that
    of the answer shown first: 1 if it is preferred, 0.5 for a tie, 0 if the other is. A pair of
    which one has no answer is not judged."""
    shares = {
        FIRST: "Answer shown first preferred",
        TIE: "No preference",
        SECOND: "Answer shown second preferred",
    }
    return JudgedMetric(
        value_label="Preference",
        scale=(0, 1),
        applies=applies,
        parts=tuple(VALUES),
        aggregate=means_of(*VALUES),
        layout=(
            section(
                *((label, f"extras.{part}", "percent") for part, label in shares.items()),
                ("Total Samples", "n_scored", "count"),
            ),
        ),
        judgment=PreferenceJudgment,
        prompt=lambda sample, response: ask(rubric, sample, response),
        prompt_with=ask,
        measure=measure,
        on_empty=lambda sample: PreferenceJudgment(
            evidence=[], reason="an answer is empty", preferred=TIE
        ),
        verify=verify_quotes(
            "evidence",
            within=lambda sample, response: (response.text, other_text(sample)),
            source="the answers",
        ),
        preferred_judge=JUDGE,
        **fields,
    )
