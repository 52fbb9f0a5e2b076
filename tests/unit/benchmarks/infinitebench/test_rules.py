"""InfiniteBench's twelve rules in both versions. The figures are what 88b3daa and its head give for
these texts."""

import time

import pytest

from memray_eval.benchmarks.infinitebench import rules as infinitebench
from memray_eval.benchmarks.infinitebench.rules import Label, Version, choice_label, lone_letter
from memray_eval.types import Sample
from tests.build import score_text

NO, YES = 0.0, 1.0
CHOICE = ["the castle", "B"]
BUG = ["parse_args", "C"]


def sample(task: str, *answers: str, suite: str = "infinitebench", **metadata: object) -> Sample:
    return Sample(id="1", query="q", suite=suite, task=task, answers=answers, metadata=metadata)


@pytest.mark.parametrize(
    ("task", "label", "prediction", "v1", "v2"),
    [
        ("passkey", "71432", "The pass key is 71432.", YES, YES),
        ("passkey", "71432", "714325", NO, NO),
        ("passkey", "71432", "1 or 71432", NO, NO),
        ("passkey", ["71432", "5"], "71432", YES, YES),
        ("passkey", ["71432", "5"], "5", NO, NO),  # only the first of a list
        ("passkey", 71432, "71432", YES, YES),
        ("passkey", "71432", "", NO, NO),
        ("number_string", "0012345678", "it is 0012345678", YES, YES),
        ("number_string", "0012345678", "12345678", NO, NO),
        ("kv_retrieval", "a1-b2", 'The value is "a1-b2".', YES, YES),
        ("kv_retrieval", "a1-b2", "{x: a1-b2}", YES, YES),
        ("kv_retrieval", "a1-b2", "A1-B2", NO, NO),
        ("kv_retrieval", "a1-b2", "(a1-b2)", NO, NO),
        ("kv_retrieval", ["a1-b2"], "a1-b2", NO, YES),  # v2 takes it out of the list
        ("code_run", -4, "The return value is: -4.", YES, YES),
        ("code_run", -4, "-4 is returned", NO, NO),
        ("code_run", 4, "4.0", NO, NO),
        ("code_run", 0, "4.0", YES, YES),  # the last word is 0
        ("code_run", ["-4"], "-4", YES, YES),
        ("code_run", 4, "four", NO, NO),
        ("code_run", 4, "", NO, NO),
        ("math_find", 88, "It is 88, I think, or 90", YES, YES),
        ("math_find", 88, "-88", YES, YES),  # the sign is ignored
        ("math_find", 88, "I think 2 numbers: 88", NO, NO),
        ("math_find", 47.5, "47.5", YES, YES),
        ("math_find", 47.0, "47", YES, YES),
        ("math_find", ["47.5"], "47.5", YES, YES),
        ("math_find", 88, "none", NO, NO),
        ("math_calc", [3, 5, 4, 9], "[3, 5, 4, 9]", 1.0, 1.0),
        ("math_calc", [3, 5, 4, 9], "3 5 7 9", 0.5, 0.5),  # up to the first wrong one
        ("math_calc", [3, 5, 4, 9], "1, 3, 5, 4, 9", 0.0, 0.0),
        ("math_calc", [[3, 5, 4, 9]], "3, 5, 4, 9, 11", 1.0, 1.0),
        ("math_calc", [3, 5], "", 0.0, 0.0),
        ("math_calc", [3, 5], "9" * 5000, 0.0, 0.0),  # more digits than Python reads
        ("longbook_choice_eng", CHOICE, "B. the castle", YES, YES),
        ("longbook_choice_eng", CHOICE, "A or B", NO, YES),  # v2: the last lone letter of the line
        ("longbook_choice_eng", CHOICE, "B or A", YES, YES),  # v2 falls back on v1's first letter
        ("longbook_choice_eng", CHOICE, "the castle", YES, YES),
        ("longbook_choice_eng", CHOICE, "I say the castle", NO, NO),
        ("longbook_choice_eng", CHOICE, "The answer is: the castle", YES, YES),
        ("longbook_choice_eng", CHOICE, "My answer is: B, not A", YES, YES),
        ("longbook_choice_eng", CHOICE, "My answer is: (B)", NO, YES),
        ("longbook_choice_eng", CHOICE, "My answer is:", NO, NO),
        ("longbook_choice_eng", CHOICE, "It must be B", YES, YES),
        ("longbook_choice_eng", CHOICE, "It is\nA or C\nor B", NO, NO),
        ("longbook_choice_eng", CHOICE, "Either (A) or (B)", NO, YES),
        ("longbook_choice_eng", CHOICE, "Because of that, C", YES, YES),  # its first character is B
        ("longbook_choice_eng", CHOICE, "", NO, NO),
        ("code_debug", BUG, "C. parse_args", YES, YES),
        ("code_debug", BUG, "C", NO, YES),  # v1 wants a mark behind it
        ("code_debug", BUG, "parse_args", NO, YES),
        ("code_debug", BUG, "The answer is: parse_args", YES, YES),
        ("code_debug", BUG, "The bug is: parse_args", YES, YES),
        ("code_debug", BUG, "The answer is: `C`", YES, YES),
        # by "is:": the word "option" is blanked before
        ("code_debug", BUG, "The correct option is: C", YES, YES),
        ("code_debug", BUG, "A or C", NO, YES),
        ("code_debug", BUG, "C or A", NO, YES),
        # the character behind the prefix is dropped unseen
        ("code_debug", BUG, "The answer is:C.", NO, YES),
        ("code_debug", BUG, "D. main", NO, NO),
        ("code_debug", BUG, "", NO, NO),
        ("longdialogue_qa_eng", ["ANN", "JOE"], "It is Ann.", YES, YES),
        ("longdialogue_qa_eng", ["ANN", "JOE"], "Joe", NO, YES),  # v1 knows only the first
        ("longdialogue_qa_eng", ["ANN"], "the channel", NO, YES),  # v2 looks for a part of a word
        ("longdialogue_qa_eng", ["MARY ANN"], "Mary Ann", NO, YES),
        ("longdialogue_qa_eng", ["Ann"], "Ann", NO, YES),
        ("longdialogue_qa_eng", ["ANN"], "", NO, NO),
        ("longbook_qa_eng", ["the castle", "a fort"], "fort", 1.0, 1.0),
        ("longbook_qa_eng", [], "fort", 0.0, 0.0),
        # seed 001's example
        ("longbook_qa_chn", ["2", "两个", "二"], "有两人叫阿四。", 0.25, 0.25),
        ("longbook_qa_chn", ["两个"], "两个", 1.0, 1.0),
        ("longbook_qa_chn", ["两个"], "", 0.0, 0.0),
        ("longbook_qa_chn", ["。"], "。", 0.0, 0.0),
        (
            "longbook_sum_eng",
            "The cat lay on the mat.\nIt slept well.",
            "The cat sat on the mat.\nIt slept.",
            0.8235294117647,
            0.8235294117647,
        ),
        ("longbook_sum_eng", ["a b d", "a b c d"], "a b c", 0.8571428571429, 0.8571428571429),
        ("longbook_sum_eng", "three two one", "one two three", 1 / 3, 1 / 3),
        ("longbook_sum_eng", "y z", "x y z\ny z", 0.5714285714286, 0.5714285714286),
        ("longbook_sum_eng", "the", "the the the", 0.5, 0.5),
        ("longbook_sum_eng", "run cat", "running cats", 0.0, 0.0),  # no stemmer
        ("longbook_sum_eng", "中文", "中文", 0.0, 0.0),  # no Latin words
        ("longbook_sum_eng", "a", "", 0.0, 0.0),
    ],
)
def test_twelve_rules_in_two_versions(
    task: str, label: Label, prediction: str, v1: float, v2: float
) -> None:
    assert infinitebench.score(task, prediction, label, "v1") == pytest.approx(v1)
    assert infinitebench.score(task, prediction, label, "v2") == pytest.approx(v2)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A, B or C", "C"),
        ("none\nA then D\nB", "D"),
        ("A-B", "B"),
        ("AB", None),
        ("答案是B", None),
        ("答案是 B。", "B"),
        ("", None),
    ],
)
def test_the_lone_letter_is_the_last_on_the_first_line_that_has_one(
    text: str, expected: str | None
) -> None:
    assert lone_letter(text, "ABCD") == expected


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
        (sample("math_calc", "3", label=[3, 5]), "3 5", 1.0),  # the published label goes first
        # and the starting value is dropped
        (sample("math_calc", label=[3, 5], model="gpt4"), "1 3 5", 1.0),
        (sample("passkey", "71432", suite="needles"), "71432", 1.0),
        (sample("math_calc", label=[3, 5], suite="needles"), "3 6", 0.5),
    ],
)
def test_labels_come_from_metadata_else_from_the_answers(
    prompted: Sample, text: str, value: float
) -> None:
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
