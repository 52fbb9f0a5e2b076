"""Seed 004's checks, boundary by boundary, its examples, and any text."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memray_eval.benchmarks.instruction.checks import (
    BANDS,
    PROMPT_TYPES,
    WEIGHTS,
    band,
    concepts,
    score_response,
)
from memray_eval.errors import ConfigError
from tests.unit.benchmarks.instruction.test_answers import OPTIONS, ROBOT

PLAN = [
    {"action": "rotate", "parameters": {"yaw": 1.57}},
    {"action": "move", "parameters": {"distance": 2.0}},
    {"action": "snapshot", "parameters": {}},
]
PASSES_RIGHT = (
    "B) The robot should pass on the right side. Since the obstacle is on the left and the robot "
    "is 0.6m wide, passing right provides more clearance."
)


def plan(steps: Any) -> str:
    return json.dumps({"steps": steps})


def test_the_seeds_examples() -> None:
    simple = score_response("simple", "Say hello in exactly 3 words", "Hello there friend")
    assert simple.overall_score == 100.0
    assert simple.subscores == {"word_count": 100, "completeness": 100, "error_free": 100}
    assert simple.issues == ()
    passed = ("Word count: 3 (target: 3)", "Complete response", "No errors detected")
    assert simple.passed_checks == passed
    navigation = score_response("navigation", "Generate JSON plan with 3 steps...", plan(PLAN))
    assert (navigation.overall_score, set(navigation.subscores.values())) == (100.0, {100})
    reasoning = score_response("reasoning", ROBOT, PASSES_RIGHT)
    # 0.3 x 100 + 0.1 x 100 + 0.2 x 100 + 0.2 x 83 + 0.2 x 100 = 96.6: five of six concepts, as a
    # whole number
    shown = concepts(ROBOT, OPTIONS, "B").values()  # words, of which a screen shows no stem
    assert list(shown) == ["right", "wide", "robot", "doorway", "obstacle", "pass"]
    assert reasoning.subscores["concept_coverage"] == 83
    assert reasoning.overall_score == 96.6


def test_the_seeds_false_positive_and_false_negative_are_mended() -> None:
    steps = plan(["step1", "step2", "step3"])
    strings = score_response("navigation", "Generate 3-step plan", steps)
    assert strings.overall_score == 36.6  # 0.3 x 100 + 0.2 x 33: the seed gave 100
    assert "Step 1 is text, not an object with action and parameters" in strings.issues
    hello = "Say hello in 3 words"  # the seed: 70
    assert score_response("simple", hello, "Hey, what's up?").overall_score == 100.0
    four = score_response("simple", hello, "Hey what is up?")
    assert (four.overall_score, four.issues) == (70.0, ("Word count: 4 (target: 3)",))


def test_the_seeds_steps_one_too_many_with_one_incomplete() -> None:
    """Its JSON shows step_count 80 and step_structure 75 with an overall of 85.0; by its own
    weights it is 0.3 x 100 + 0.2 x 100 + 0.1 x 100 + 0.2 x 80 + 0.2 x 75 = 91.0."""
    steps = [*PLAN[:2], {"action": "wait"}, PLAN[2]]
    result = score_response("navigation", "Generate JSON plan with 3 steps...", plan(steps))
    assert list(result.subscores.values()) == [100, 100, 100, 80, 75]
    assert result.overall_score == 91.0
    assert result.issues == ("Step count: 4 (expected: 3)", "Step 3: missing parameters field")


# Words and their scores, by prompt: a tenth, a fifth and a third off are the edges
WORD_COUNTS = {
    "in 30 words": {30: 100, 33: 75, 27: 75, 34: 50, 36: 50, 37: 25, 40: 25, 20: 25, 41: 0, 19: 0},
    "under 20 words": {19: 100, 20: 75, 1: 100},
    "at least 10 words": {10: 100, 9: 75, 500: 100},
    "between 5 and 10 words": {5: 100, 4: 50, 11: 75},
}


@pytest.mark.parametrize("prompt", WORD_COUNTS)
def test_word_count(prompt: str) -> None:
    for words, score in WORD_COUNTS[prompt].items():
        result = score_response("simple", prompt, " ".join(["word"] * words))
        assert result.subscores["word_count"] == score, words


def test_without_a_target_the_other_weights_stand_for_all() -> None:
    result = score_response("simple", "Greet me", "I cannot do that.")
    assert result.subscores == {"completeness": 100, "error_free": 0}
    assert result.overall_score == 66.7  # 0.4 / (0.4 + 0.2)


def test_a_response_that_the_engine_cut_is_truncated() -> None:
    result = [score_response(name, "x", "All is well.", is_cut=True) for name in PROMPT_TYPES]
    assert all("Truncated response" in item.issues for item in result)
    assert result[0].subscores["completeness"] == 50


# Texts, by what a check gives them
SAID = {
    ("completeness", 100): """
        Hello there friend | It is done. | He said "stop" | First, we | ```json\n{}\n``` | 好的。 |
        A | The answer is A | and | See https://example.com/docs/ | It is in /etc/
    """,
    ("completeness", 50): """
        And then... | First, | The list: | It stops at the | Open ( | ```json\n{ |
        Either go left and/
    """,
    ("error_free", 0): """
        I cannot help with that. | I can’t do this. | Sorry, I'm unable to answer. |
        As an AI, I have no eyes. | Error: timeout | [ERROR] no model | ValueError: bad |
        Traceback (most recent call last): | 500 Internal Server Error | 我无法回答。 |
        I'm sorry, I don't have that. | I'm sorry, but that is private. |
        I'm sorry, I'm not comfortable with that. | HTTP 404
    """,
    ("error_free", 100): """
        I can't wait to see you! | She said: "I cannot see." | The error is small. |
        Errors happen. | It cannot fail. | I'm sorry I missed you. | I apologize, I was late.
    """,
}


@pytest.mark.parametrize(
    ("check", "text", "score"),
    [
        *(
            (check, words.strip(), n)
            for (check, n), text in SAID.items()
            for words in text.split("|")
        ),
        # prose of 30 words whose last sentence has no end, and of 29
        ("completeness", "One. " + "word " * 28 + "end", 50),
        ("completeness", "One. " + "word " * 27 + "end", 100),
        ("completeness", "One. Two.\n" + "- item and more\n" * 10 + "- last item", 100),
    ],
)
def test_completeness_and_errors(check: str, text: str, score: int) -> None:
    assert score_response("simple", "x", text).subscores[check] == score


@pytest.mark.parametrize("prompt", ["What does 404 mean?", "Name an HTTP error."])
def test_what_a_prompt_asks_of_is_no_error(prompt: str) -> None:
    text = "HTTP 404 means that the page was not found."
    assert score_response("simple", prompt, text).subscores["error_free"] == 100
    assert score_response("simple", prompt, f"Error: {text}").subscores["error_free"] == 0


@pytest.mark.parametrize(
    ("response", "subscores"),
    [
        (plan(PLAN), [100, 100, 100, 100, 100]),
        (f"```json\n{plan(PLAN)}\n```", [100, 100, 100, 100, 100]),
        (f"```\n{plan(PLAN)}```", [100, 100, 100, 100, 100]),
        (f"Here it is: {plan(PLAN)}", [0, 100, 100, 100, 100]),
        (f"```json\n{plan(PLAN)}\n```\nDone.", [0, 100, 100, 100, 100]),
        (plan(PLAN)[:-1], [0, 0, 0, 0, 0]),  # cut off: a step is no plan
        (plan([]), [100, 33, 0, 0, 0]),
        (plan("go"), [100, 33, 0, 0, 0]),
        (plan({"a": 1}), [100, 33, 0, 0, 0]),
        (json.dumps(PLAN), [100, 0, 0, 0, 0]),
        (json.dumps({"plan": {"steps": PLAN}}), [100, 0, 0, 0, 0]),
        ("3", [0, 0, 0, 0, 0]),
        ("No plan.", [0, 0, 0, 0, 0]),
        (plan(PLAN[:2]), [100, 100, 100, 80, 100]),
        (plan(PLAN + PLAN), [100, 100, 100, 40, 100]),
        (plan(PLAN * 3), [100, 100, 100, 0, 100]),  # six too many: 100 - 120
        (plan([*PLAN[:2], "wait"]), [100, 100, 0, 80, 67]),
        (plan([{**PLAN[0], "action": " "}, *PLAN[1:]]), [100, 100, 100, 100, 67]),
        (plan([{**PLAN[0], "action": 3}, *PLAN[1:]]), [100, 100, 100, 100, 67]),
        (plan([{**PLAN[0], "parameters": []}, *PLAN[1:]]), [100, 100, 100, 100, 67]),
        (plan([{"action": "go"}] * 3), [100, 67, 100, 100, 0]),
        ('{"steps": [NaN]}', [0, 0, 0, 0, 0]),
    ],
)
def test_navigation(response: str, subscores: list[int]) -> None:
    result = score_response("navigation", "Generate a plan with 3 steps", response).subscores
    assert list(result.values()) == subscores


def test_faults_of_many_steps_are_told_in_part() -> None:
    result = score_response("navigation", "plan", plan([1] * 50))
    assert "... and 40 more steps" in result.issues
    assert "step_count" not in result.subscores  # the prompt names no number


@pytest.mark.parametrize(
    ("response", "check", "score"),
    [
        ("E) neither, it is blocked.", "answer_present", 0),
        ("It is blocked.", "answer_present", 0),
        ("word " * 19 + "(B)", "answer_position", 100),  # the 20th word
        ("word " * 20 + "(B)" + " word" * 21, "answer_position", 50),  # the 21st of 42
        ("word " * 20 + "(B)" + " word" * 20, "answer_position", 0),  # of 41
        ("It is blocked.", "answer_position", 0),
        ("B. It fits.", "explanation_present", 50),
        ("B.", "explanation_present", 0),
        ("B. It fits. So go.", "explanation_present", 100),
        ("B because the robot\nfits through the\ndoorway.", "explanation_present", 50),
        ("B because it fits.", "logical_structure", 100),
        ("B, so go.", "logical_structure", 100),
        ("B: if it fits then go.", "logical_structure", 100),
        ("B fits so well.", "logical_structure", 0),
        ("B. It fits.", "logical_structure", 0),
        ("B. Passing robots, wide doorways, right obstacles.", "concept_coverage", 100),
        ("B. Yes.", "concept_coverage", 0),
        ("B. A robot.", "concept_coverage", 17),
    ],
)
def test_reasoning(response: str, check: str, score: int) -> None:
    assert score_response("reasoning", ROBOT, response).subscores[check] == score


def test_reasoning_without_options_asks_for_no_answer() -> None:
    result = score_response(
        "reasoning", "Why does ice float?", "Ice floats because it is light. Water is dense."
    )
    assert set(result.subscores) == {"explanation_present", "concept_coverage", "logical_structure"}
    assert result.overall_score == 100.0


def test_expected_answers_stand_beside_and_weigh_only_if_asked() -> None:
    beside = score_response("reasoning", ROBOT, PASSES_RIGHT, "C")
    assert (beside.subscores["exact_match"], beside.subscores["answer_f1"]) == (0, 0)
    assert beside.overall_score == 96.6
    assert "No exact match (expected: C)" in beside.issues
    weighed = score_response(
        "reasoning",
        ROBOT,
        PASSES_RIGHT,
        ["B"],
        weights={"exact_match": 0.5, "logical_structure": 0.5},
    )
    assert weighed.overall_score == 100.0
    seen = score_response("simple", "in one word", "Lisbon it is", "Lisbon").subscores["answer_f1"]
    assert seen == 50


@pytest.mark.parametrize("prompt_type", PROMPT_TYPES)
@pytest.mark.parametrize("text", ["", " \n"])
def test_silence_is_zero(prompt_type: str, text: str) -> None:
    result = score_response(prompt_type, ROBOT, text)
    assert (result.overall_score, result.issues) == (0.0, ("Empty response",))
    assert result.subscores == dict.fromkeys(WEIGHTS[prompt_type], 0)


@pytest.mark.parametrize(
    ("prompt_type", "weights", "message"),
    [
        ("poem", None, "no prompt type 'poem'; there are: simple, navigation, reasoning"),
        ("simple", {"word_count": 0.5}, "weights: they sum to 0.5, not 1"),
        ("simple", {"structure": 1.0}, "weights: simple has no check 'structure'; there are"),
        ("simple", {"word_count": 2.0, "error_free": -1.0}, "weights: word_count must be a number"),
        ("simple", {"word_count": True}, "must be a number from 0 to 1, not True"),
    ],
)
def test_bad_types_and_weights_are_named(
    prompt_type: str, weights: dict[str, float] | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        score_response(prompt_type, "q", "r", weights=weights)


def test_bands() -> None:
    edges = (100, 90), (89.9, 75), (74.9, 60), (59.9, 40), (39.9, 0)
    names = [[band(score).name for score in scores] for scores in edges]
    assert names == [[name] * 2 for name in ("excellent", "good", "fair", "poor", "failed")]
    assert BANDS[0].meaning == "Production-ready for this task type"
    assert all(sum(weights.values()) == pytest.approx(1) for weights in WEIGHTS.values())


PIECES = st.sampled_from('B|A) |{|"steps": [|```|. |\n|because|words|5 |中。|**|\'|in 3'.split("|"))
TEXTS = st.text(max_size=200) | st.lists(PIECES, max_size=30).map("".join)


@given(
    prompt_type=st.sampled_from(PROMPT_TYPES),
    prompt=TEXTS,
    response=TEXTS,
    expected=st.none() | TEXTS,
)
@settings(max_examples=300)
def test_any_text_has_a_score_and_always_the_same(
    prompt_type: str, prompt: str, response: str, expected: str | None
) -> None:
    result = score_response(prompt_type, prompt, response, expected)
    assert 0 <= result.overall_score <= 100
    assert all(0 <= score <= 100 for score in result.subscores.values())
    assert result == score_response(prompt_type, prompt, response, expected)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "piece", ["A ", "{", '"', "\n", "中", "word. ", "[", "```", "if ", "I am ", "- "]
)
def test_a_megabyte_is_scored(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    for prompt_type in PROMPT_TYPES:
        result = score_response(prompt_type, ROBOT + " Use 5 words in 3 steps.", text)
        assert 0 <= result.overall_score <= 100
