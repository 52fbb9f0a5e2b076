"""Empathy: what its rules find, its empty response, its aggregates."""

from __future__ import annotations

import numpy as np
import pytest

from memray_eval.metrics.assistant import empathy
from memray_eval.metrics.assistant.empathy import METRIC, EmpathyJudgment, WarmthLevel
from memray_eval.types import Response, Sample

ASKED = Sample(id="s", query="I feel tired all day. What should I do?")


def by_rules(text: str) -> EmpathyJudgment:
    return empathy.rules(ASKED, Response(text=text), {})


def judged(
    level: WarmthLevel, score: int, elements: int, gaps: int, *, validates: bool
) -> EmpathyJudgment:
    return EmpathyJudgment(
        empathy_score=score,
        warmth_level=level,
        validation_present=validates,
        supportive_elements=["warm words"] * elements,
        empathy_gaps=["gap"] * gaps,
        explanation="",
    )


@pytest.mark.parametrize(
    ("text", "score", "level", "validates"),
    [
        (
            "I understand this must be challenging for you. It's completely normal to feel tired "
            "after that.",
            5,
            "high",
            True,
        ),
        (
            "That sounds exhausting. An earlier bedtime could help, and so could less coffee.",
            4,
            "moderate",
            True,
        ),
        ("Let's look at your sleep. Let's cut the coffee as well.", 4, "moderate", False),
        ("A good start is an earlier bedtime.", 3, "low", False),
        (
            "Consider a short walk after lunch, which may help. You could try less coffee.",
            3,
            "low",
            False,
        ),
        # one warm sentence in ten is sparse
        ("I'm sorry to hear that. " + "Drink water. " * 9, 3, "low", True),
        ("You should follow these steps to fix your sleep issues.", 2, "cold", False),
        ("Caffeine has a half-life of five hours.", 2, "cold", False),
        ("Stop complaining. It is your own fault that you sleep badly.", 1, "cold", False),
        ("That sounds hard. I'm so glad you asked. But you are being dramatic.", 3, "low", True),
        ("Du solltest früher schlafen. 🌙", 2, "cold", False),
    ],
)
def test_the_rules_count_warm_and_cold_sentences(
    text: str, score: int, level: str, validates: bool
) -> None:
    judgment = by_rules(text)
    assert (judgment.empathy_score, judgment.warmth_level, judgment.validation_present) == (
        score,
        level,
        validates,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Sweet porridge is a lot of sugar.",
        "Courier work is hard on the knee.",
        "Taken together, these point to low iron.",
        "Say sorry in the morning.",
        "The clinic will get over it, so ring in sick.",
    ],
)
def test_words_that_only_look_warm_are_not_supportive(text: str) -> None:
    assert by_rules(text).supportive_elements == []


def test_the_rules_quote_the_warm_sentences_and_name_the_gaps() -> None:
    judgment = by_rules("Let's start small. Drink water.")
    assert judgment.supportive_elements == ["Let's start small."]
    assert judgment.empathy_gaps == ["feelings are not validated"]


def test_the_aggregates_are_rates_counts_and_averages() -> None:
    judgments = [
        judged("high", 5, 3, 0, validates=True),
        judged("high", 4, 2, 0, validates=True),
        judged("moderate", 4, 1, 1, validates=True),
        judged("cold", 2, 0, 2, validates=False),
    ]
    parts = [empathy.measure(judgment, ASKED, Response(text="x")).parts for judgment in judgments]
    assert set(parts[0]) == set(METRIC.parts)
    extras = empathy.aggregate(
        {name: np.array([part[name] for part in parts]) for name in METRIC.parts}
    ).extras
    assert extras == {
        "validation_rate": 0.75,
        "warmth_high": 2,
        "warmth_high_share": 0.5,
        "warmth_moderate": 1,
        "warmth_moderate_share": 0.25,
        "warmth_low": 0,
        "warmth_low_share": 0,
        "warmth_cold": 1,
        "warmth_cold_share": 0.25,
        "total_supportive_elements": 6,
        "avg_supportive_elements": 1.5,
        "total_empathy_gaps": 3,
        "avg_empathy_gaps": 0.75,
    }
    printed = {
        line.field.removeprefix("extras.") for block in METRIC.layout[1:] for line in block.lines
    }
    # A bar prints count and share
    assert printed == {name for name in extras if not name.endswith("_share")}
