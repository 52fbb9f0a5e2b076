"""InfiniteBench's twelve rules in both versions: what labels and answers they take."""

import time
from functools import partial

import pytest

from memray_eval.benchmarks.infinitebench import rules as infinitebench
from memray_eval.benchmarks.infinitebench.rules import Label, Version, choice_label, lone_letter
from memray_eval.types import Sample
from tests.build import score_text
from tests.unit.benchmarks.records import task_sample

CHOICE = ["the castle", "B"]
BUG = ["parse_args", "C"]


sample = partial(task_sample, "infinitebench")


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_math_find_raises_on_a_decimal_where_the_label_is_whole(version: Version) -> None:
    with pytest.raises(ValueError, match=r"88\.0"):
        infinitebench.score("math_find", "88.0", 88, version)
    score = score_text(f"infinitebench_{version}", sample("math_find", "88", label=88), "88.0")
    assert (score.status, score.value) == ("error", None)


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        ("poetry", "x", "no rule for task 'poetry'"),
        ("math_find", "many", "'many' is no number"),
        ("math_calc", [], "no answer"),
        ("math_calc", [[]], "empty label"),
        ("passkey", [], "no answer"),
    ],
)
def test_labels_that_a_rule_cannot_read(task: str, label: Label, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infinitebench.score(task, "1", label)


def test_choice_labels_get_their_letter() -> None:
    options = ["the moat", "the castle", "B", "the gate"]
    assert choice_label("the castle", options) == ("the castle", "B")
    assert choice_label(["the gate"], options) == ("the gate", "D")
    assert choice_label(["the gate", "A"], ()) == ("the gate", "A")  # as published
    with pytest.raises(ValueError, match="not one of the options"):
        choice_label("the keep", options)
    with pytest.raises(ValueError, match="not one of the options"):
        choice_label([], options)


def test_the_lone_letter_is_the_last_on_the_first_line_that_has_one() -> None:
    letters = {"none\nA then D\nB": "D", "A-B": "B", "AB": None, "答案是B": None}
    assert {text: lone_letter(text, "ABCD") for text in letters} == letters


@pytest.mark.parametrize(
    ("prompted", "text", "value"),
    [
        (sample("longbook_qa_chn", "2", "两个", "二"), "有两人叫阿四。", 0.25),
        (sample("math_calc", "3, 5, 4, 9"), "3 5 4 9", 1.0),
        (sample("math_calc", "3", "5"), "3 5", 1.0),
        (sample("math_find", "88"), "88", 1.0),
        (sample("code_run", "-4"), "-4", 1.0),
        (sample("kv_retrieval", "k1", rules="v1"), "k1", 1.0),
        (sample("longbook_choice_eng", "the castle", options=["the moat", "the castle"]), "B", 1.0),
        (sample("longbook_qa_eng"), "x", 0.0),
        (sample("math_calc", "3", label=[3, 5]), "3 5", 1.0),
        (sample("math_calc", label=[3, 5], model="gpt4"), "1 3 5", 1.0),  # its start is dropped
        (task_sample("needles", "passkey", "71432"), "71432", 1.0),
        (task_sample("needles", "math_calc", label=[3, 5]), "3 6", 0.5),
        (sample("math_calc", label=[3, 5]), "9" * 5000, 0.0),  # more digits than Python reads
    ],
)
def test_labels_of_metadata_come_before_answers(prompted: Sample, text: str, value: float) -> None:
    assert score_text("rule_score", prompted, text).value == pytest.approx(value)


def test_without_an_answer_or_options_the_unit_is_an_error() -> None:
    tasks = "passkey kv_retrieval code_run math_find math_calc longbook_choice_eng"
    for task in tasks.split():
        assert score_text("rule_score", sample(task), "1").status == "error", task


def test_answers_of_100_000_characters_are_scored_in_seconds() -> None:
    text = "A B C D " * 12_500
    label: dict[str, Label] = {
        "longbook_choice_eng": CHOICE,
        "code_debug": BUG,
        "math_calc": list(range(29_999)),
        "longbook_sum_eng": "a b c d e f g h. " * 60,
    }
    started = time.process_time()
    for version in infinitebench.VERSIONS:
        for task in infinitebench.TASK_RULES[version]:
            infinitebench.score(task, text, label.get(task, ["5"]), version)
    assert time.process_time() - started < 10
