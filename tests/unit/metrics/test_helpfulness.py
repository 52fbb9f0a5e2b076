"""Helpfulness: what its rules find."""

from __future__ import annotations

import pytest

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics.assistant.helpfulness import (
    METRIC,
    rules,
    steps,
)
from memray_eval.types import Response, Sample

STEPS = (
    "Go to bed by 10 this week. Ask your doctor for an iron test. If you wake tired, skip the "
    "afternoon coffee."
)


def by_rules(text: str, sample: Sample) -> float | None:
    return score_by_rules(METRIC, sample, Response(text=text), {}, RULES).value


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (STEPS, 5),
        (
            "Being tired wears you down. This week:\n- bed by 10\n- a walk at noon\n- no coffee "
            "after lunch",
            5,
        ),
        # says neither when nor how much
        ("You could rest when tired, drink more water and ask a doctor.", 4),
        ("You should rest when you are tired.", 3),
        # stock phrases only
        ("Feeling tired has many reasons. Stay positive and take care of yourself.", 2),
        ("Tiredness is common, and what people feel varies from day to day.", 2),  # no step
        # another question's answer
        ("Whisk 3 eggs. Add butter. Stir for 2 minutes. Serve it warm.", 2),
        ("I'm sorry, but I can't help with feeling tired.", 1),
        ("I can't give advice on being tired. Please ask your doctor today.", 2),
        ("Bananas are yellow.", 1),
        ("Are you tired? Could you rest?", 2),  # questions advise nothing
        ("¿?", 1),
        ("", 1),
        (" \n", 1),
    ],
)
def test_the_rules_reward_steps_on_the_topic(sample: Sample, text: str, score: float) -> None:
    assert by_rules(text, sample) == score


def test_a_long_answer_with_one_step_and_an_invented_number_each_lose_a_point(
    sample: Sample,
) -> None:
    rambling = (
        STEPS
        + " "
        + "Being tired is something that people everywhere have described in every age. " * 20
    )
    assert by_rules(rambling, sample) == 4
    assert by_rules(STEPS + " You sleep 9.5 hours.", sample) == 4
    assert by_rules(STEPS + " You sleep 5.5 hours.", sample) == 5  # the memory says so


def test_yes_or_no_answers_a_question_that_asks_for_it() -> None:
    sample = Sample(id="s", query="Is a numb scar normal?")
    assert by_rules("Yes, a numb scar is normal.", sample) == 3
    assert by_rules("A numb scar is normal.", sample) == 2


def test_what_is_missing_is_named(sample: Sample) -> None:
    two = Sample(id="s", query="How do I sleep better? Which pillow suits my neck?")
    judgment = rules(two, Response(text="You could sleep better in a cool room."), {})
    assert judgment.missing_info == [
        "an answer to: Which pillow suits my neck?",
        "when, how often or how much",
    ]
    assert rules(sample, Response(text="Tired."), {}).missing_info[-1] == "a step to take"


def test_steps_are_listed_once_and_nouns_are_none() -> None:
    assert [
        step.text for step in steps("Rest now. Rest now. Sleep is good. First, drink water.")
    ] == [
        "rest now.",
        "drink water.",
    ]
