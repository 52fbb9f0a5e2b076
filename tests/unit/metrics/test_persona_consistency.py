"""Persona consistency: what its rules find, and how the judge sees the traits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.metrics.assistant import persona_consistency
from memray_eval.metrics.assistant.persona_consistency import (
    PersonaConsistencyJudgment,
)
from memray_eval.types import BIG_FIVE, Response, Sample

WORRIED = {"conscientiousness": 0.2, "extraversion": 0.1, "neuroticism": 0.9}
BOLD = {"openness": 0.9, "extraversion": 0.8, "neuroticism": 0.1, "agreeableness": 0.2}
MIDDLE = dict.fromkeys(BIG_FIVE, 0.5)


def by_rules(text: str, traits: dict[str, float]) -> PersonaConsistencyJudgment:
    sample = Sample(id="s", query="What should I do this week?", traits=traits)
    return persona_consistency.rules(sample, Response(text=text), {})


@pytest.mark.parametrize(
    ("traits", "text", "score"),
    [
        (
            WORRIED,
            "This is manageable and normal. Pick just one simple thing: a quiet walk on your own.",
            5,
        ),
        (WORRIED, "This is manageable. Pick one simple thing.", 4),
        (WORRIED, "Pick one simple thing.", 3),
        (WORRIED, "Drink water.", 2),
        (
            WORRIED,
            "Join a running club, plan each meal on a schedule, and push yourself: the risk is "
            "serious.",
            1,
        ),
        (WORRIED, "Stay calm, and track all meals with a checklist.", 2),
        (
            BOLD,
            "Frankly, explore something new: join a dance class with friends and take on a "
            "challenge.",
            5,
        ),
        (BOLD, "Be gentle with yourself, stay at home, relax and stick to familiar walks.", 1),
        ({"openness": 0.9} | WORRIED, "Pick one simple thing, alone.", 4),
        (MIDDLE, "Pick one simple thing.", 3),
        (WORRIED, "🌙", 2),
    ],
)
def test_the_rules_compare_poles(traits: dict[str, float], text: str, score: int) -> None:
    assert by_rules(text, traits).persona_consistency_score == score


def test_the_rules_name_traits_matched_and_worked_against() -> None:
    judgment = by_rules("Stay calm, and track all meals with a checklist.", WORRIED)
    assert (judgment.matched_traits, judgment.mismatched_traits) == (
        ["neuroticism"],
        ["conscientiousness"],
    )


@given(st.text(), st.dictionaries(st.sampled_from(BIG_FIVE), st.floats(0, 1)))
def test_any_text_gets_a_judgment_in_the_scale(text: str, traits: dict[str, float]) -> None:
    judgment = by_rules(text, traits)
    assert 1 <= judgment.persona_consistency_score <= 5
    assert {*judgment.matched_traits, *judgment.mismatched_traits} <= set(traits)
