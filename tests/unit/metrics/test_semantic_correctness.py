"""Semantic correctness: its verdicts, its rubrics, its offline estimate, and what stands in for a judge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memray_eval.metric import RULES, rubric_digest, score_by_rules, score_by_verdict
from memray_eval.metrics.correctness import is_given, options, reference, tokens
from memray_eval.metrics.long_context.semantic_correctness import (
    EXAMPLES,
    METRIC,
    READ_CHARS,
    RUBRICS,
    CorrectnessJudgment,
    excerpt,
    prompt_with,
    string_match,
)
from memray_eval.ports import Verdict
from memray_eval.types import Response, Sample

A_SI = ["2", "两个", "二"]  # seed 001's example: how many people are called 阿四?


def asked(*answers: str, task: str = "", **metadata: Any) -> Sample:
    return Sample(id="s", query="Which one?", answers=answers, task=task, metadata=metadata)


def verdict(judgment: dict[str, Any], sample: Sample | None = None) -> float | None:
    filled = CorrectnessJudgment.model_validate_json(json.dumps({"reasoning": "r", "confidence": 0.9} | judgment))
    return score_by_verdict(METRIC, sample or asked("x"), Response(text="y"), Verdict(judgment=filled, judge="j")).value


@pytest.mark.parametrize(
    ("said", "value"), [("CORRECT", 1.0), ("INCORRECT", 0.0), ("correct", 1.0), (" Incorrect\n", 0.0), ("\tCorrect ", 1.0)]
)
def test_a_verdict_is_read_as_a_whole(said: str, value: float) -> None:
    assert verdict({"verdict": said}) == value


@pytest.mark.parametrize(
    "said", ["NOT CORRECT", "CORRECT INCORRECT", "CORRECTLY", "CORRECT.", "PARTIALLY CORRECT", "", "yes", 1, None]
)
def test_what_only_holds_a_verdict_is_none(said: Any) -> None:
    with pytest.raises(ValidationError):
        verdict({"verdict": said})


@pytest.mark.parametrize("confidence", [-0.1, 1.1, "sure"])
def test_a_confidence_is_a_share(confidence: Any) -> None:
    with pytest.raises(ValidationError):
        verdict({"verdict": "CORRECT", "confidence": confidence})


def test_the_confidence_is_kept_beside_the_value() -> None:
    filled = CorrectnessJudgment(reasoning="r", verdict="CORRECT", confidence=0.7)
    score = score_by_verdict(METRIC, asked("x"), Response(text="y"), Verdict(judgment=filled, judge="j"))
    assert (score.value, score.parts["confidence"]) == (1.0, 0.7)


def test_no_reference_no_score() -> None:
    assert score_by_rules(METRIC, asked(), Response(text="y"), {}, RULES).status == "not_applicable"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_response_is_incorrect(text: str) -> None:
    score = score_by_rules(METRIC, asked("x"), Response(text=text, thinking="it is x", thinking_blocks=1), {}, RULES)
    assert (score.value, score.parts["confidence"]) == (0.0, 1.0)


def section(sample: Sample, text: str = "y") -> str:
    return prompt_with(RUBRICS["strict"], sample, Response(text=text))[1].content


def test_the_judge_is_shown_the_reference_and_how_much_of_it_is_wanted() -> None:
    assert '\n["2", "两个", "二"]\n</ACCEPTED_ANSWERS' in section(asked(*A_SI))
    assert "\nParis\n</ACCEPTED_ANSWERS" in section(asked("Paris"))
    assert '\n["11", "22"]\n</REQUIRED_ANSWERS' in section(asked("11", "22", task="niah_multivalue"))
    assert "\n1, 2, 3\n</REQUIRED_LIST" in section(asked("1", "2", "3", label=[1, 2, 3]))
    assert "\nA. red\nB. blue\n</OPTIONS" in section(asked("B", options=["red", "blue"]))
    assert "<OPTIONS" not in section(asked("B"))


def test_a_very_long_response_is_read_from_both_ends() -> None:
    text = "start " + "x" * 500_000 + " end"
    shown = section(asked("y" * 100_000), text)
    assert len(shown) < 2 * READ_CHARS + 1_000
    assert "start x" in shown
    assert "x end" in shown
    left_out = len(text) - READ_CHARS
    assert f"[... {left_out} characters left out here ...]" in shown
    assert excerpt("z" * READ_CHARS, READ_CHARS) == "z" * READ_CHARS


def test_every_rubric_is_another_prompt_and_its_digest_says_so() -> None:
    systems = [prompt_with(rubric, asked("x"), Response(text="y"))[0].content for rubric in (*RUBRICS.values(), "Be fair.")]
    assert len(set(systems)) == 3
    assert METRIC.prompt(asked("x"), Response(text="y"))[0].content == systems[0]
    assert METRIC.messages(asked("x"), Response(text="y"), "Be fair.")[0].content == systems[2]
    assert systems[2].endswith("\nBe fair.")
    digests = [rubric_digest(METRIC, rubric) for rubric in (None, *RUBRICS.values(), "Be fair.")]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_rubrics_differ_where_they_should() -> None:
    apart = [example for example in EXAMPLES if example.strict != example.lenient]
    assert [example.response for example in apart] == ["It was either 1871 or 1874."]
    for name, rubric in RUBRICS.items():
        for example in EXAMPLES:
            assert f"RESPONSE: {example.response}\n-> {getattr(example, name)}: " in rubric


@pytest.mark.parametrize(
    ("answers", "response", "given_"),
    [
        (["Paris"], "The capital is Paris.", True),
        (["Paris"], "parisian", False),
        (["Wilhelm Röntgen"], "It was WILHELM RONTGEN, in 1901", True),
        (["the United States"], "In the states united", False),
        (["the United States"], "United States", True),
        (["1234567"], "12345678", False),
        (["1234567"], "01234567", False),
        (["1234567"], "It is 1,234,567.", True),
        (["42"], "4.2 or 142 or 42.5", False),
        (["42"], "42.", True),
        (["88.0"], "88", True),
        (["0.50"], ".5 is 0.5", True),
        (["5"], "-5", False),
        (["-5"], "func(x) is -5", True),
        (["5"], "10-5", True),
        (["5"], "5km", True),
        (["4"], "A4", False),
        (["3.1"], "3.14", False),
        (["a4f0-99b1"], "the id A4F0-99B1, I think", True),
        (A_SI, "一共2人", True),
        (A_SI, "有两个人。", True),
        (A_SI, "有12个人", False),
        (A_SI, "二十个人", False),
        (A_SI, "有两人叫阿四。", False),  # the words are others: that is what a judge is for
        (["十"], "二十", False),
        (["3"], "3万", False),
        (["北京"], "首都是北京市。", True),
        (["北京"], "北和京", False),
        (["東京"], "東京です", True),
        (["서울"], "서울입니다", True),
        (["yes"], "No, though many say yes", False),
        (["No"], "no.", True),
        (["  "], "anything", False),
        (["?!"], "?!", False),
        (["x"], "", False),
    ],
)
def test_the_rules_find_whole_words_and_numbers(answers: list[str], response: str, given_: bool) -> None:
    assert is_given(asked(*answers), response) is given_


@pytest.mark.parametrize(
    ("answer", "response", "given_"),
    [
        ("B", "B", True),
        ("B", "B.", True),
        ("B", "The answer is B", True),
        ("B", "The correct answer is (B).", True),
        ("B", "答案是B。", True),
        ("B", "选 B", True),
        ("B", "(A) is wrong, and so the answer is **B**", True),
        ("B", "mutiny, of course", True),
        ("mutiny", "B", True),
        ("B", "Because I said so", False),
        ("A", "A cat is a cat", False),
        ("B", "A. fog", False),
        ("B", "Bananas", False),
    ],
)
def test_the_rules_know_options_by_letter_and_by_text(answer: str, response: str, given_: bool) -> None:
    assert is_given(asked(answer, options=["fog", "mutiny", "illness", "ice"]), response) is given_


def test_options_are_found_wherever_a_benchmark_has_them() -> None:
    expected = {"A": "x", "B": "y"}
    for metadata in ({"options": ["x", "y"]}, {"choices": expected}, {"choice_A": "x", "choice_B": "y"}):
        assert options(asked("A", **metadata)) == expected
    assert options(asked("A")) == {}
    assert options(asked("A", options="none")) == {}


@pytest.mark.parametrize(
    ("response", "given_"),
    [
        ("3, 15, 7", True),
        ("Start 9: 3 15 7.", True),
        ("3, 15", False),
        ("15, 7, 3", False),
        ("3, 15, 70", False),
        ("3 1 5 7", False),
    ],
)
def test_a_list_of_numbers_is_one_answer(response: str, given_: bool) -> None:
    assert is_given(asked("3", "15", "7", label=[3, 15, 7]), response) is given_


def test_some_tasks_ask_for_every_answer() -> None:
    for sample in (asked("11", "22", task="vt"), asked("11", "22", answers="all")):
        assert reference(sample).kind == "all"
        assert is_given(sample, "22 and 11")
        assert not is_given(sample, "11")
    assert reference(asked("11", task="vt")).kind == "any"
    assert reference(asked("a", "b", label=["a", "b"])).kind == "any"
    assert reference(asked("a", label=[True])).kind == "any"


NUMBERS = st.integers(min_value=0, max_value=10**12)
WORDS = st.text(alphabet="abcdefghij", min_size=2, max_size=8).filter(lambda word: word not in ("an", "the", "yes", "no"))
CHINESE = st.text(alphabet="天地玄黄宇宙洪荒", min_size=1, max_size=6)


@given(NUMBERS, WORDS, WORDS)
def test_a_number_is_found_in_any_sentence(number: int, before: str, after: str) -> None:
    for written in (str(number), f"{number:,}"):
        assert is_given(asked(str(number)), f"{before} {written}, {after}.")
        assert is_given(asked(str(number)), f"天地{written}玄黄")


@given(NUMBERS, st.integers(min_value=0, max_value=9))
def test_a_number_with_a_digit_more_is_another(number: int, digit: int) -> None:
    for other in (f"{number}{digit}", f"{digit}{number}"):
        assert not is_given(asked(str(number)), f"It is {other}.")
        assert not is_given(asked(str(number)), f"是{other}个")
        assert not is_given(asked(str(number)), f"{other}.25")


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, max_size=3), st.sampled_from(["title", "upper", "lower"]))
def test_words_are_found_whatever_the_case_and_what_stands_around(answer: list[str], around: list[str], case: str) -> None:
    said = getattr(" ".join(answer), case)()
    assert is_given(asked(" ".join(answer)), f"{' '.join(around)} **{said}**! {' '.join(around)}")
    glued = f"z{said}z"
    assert not is_given(asked(" ".join(answer)), glued)


@given(CHINESE, CHINESE, CHINESE)
def test_chinese_is_found_by_characters(answer: str, before: str, after: str) -> None:
    assert is_given(asked(answer), f"{before}{answer}{after}。")
    assert is_given(asked(answer), before) == (answer in before)


@given(st.text(max_size=80), st.text(max_size=30))
def test_no_text_breaks_the_rules_and_an_answer_gives_itself(response: str, answer: str) -> None:
    is_given(asked(answer or "x"), response)
    if tokens(answer) and not (len(answer.strip()) == 1 and answer.strip() in "ABCDEFGHIJ"):
        assert is_given(asked(answer), answer)


@pytest.mark.parametrize(
    ("text", "value"), [(" paris\n", 1.0), ("PARIS", 1.0), ("Lutetia", 1.0), ("It is Paris", 0.0), ("Paris.", 0.0)]
)
def test_the_fallback_of_seed_001_compares_to_the_letter(text: str, value: float) -> None:
    judgment = string_match(asked("Paris", "Lutetia"), Response(text=text))
    assert METRIC.measure(judgment, asked("Paris"), Response(text=text)).value == value
