"""Logical consistency: what its rules find, its counts."""

from __future__ import annotations

import pytest

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics.assistant.logical_consistency import (
    METRIC,
    rules,
)
from memray_eval.text_processing.matching import contains_phrase
from memray_eval.types import Response, Sample


def by_rules(text: str, sample: Sample) -> float | None:
    return score_by_rules(METRIC, sample, Response(text=text), {}, RULES).value


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Drink more water, because dry air makes you lose fluid. Avoid coffee.", 5),
        ("Avoid coffee. Drink more coffee to stay awake.", 3),
        ("Cut down on coffee, and then drink plenty of coffee.", 3),
        ("You should exercise daily. Do not exercise.", 3),
        ("Eat high-calorie foods. Eat low-calorie foods.", 3),
        ("Milk is safe. Later you learn that aspirin is safe. Milk is not safe.", 3),
        ("Aspirin is dangerous. Aspirin is safe.", 3),
        ("Sleep more this week. Try to wake up earlier.", 3),  # the seed's example
        ("Avoid coffee. Avoid salt. Drink more coffee. Eat more salt.", 2),
        ("Avoid coffee. Avoid salt. Avoid sugar. Drink coffee. Eat salt. Eat sugar.", 1),
        ("You're tired, so drink more coffee.", 4),  # the seed's example
        ("This tea always works.", 4),
        ("The rash is harmless because it is harmless.", 4),
        ("My uncle drank it and got well, which shows that it heals.", 4),
        ("You felt ill after lunch, so it must be the fish.", 4),
        ("Avoid coffee. Drink more coffee. This tea never fails.", 2),
        ("😀 咖啡", 5),
        ("", 5),
        ("  ", 5),
    ],
)
def test_the_rules_take_points_for_contradictions_and_flaws(
    sample: Sample, text: str, score: float
) -> None:
    assert by_rules(text, sample) == score


@pytest.mark.parametrize(
    "text",
    [
        "Drink coffee in the morning. Avoid coffee after 2 pm.",  # different times
        "Avoid alcohol. If you drink alcohol, have a meal first.",  # a case
        "You can't sleep. You should sleep.",  # a report
        "You don't drink water. Drink more water.",
        "Don't skip breakfast. Eat breakfast.",  # two negations
        "Should you avoid coffee? Drink coffee.",  # a question
        "Drink water instead of coffee. Avoid coffee.",
        "Choose low-fat milk. Drink milk.",  # another thing
        "Sleep more. Wake up earlier, and go to bed earlier.",
        "Nothing is guaranteed.",
        "Don't stop your tablet. Take your tablet with food.",
    ],
)
def test_what_only_looks_like_a_contradiction_is_none(sample: Sample, text: str) -> None:
    judgment = rules(sample, Response(text=text), {})
    assert (judgment.contradictions, judgment.reasoning_issues, judgment.consistency_score) == (
        [],
        [],
        5,
    )


def test_the_rules_quote_the_response_and_name_sound_arguments(sample: Sample) -> None:
    text = "Avoid **coffee**. Rest, because rest heals muscle. Drink more coffee!"
    judgment = rules(sample, Response(text=text), {})
    [found] = judgment.contradictions
    assert (found.statement1, found.statement2) == ("Avoid coffee", "Drink more coffee")
    assert all(contains_phrase(text, quote) for quote in (found.statement1, found.statement2))
    assert judgment.consistent_elements == ["Rest, because rest heals muscle."]
