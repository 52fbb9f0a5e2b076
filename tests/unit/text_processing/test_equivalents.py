"""What is written otherwise and means the same is an exact match; what only looks alike is none."""

import json

import pytest

from memray_eval.benchmarks.instruction.answers import compare
from tests.conftest import REPOSITORY

# A right answer, responses that say it, and responses that do not; some with choices
SAID = [
    (row["answer"], response, row.get("choices", ()), is_right)
    for line in (REPOSITORY / "tests/data/said.jsonl").read_text("utf-8").splitlines()
    for row in [json.loads(line)]
    for is_right in (True, False)
    for response in row["right" if is_right else "wrong"]
]


@pytest.mark.parametrize(("answer", "response", "choices", "is_right"), SAID)
def test_a_response_says_the_answer(
    answer: str, response: str, choices: list[str], is_right: bool
) -> None:
    named = [answer]
    if choices and answer in "ABCD":
        named.append(choices["ABCD".index(answer)])
    assert {compare("Which?", response, [each], choices).exact for each in named} == {is_right}


@pytest.mark.parametrize(
    ("answer", "response", "is_right"),
    [
        *(("3", said, True) for said in ("3 hens", "There are three hens.", "It has 3.")),
        *(("3", said, False) for said in ("3 cats", "not 3", "more than 3 hens", "3 or 4 hens")),
        *(
            ("3", said, False)
            for said in ("3 dozen hens", "at least 3 hens", "-3 hens", "3.5 hens")
        ),
        ("7", "3, 7", False),
        ("3 percent", "It is 3%.", True),
        ("3 percent", "It is 3.", False),
    ],
)
def test_a_number_may_stand_beside_words_of_the_question(
    answer: str, response: str, is_right: bool
) -> None:
    assert compare("How many hens are there? (3) hens", response, [answer]).exact is is_right


@pytest.mark.parametrize(
    ("answer", "response", "f1"),
    [
        ("さくら", "さくらです", 0.75),
        ("上海市", "上海", 2 / 3),
        ("上海市", "北京市", 0.0),
        ("부산", "부산에", 0.8),
        ("ตลาด", "ที่ตลาด", 8 / 11),
        ("7 May 2023", "on 2023-05-07 in Rome", 0.5),
    ],
)
def test_f1_counts_what_is_shared(answer: str, response: str, f1: float) -> None:
    assert compare("Which?", response, [answer]).f1 == pytest.approx(f1)
