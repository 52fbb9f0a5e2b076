"""Which option a response chooses, and whether an answer is the expected one."""

from __future__ import annotations

import pytest

from memray_eval.benchmarks.instruction.answers import (
    compare,
    find_choice,
    offered_options,
    read_json,
)

ROBOT = (
    "Robot 0.6m wide, doorway 0.8m wide, obstacle 0.3m left of center. Pass A) center B) right C) "
    "left D) find another route?"
)
OPTIONS = {"A": "center", "B": "right", "C": "left", "D": "find another route"}


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        (ROBOT, OPTIONS),
        (
            "Should it (a) wait, (b) go, or (c) call? Explain.",
            {"A": "wait", "B": "go", "C": "call"},
        ),
        ("A. go on; B. wait\nPick one.", {"A": "go on", "B": "wait"}),
        ("Should robot pass left or right?", {"left": "left", "right": "right"}),
        ("Is it safe or not?", {}),
        ("Why is the sky blue? e.g. a. b", {}),
        ("Plan A) is all there is.", {}),
    ],
)
def test_options_are_read_off_the_prompt(prompt: str, options: dict[str, str]) -> None:
    assert offered_options(prompt) == options


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B) The robot should pass on the right side.", "B"),
        ("B", "B"),
        ("b)", "B"),
        ("**B**", "B"),
        ("(b) is it", "B"),
        ("A", "A"),
        ("A, because it is wide", "A"),
        ("A because it is wide", "A"),
        ("A is the safest.", "A"),
        ("A robot should pass right.", None),  # the article
        ("Answer: A robot cannot", None),
        ("Answer: A", "A"),
        ("The answer is B.", "B"),
        ("The answer is a wider doorway", None),
        ("The answer is not B", None),
        ("I think B is best", "B"),
        ("I would choose option C", "C"),
        ("I would not choose A. I choose D", "D"),
        ("A) too narrow. B) fits. So the answer is B.", "B"),
        ("A) too narrow\nB) fits\nC) no", None),  # goes through them and settles on none
        ("Option A is bad. Option B fits.", None),
        ("The robot should take option B", "B"),
        ("E) none of them", "E"),
        ("Because of Bob", None),
        ("Cats", None),
        ("D'Artagnan went", None),
        ("B-side is wide", None),
        ("Vitamin C helps", None),
        ("", None),
    ],
)
def test_a_letter_is_an_answer_only_where_it_is_said_to_be(
    response: str, letter: str | None
) -> None:
    found = find_choice(response, OPTIONS)
    assert (found.option if found else None) == letter


def test_of_two_words_the_first_that_is_said_is_chosen() -> None:
    options = offered_options("left or right?")
    found = [
        find_choice(text, options)
        for text in ("Right. Left is blocked.", "not left but right", "upright", "")
    ]
    assert [each.option if each else None for each in found] == ["right", "right", None, None]


@pytest.mark.parametrize(
    ("prompt", "response", "answers", "exact", "f1"),
    [
        (ROBOT, "B) as it is free", ["B"], True, 1.0),
        (ROBOT, "B) as it is free", ["right"], True, 1.0),
        (ROBOT, "B) as it is free", ["C", "B) right"], True, 1.0),
        (ROBOT, "A right turn is blocked", ["A"], False, 0.0),
        ("q", "The Paris.", ["paris"], True, 1.0),
        ("q", "in Paris", ["Paris"], False, 2 / 3),
        ("q", "A", ["the"], False, 0.0),
        ("q", "A", ["a"], True, 1.0),
        ("q", '```json\n{"a": 1}\n```', ['{"a":1}'], True, 1.0),
        ("q", "北京。", ["北京"], True, 1.0),
        ("q", "北京 上海", ["北京"], False, 2 / 3),
        ("q", "x", ["", " "], False, 0.0),
    ],
)
def test_answers_are_compared(
    prompt: str, response: str, answers: list[str], exact: bool, f1: float
) -> None:
    found = compare(prompt, response, answers)
    assert (found.exact, found.f1) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    "text", ["[1", "NaN", "[" * 100_000, "1" * 5000, "so: {}", '```json\n{"a": 1}', ""]
)
def test_what_is_no_json_is_none(text: str) -> None:
    assert read_json(text) is None
