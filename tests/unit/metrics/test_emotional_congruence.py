"""Emotional congruence: what its rules find, and the order in which the judge sees emotions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.metrics.assistant import emotional_congruence
from memray_eval.metrics.assistant.emotional_congruence import EmotionalCongruenceJudgment
from memray_eval.types import Response, Sample

SAD = {"sadness": 0.7, "fear": 0.2, "neutral": 0.1}
MILD = {"neutral": 0.5, "sadness": 0.3, "fear": 0.2}
AFRAID = {"anxious": 0.9, "calm": 0.1}
ANGRY = {"Anger": 0.8, "sadness": 0.2}
JOYFUL = {"joy": 0.8, "surprise": 0.2}
PLAIN = {"neutral": 0.9, "joy": 0.1}
FLAT = {
    label: 1 / 7 for label in ("anger", "disgust", "fear", "joy", "neutral", "sadness", "surprise")
}
ODD = {"nostalgia": 1.0}


def by_rules(text: str, emotion: dict[str, float]) -> EmotionalCongruenceJudgment:
    sample = Sample(id="s", query="How do I get through this week?", emotion=emotion)
    return emotional_congruence.rules(sample, Response(text=text), {})


@pytest.mark.parametrize(
    ("emotion", "text", "score"),
    [
        (
            SAD,
            "I'm sorry, that sounds really hard. Feeling sad and worried after this is "
            "understandable; be gentle today.",
            5,
        ),
        (SAD, "I'm sorry. Go to bed earlier.", 4),  # deep sadness, a single cue
        (SAD, "Go to bed earlier and drink less coffee.", 1),
        (SAD, "Great news! This is an exciting, wonderful week, enjoy it!", 1),
        (SAD, "I'm sorry, this is sad, but cheer up, it could be worse.", 3),
        # half neutral: plain words answer half of it
        (MILD, "Go to bed earlier and drink less coffee.", 4),
        (MILD, "It's understandable to feel tired. Go to bed earlier.", 5),
        (
            AFRAID,
            "It makes sense that you worry. Rest assured, this is manageable, one step at a time.",
            5,
        ),
        (AFRAID, "Calm down, you worry too much.", 2),
        (ANGRY, "You're right to be frustrated, and I'm sorry this went wrong.", 5),
        (JOYFUL, "Congratulations, what wonderful news! How unexpected.", 5),
        (JOYFUL, "Wonderful, well done!", 4),
        (JOYFUL, "I'm sorry, that sounds hard and painful.", 1),
        (PLAIN, "Go to bed at ten.", 5),
        (
            PLAIN,
            "Try an earlier bedtime. Stress, worry and anxious evenings cost sleep. "
            + "Drink water. " * 30,
            5,
        ),
        (PLAIN, "Wow, amazing, fantastic, wonderful, I'm so excited!!!", 2),
        (FLAT, "Go to bed at ten.", 5),  # nothing is known of the mood: a plain answer fits
        (ODD, "Nostalgia comes and goes.", 4),
        (ODD, "Go to bed at ten.", 1),
    ],
)
def test_the_rules_weigh_answered_emotions(
    emotion: dict[str, float], text: str, score: int
) -> None:
    assert by_rules(text, emotion).emotional_congruence_score == score


def test_the_rules_name_what_is_answered_and_what_is_missed() -> None:
    judgment = by_rules("How wonderful! Go on like this.", JOYFUL)
    assert (judgment.matched_emotions, judgment.mismatched_emotions) == (["joy"], ["surprise"])


def test_the_rules_invent_no_emotion() -> None:
    judgment = by_rules(
        "Go to bed at ten.", {"a": 0.1, "b": 0.1} | {f"e{i}": 0.1 for i in range(8)}
    )
    assert (judgment.matched_emotions, judgment.mismatched_emotions) == ([], [])


@given(st.text(), st.text(min_size=1), st.floats(0, 1))
def test_any_text_gets_a_judgment_in_the_scale(text: str, label: str, share: float) -> None:
    emotion = {"sadness": 1 - share} | {label: share} if label != "sadness" else {label: 1.0}
    assert 1 <= by_rules(text, emotion).emotional_congruence_score <= 5
