"""Semantic correctness: its verdicts, its rubrics, its offline estimate, and what stands in for a
judge."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memray_eval.metric import score_by_verdict
from memray_eval.metrics.long_context.semantic_correctness import (
    METRIC,
    READ_CHARS,
    RUBRICS,
    CorrectnessJudgment,
    excerpt,
    is_given,
    options,
    prompt_with,
    reference,
    string_match,
    tokens,
)
from memray_eval.ports import Verdict
from memray_eval.text_processing.numerals import chinese_value, in_digits
from memray_eval.types import Response, Sample

A_SI = ["2", "两个", "二"]  # seed 001's example: how many people are called 阿四?


def qa(*answers: str, task: str = "", **metadata: Any) -> Sample:
    return Sample(id="s", query="Which one?", answers=answers, task=task, metadata=metadata)


def verdict(judgment: dict[str, Any], sample: Sample | None = None) -> float | None:
    filled = CorrectnessJudgment.model_validate_json(
        json.dumps({"answer": "y", "reasoning": "r", "confidence": 0.9} | judgment)
    )
    return score_by_verdict(
        METRIC, sample or qa("x"), Response(text="y"), Verdict(judgment=filled, judge="j")
    ).value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("CORRECT", 1.0),
        ("INCORRECT", 0.0),
        ("correct", 1.0),
        (" Incorrect\n", 0.0),
        ("\tCorrect ", 1.0),
    ],
)
def test_a_verdict_is_read_as_a_whole(word: str, value: float) -> None:
    assert verdict({"verdict": word}) == value


@pytest.mark.parametrize(
    "word",
    [
        "NOT CORRECT",
        "CORRECT INCORRECT",
        "CORRECTLY",
        "CORRECT.",
        "PARTIALLY CORRECT",
        "",
        "yes",
        1,
        None,
    ],
)
def test_what_only_holds_a_verdict_is_none(word: Any) -> None:
    with pytest.raises(ValidationError):
        verdict({"verdict": word})


def section(sample: Sample, text: str = "y") -> str:
    return prompt_with(RUBRICS["strict"], sample, Response(text=text))[1].content


def test_the_judge_is_shown_the_reference_and_how_much_of_it_is_wanted() -> None:
    assert '\n["2", "两个", "二"]\n</ACCEPTED_ANSWERS' in section(qa(*A_SI))
    assert "\nParis\n</ACCEPTED_ANSWERS" in section(qa("Paris"))
    assert '\n["11", "22"]\n</REQUIRED_ANSWERS' in section(qa("11", "22", task="niah_multivalue"))
    assert "\n1, 2, 3\n</REQUIRED_LIST" in section(qa("1", "2", "3", label=[1, 2, 3]))
    assert "\nA. red\nB. blue\n</OPTIONS" in section(qa("B", options=["red", "blue"]))
    assert "<OPTIONS" not in section(qa("B"))


def test_a_very_long_response_is_read_from_both_ends() -> None:
    text = "start " + "x" * 500_000 + " end"
    shown = section(qa("y" * 100_000), text)
    assert len(shown) < 2 * READ_CHARS + 1_000
    assert "start x" in shown
    assert "x end" in shown
    left_out = len(text) - READ_CHARS
    assert f"[... {left_out} characters left out here ...]" in shown
    assert excerpt("z" * READ_CHARS, READ_CHARS) == "z" * READ_CHARS


@pytest.mark.parametrize(
    ("answers", "response", "right"),
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
        (A_SI, "有两人叫阿四。", True),  # the seed's example
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
        # in words and numerals
        (["2"], "two people", True),
        (["2"], "二人", True),
        (["two"], "有两只猫", True),
        (["2"], "twenty-two", False),
        (["2"], "二十二个人", False),
        (["2"], "星期二", False),
        (["2"], "第二，他很高", False),
        (["2"], "在第二章", True),
        (["第二章"], "第2章", True),
        (["两个人"], "2人", True),
        (["21"], "twenty-one", True),
        (["twenty-one"], "二十一", True),
        (["二十一"], "21岁", True),
        (["20"], "twenty-one", False),
        (["105"], "one hundred and five", True),
        (["2005"], "two thousand and five", True),
        (["1984"], "nineteen eighty-four", True),
        (["1984"], "一九八四年", True),
        (["1.5 million"], "1,500,000", True),
        (["30000"], "3万", True),
        (["35000"], "三万五千 or 三万五", True),
        (["12"], "a dozen", True),
        (["3.5"], "三点五", True),
        (["3.14"], "three point one four", True),
        (["20%"], "百分之二十", True),
        (["twenty percent"], "20%", True),
        (["-5"], "minus five", True),
        (["5"], "minus five", False),
        (["56"], "five six", False),
        (["1"], "There was one cat.", True),
        (["1"], "只有一个人", True),
        (["1"], "No one knows; one of them left.", False),
        (["1"], "She had one cat and 3 dogs", False),
        (["1"], "一起去吧", False),
        (["10"], "十分高兴", False),
        (["10000"], "万一", False),
        (["3"], "三国演义", False),
        (["the sixth", "six"], "It ended with season 6.", True),
        (["July 4, 1776"], "on July 4th, 1776", True),
        (["21st century"], "the twenty-first century", True),
        (["2"], "the second world war", False),
    ],
)
def test_the_rules_find_whole_words_and_numbers_however_written(
    answers: list[str], response: str, right: bool
) -> None:
    assert is_given(qa(*answers), response) is right


CAPITAL, CHINESE_CAPITAL = "What is the capital of Japan?", "日本的首都是哪里？"


@pytest.mark.parametrize(
    ("answer", "response", "right", "query"),
    [
        ("Tokyo", "Definitely not Tokyo.", False, CAPITAL),
        ("Tokyo", "It isn't Tokyo but Kyoto.", False, CAPITAL),
        ("Kyoto", "It isn't Tokyo but Kyoto.", True, CAPITAL),
        ("Tokyo", "I don't think it is Tokyo", False, CAPITAL),
        ("Tokyo", "I'm not sure, but I think it's Tokyo", True, CAPITAL),
        ("Osaka", "Neither Tokyo nor Osaka", False, CAPITAL),
        ("Tokyo", "any city other than Tokyo", False, CAPITAL),
        ("Tokyo", "It is none other than Tokyo", True, CAPITAL),
        ("Tokyo", "Tokyo is not the capital of Japan.", False, CAPITAL),
        ("Tokyo", "Tokyo is definitely not the right answer", False, CAPITAL),
        ("Tokyo", "Tokyo, which is not far from Yokohama.", True, CAPITAL),
        ("Tokyo", "Tokyo is not only the capital but the largest city.", True, CAPITAL),
        ("Tokyo", "not only Tokyo", True, CAPITAL),
        ("Tokyo", "Tokyo? No, Kyoto.", False, CAPITAL),
        ("Tokyo", "Tokyo is wrong.", False, CAPITAL),
        ("Tokyo", "It is not Tokyo? Yes: it is Tokyo.", True, CAPITAL),  # denied once, said once
        ("Seoul", "Seoul is not in Japan.", True, "Which city is not in Japan?"),
        ("东京", "绝对不是东京。", False, CHINESE_CAPITAL),
        ("东京", "首都并非东京", False, CHINESE_CAPITAL),
        ("东京", "东京不是日本的首都。", False, CHINESE_CAPITAL),
        ("东京", "东京不对", False, CHINESE_CAPITAL),
        ("东京", "不是大阪，而是东京。", True, CHINESE_CAPITAL),
        ("东京", "是不是东京？", True, CHINESE_CAPITAL),
        ("42", "It is not 42.", False, "How many?"),
        ("2", "not two but three", False, "How many?"),
        ("3", "not two but three", True, "How many?"),
        ("3", "不是两个，是三个", True, "有几个？"),
        ("2", "不是两个，是三个", False, "有几个？"),
        ("1945", "not until 1945", True, "When?"),
        ("Not guilty", "The verdict was not guilty.", True, "What was the verdict?"),
        ("water", "Fish cannot live without water", True, "What can fish not live without?"),
        ("the largest", "one of the largest, if not the largest", True, "How large is it?"),
    ],
)
def test_what_is_denied_is_not_given(answer: str, response: str, right: bool, query: str) -> None:
    assert is_given(Sample(id="s", query=query, answers=(answer,)), response) is right


@pytest.mark.parametrize(
    ("numeral", "value"),
    [
        ("一百二十三", 123), ("两百零五", 205), ("二百五", 250), ("十万零三百", 100_300), ("三千万", 30_000_000),  # noqa: E501
        ("十", 10),
        ("一亿二千万", 120_000_000), ("二〇二四", 2024), ("一千零一", 1001), ("二十五万六千", 256_000), ("千万",  # noqa: E501
        None),
        ("二三", None), ("十五六", None), ("万", None), ("一一", None), ("百", None), ("零二", 2),
    ],
)  # fmt: skip
def test_chinese_numerals(numeral: str, value: int | None) -> None:
    assert chinese_value(numeral) == value


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("two thousand five hundred and six", "2506"),
        ("nineteen hundred", "1900"),
        ("three million two hundred thousand", "3200000"),
        ("twenty twenty four", "2024"),
        ("ninety nine thousand nine hundred ninety nine", "99999"),
        ("hundred and one dalmatians", "101 dalmatians"),
        ("six point zero five", "6.05"),
        ("one two three", "1 2 3"),
        ("five thousand fifty thousand", "5000 50000"),
        ("one point five million", "1500000"),
        ("two and three", "2 3"),
        ("five point", "5 point"),
        ("someone oneself phone", "someone oneself phone"),
    ],
)
def test_english_number_words(text: str, digits: str) -> None:
    assert in_digits(text) == digits


@pytest.mark.heavy
@pytest.mark.parametrize(
    "piece", "one |two hundred and |not tokyo |一|二十|9|9万|point five |2nd |第二".split("|")
)
def test_a_long_response_of_anything_is_read_in_linear_time(piece: str) -> None:
    """Quadratic time would be minutes here."""
    text = piece * (100_000 // len(piece))
    for answers in (["tokyo"], ["7"], ["the third"]):
        assert is_given(qa(*answers), text) is False


@pytest.mark.parametrize(
    ("answer", "response", "right"),
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
def test_the_rules_know_options_by_letter_and_by_text(
    answer: str, response: str, right: bool
) -> None:
    assert is_given(qa(answer, options=["fog", "mutiny", "illness", "ice"]), response) is right


def test_options_are_found_wherever_a_benchmark_has_them() -> None:
    expected = {"A": "x", "B": "y"}
    for metadata in (
        {"options": ["x", "y"]},
        {"choices": expected},
        {"choice_A": "x", "choice_B": "y"},
    ):
        assert options(qa("A", **metadata)) == expected
    assert options(qa("A")) == {}
    assert options(qa("A", options="none")) == {}


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("3, 15, 7", True),
        ("Start 9: 3 15 7.", True),
        ("3, 15", False),
        ("15, 7, 3", False),
        ("3, 15, 70", False),
        ("3 1 5 7", False),
    ],
)
def test_a_list_of_numbers_is_one_answer(response: str, right: bool) -> None:
    assert is_given(qa("3", "15", "7", label=[3, 15, 7]), response) is right


def test_some_tasks_ask_for_every_answer() -> None:
    for sample in (qa("11", "22", task="vt"), qa("11", "22", answers="all")):
        assert reference(sample).kind == "all"
        assert is_given(sample, "22 and 11")
        assert not is_given(sample, "11")
    assert reference(qa("11", task="vt")).kind == "any"
    assert reference(qa("a", "b", label=["a", "b"])).kind == "any"
    assert reference(qa("a", label=[True])).kind == "any"


NUMBERS = st.integers(min_value=0, max_value=10**12)
WORDS = st.text(alphabet="abcdefghij", min_size=2, max_size=8).filter(
    lambda word: word not in ("an", "the", "yes", "no")
)
CHINESE = st.text(alphabet="天地玄黄宇宙洪荒", min_size=1, max_size=6)


@given(NUMBERS, WORDS, WORDS)
def test_a_number_is_found_in_any_sentence(number: int, before: str, after: str) -> None:
    for written in (str(number), f"{number:,}"):
        assert is_given(qa(str(number)), f"{before} {written}, {after}.")
        assert is_given(qa(str(number)), f"天地{written}玄黄")


@given(NUMBERS, st.integers(min_value=0, max_value=9))
def test_a_number_with_a_digit_more_is_another(number: int, digit: int) -> None:
    for other in (f"{number}{digit}", f"{digit}{number}"):
        assert not is_given(qa(str(number)), f"It is {other}.")
        assert not is_given(qa(str(number)), f"是{other}个")
        assert not is_given(qa(str(number)), f"{other}.25")


@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.lists(WORDS, max_size=3),
    st.sampled_from(["title", "upper", "lower"]),
)
def test_words_are_found_whatever_the_case_and_what_stands_around(
    answer: list[str], around: list[str], case: str
) -> None:
    cased = getattr(" ".join(answer), case)()
    assert is_given(qa(" ".join(answer)), f"{' '.join(around)} **{cased}**! {' '.join(around)}")
    glued = f"z{cased}z"
    assert not is_given(qa(" ".join(answer)), glued)


@given(CHINESE, CHINESE, CHINESE)
def test_chinese_is_found_by_characters(answer: str, before: str, after: str) -> None:
    assert is_given(qa(answer), f"{before}{answer}{after}。")
    assert is_given(qa(answer), before) == (answer in before)


@given(st.text(max_size=80), st.text(max_size=30))
def test_no_text_breaks_the_rules_and_an_answer_gives_itself(response: str, answer: str) -> None:
    is_given(qa(answer or "x"), response)
    if tokens(answer) and not (len(answer.strip()) == 1 and answer.strip() in "ABCDEFGHIJ"):
        assert is_given(qa(answer), answer)


@pytest.mark.parametrize(
    ("text", "value"),
    [(" paris\n", 1.0), ("PARIS", 1.0), ("Lutetia", 1.0), ("It is Paris", 0.0), ("Paris.", 0.0)],
)
def test_the_fallback_of_seed_001_compares_to_the_letter(text: str, value: float) -> None:
    judgment = string_match(qa("Paris", "Lutetia"), Response(text=text))
    assert METRIC.measure(judgment, qa("Paris"), Response(text=text)).value == value
