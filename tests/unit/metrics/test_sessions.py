"""The computed metric of sessions; the judged ones are in test_judged_contract."""

from __future__ import annotations

import pytest

from tests.build import build_sample, score_text

HISTORY = (
    {"role": "user", "content": "we walk by the river every day"},
    {"role": "assistant", "content": "That sounds like a lovely walk, tell me more."},
    {"role": "user", "content": "it rains"},
    {"role": "assistant", "content": "Rain!"},
)


@pytest.mark.parametrize(
    ("text", "value", "repeated", "n"),
    [
        ("That sounds like a lovely walk, tell me more.", 0.0, 6, 6),
        ("That sounds like a new umbrella.", 1 - 1 / 3, 1, 3),
        ("We walk by the river every day", 1.0, 0, 4),  # the user's words, not its own
        ("rain", 0.0, 1, 1),  # said before as a whole
        ("lovely", 1.0, 0, 1),  # a word of a longer reply
        ("A rain", 1.0, 0, 1),
        ("", 1.0, 0, 0),
    ],
)
def test_what_the_assistant_said_before_is_counted_by_runs_of_four_words(
    text: str, value: float, repeated: int, n: int
) -> None:
    score = score_text("repeats_itself", build_sample(history=HISTORY), text)
    assert score.value == pytest.approx(value)
    assert score.parts == {"repeated": repeated, "all": n}


def test_a_first_reply_cannot_repeat_itself() -> None:
    score = score_text("repeats_itself", build_sample(history=HISTORY[:1]), "Rain!")
    assert (score.status, score.error) == ("not_applicable", "there is no earlier reply to repeat")
