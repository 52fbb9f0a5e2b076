"""Semantic correctness: its verdicts, its rubrics, its offline estimate, and what stands in for a
judge."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

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
from memray_eval.text_processing.numerals import chinese_value, in_digits
from memray_eval.types import Response, Sample
from tests.build import score_judgment

A_SI = ["2", "两个", "二"]  # seed 001's example: how many people are called 阿四?


def qa(*answers: str, task: str = "", **metadata: Any) -> Sample:
    return Sample(id="s", query="Which one?", answers=answers, task=task, metadata=metadata)


def verdict(word: Any) -> float | None:
    fields = {"answer": "y", "reasoning": "r", "confidence": 0.9, "verdict": word}
    judgment = CorrectnessJudgment.model_validate_json(json.dumps(fields))
    return score_judgment(METRIC, judgment, qa("x")).value


@pytest.mark.parametrize("word", ["CORRECT", "INCORRECT", "correct", " Incorrect\n", "\tCorrect "])
def test_a_verdict_is_read_as_a_whole(word: str) -> None:
    assert verdict(word) == ("INC" not in word.upper())


@pytest.mark.parametrize("word", [*"NOT CORRECT|CORRECT.|CORRECTLY||yes".split("|"), 1, None])
def test_what_only_holds_a_verdict_is_none(word: Any) -> None:
    with pytest.raises(ValidationError):
        verdict(word)


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


# Accepted answers, and a response that gives one of them, or none
GIVEN = (
    "Paris <- The capital is Paris. | Wilhelm Röntgen <- It was WILHELM RONTGEN, in 1901 | "
    "the United States <- United States | 1234567 <- It is 1,234,567. | 42 <- 42. | 88.0 <- 88 | "
    "0.50 <- .5 is 0.5 | -5 <- func(x) is -5 | 5 <- 10-5 | 5 <- 5km | "
    "a4f0-99b1 <- the id A4F0-99B1, I think | 2 / 两个 / 二 <- 一共2人 | "
    "2 / 两个 / 二 <- 有两个人。 | 2 / 两个 / 二 <- 有两人叫阿四。 | 北京 <- 首都是北京市。 | "
    "東京 <- 東京です | 서울 <- 서울입니다 | No <- no. | 2 <- two people | 2 <- 二人 | "
    "two <- 有两只猫 | 2 <- 在第二章 | 第二章 <- 第2章 | 两个人 <- 2人 | 21 <- twenty-one | "
    "twenty-one <- 二十一 | 二十一 <- 21岁 | 105 <- one hundred and five | "
    "2005 <- two thousand and five | 1984 <- nineteen eighty-four | 1984 <- 一九八四年 | "
    "1.5 million <- 1,500,000 | 30000 <- 3万 | 35000 <- 三万五千 or 三万五 | 12 <- a dozen | "
    "3.5 <- 三点五 | 3.14 <- three point one four | 20% <- 百分之二十 | twenty percent <- 20% | "
    "-5 <- minus five | 1 <- There was one cat. | 1 <- 只有一个人 | "
    "the sixth / six <- It ended with season 6. | July 4, 1776 <- on July 4th, 1776 | "
    "21st century <- the twenty-first century"
).split(" | ")
NOT_GIVEN = (
    "Paris <- parisian | the United States <- In the states united | 1234567 <- 12345678 | "
    "1234567 <- 01234567 | 42 <- 4.2 or 142 or 42.5 | 5 <- -5 | 4 <- A4 | 3.1 <- 3.14 | "
    "2 / 两个 / 二 <- 有12个人 | 2 / 两个 / 二 <- 二十个人 | 十 <- 二十 | 3 <- 3万 | "
    "北京 <- 北和京 | yes <- No, though many say yes |    <- anything | ?! <- ?! | x <-  | "
    "2 <- twenty-two | 2 <- 二十二个人 | 2 <- 星期二 | 2 <- 第二，他很高 | 20 <- twenty-one | "
    "5 <- minus five | 56 <- five six | 1 <- No one knows; one of them left. | "
    "1 <- She had one cat and 3 dogs | 1 <- 一起去吧 | 10 <- 十分高兴 | 10000 <- 万一 | "
    "3 <- 三国演义 | 2 <- the second world war"
).split(" | ")


@pytest.mark.parametrize(
    ("case", "right"), [*((case, True) for case in GIVEN), *((case, False) for case in NOT_GIVEN)]
)
def test_the_rules_find_whole_words_and_numbers_however_written(case: str, right: bool) -> None:
    answers, response = case.split(" <- ")
    assert is_given(qa(*answers.split(" / ")), response) is right


# By question, answers with responses that give them, and with responses that do not
DENIED = {
    "What is the capital of Japan?": (
        (
            "Kyoto <- It isn't Tokyo but Kyoto. | Tokyo <- I'm not sure, but I think it's Tokyo | "
            "Tokyo <- It is none other than Tokyo | "
            "Tokyo <- Tokyo, which is not far from Yokohama. | "
            "Tokyo <- Tokyo is not only the capital but the largest city. | "
            "Tokyo <- not only Tokyo | Tokyo <- It is not Tokyo? Yes: it is Tokyo."
        ),
        (
            "Tokyo <- Definitely not Tokyo. | Tokyo <- It isn't Tokyo but Kyoto. | "
            "Tokyo <- I don't think it is Tokyo | Osaka <- Neither Tokyo nor Osaka | "
            "Tokyo <- any city other than Tokyo | Tokyo <- Tokyo is not the capital of Japan. | "
            "Tokyo <- Tokyo is definitely not the right answer | Tokyo <- Tokyo? No, Kyoto. | "
            "Tokyo <- Tokyo is wrong."
        ),
    ),
    "Which city is not in Japan?": ("Seoul <- Seoul is not in Japan.", ""),
    "日本的首都是哪里？": (
        "东京 <- 不是大阪，而是东京。 | 东京 <- 是不是东京？",
        (
            "东京 <- 绝对不是东京。 | 东京 <- 首都并非东京 | 东京 <- 东京不是日本的首都。 | "
            "东京 <- 东京不对"
        ),
    ),
    "How many?": ("3 <- not two but three", "42 <- It is not 42. | 2 <- not two but three"),
    "有几个？": ("3 <- 不是两个，是三个", "2 <- 不是两个，是三个"),
    "When?": ("1945 <- not until 1945", ""),
    "What was the verdict?": ("Not guilty <- The verdict was not guilty.", ""),
    "What can fish not live without?": ("water <- Fish cannot live without water", ""),
    "How large is it?": ("the largest <- one of the largest, if not the largest", ""),
}


@pytest.mark.parametrize(
    ("query", "case", "right"),
    [
        (query, case, right)
        for query, both in DENIED.items()
        for right, cases in zip((True, False), both, strict=True)
        for case in filter(None, cases.split(" | "))
    ],
)
def test_what_is_denied_is_not_given(query: str, case: str, right: bool) -> None:
    answer, response = case.split(" <- ")
    assert is_given(Sample(id="s", query=query, answers=(answer,)), response) is right


NUMERALS = (
    "一百二十三 123 | 两百零五 205 | 二百五 250 | 十万零三百 100300 | 三千万 30000000 | 十 10 | "
    "一亿二千万 120000000 | 二〇二四 2024 | 一千零一 1001 | 二十五万六千 256000 | 千万 None | "
    "二三 None | 十五六 None | 万 None | 一一 None | 百 None | 零二 2"
)


@pytest.mark.parametrize("case", NUMERALS.split(" | "))
def test_chinese_numerals(case: str) -> None:
    numeral, value = case.split()
    assert chinese_value(numeral) == (None if value == "None" else int(value))


NUMBER_WORDS = (
    "two thousand five hundred and six = 2506 | nineteen hundred = 1900 | "
    "three million two hundred thousand = 3200000 | twenty twenty four = 2024 | "
    "ninety nine thousand nine hundred ninety nine = 99999 | "
    "hundred and one dalmatians = 101 dalmatians | six point zero five = 6.05 | "
    "one two three = 1 2 3 | five thousand fifty thousand = 5000 50000 | "
    "one point five million = 1500000 | two and three = 2 3 | five point = 5 point | "
    "someone oneself phone = someone oneself phone"
)


@pytest.mark.parametrize("case", NUMBER_WORDS.split(" | "))
def test_english_number_words(case: str) -> None:
    text, digits = case.split(" = ")
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


CHOSEN = (
    "B <- B | B <- B. | B <- The answer is B | B <- The correct answer is (B). | B <- 答案是B。 | "
    "B <- 选 B | B <- (A) is wrong, and so the answer is **B** | B <- mutiny, of course | "
    "mutiny <- B"
).split(" | ")
NOT_CHOSEN = "B <- Because I said so | A <- A cat is a cat | B <- A. fog | B <- Bananas".split(
    " | "
)


@pytest.mark.parametrize("case", [*CHOSEN, *NOT_CHOSEN])
def test_the_rules_know_options_by_letter_and_by_text(case: str) -> None:
    answer, response = case.split(" <- ")
    sample = qa(answer, options=["fog", "mutiny", "illness", "ice"])
    assert is_given(sample, response) is (case in CHOSEN)


def test_options_are_found_wherever_a_benchmark_has_them() -> None:
    expected = {"A": "x", "B": "y"}
    named = {"choice_A": "x", "choice_B": "y"}
    for metadata in ({"options": ["x", "y"]}, {"choices": expected}, named):
        assert options(qa("A", **metadata)) == expected
    assert options(qa("A")) == options(qa("A", options="none")) == {}


@pytest.mark.parametrize(
    ("right", "responses"),
    [
        (True, ["3, 15, 7", "Start 9: 3 15 7."]),
        (False, ["3, 15", "15, 7, 3", "3, 15, 70", "3 1 5 7"]),
    ],
)
def test_a_list_of_numbers_is_one_answer(right: bool, responses: list[str]) -> None:
    sample = qa("3", "15", "7", label=[3, 15, 7])
    assert [is_given(sample, response) for response in responses] == [right] * len(responses)


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
def test_words_are_found_in_any_case(answer: list[str], around: list[str], case: str) -> None:
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
