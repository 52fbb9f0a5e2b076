"""LV-Eval's score: the gate of keywords, and what is behind it."""

from __future__ import annotations

import pytest

from memray_eval.benchmarks.longbench.rules import qa_f1, qa_f1_zh
from memray_eval.benchmarks.lveval import rules
from memray_eval.types import Sample, Score
from tests.build import score_text


def scored(task: str, reply: str, *answers: str, metric: str = "rule_score", **about: str) -> Score:
    sample = Sample(id="1", suite="lveval", task=task, query="q", answers=answers, metadata=about)
    return score_text(metric, sample, reply)


@pytest.mark.parametrize(
    ("prediction", "keywords", "expected"),
    [
        ("Iver Dahl built the boat", "Iver Dahl", 2 * 4 / (4 + 4)),
        ("the boat was built", "Iver Dahl", 0.0),  # two words of the answer, no keyword
        ("the boat was built", None, 2 * 2 / (3 + 4)),
        ("the boat was built", "", 2 * 2 / (3 + 4)),
        # One keyword of five: a recall of exactly a fifth is enough
        ("Iver built", "Iver Dahl of old Skagen", 2 * 2 / (2 + 4)),
        ("Iver built", "Iver Dahl of old north Skagen", 0.0),
        # Common words count for nothing, though they are divided by
        ("he was Iver", "he was of it", 0.0),
    ],
)
def test_the_gate_of_english_keywords(
    prediction: str, keywords: str | None, expected: float
) -> None:
    answer = "Iver Dahl built a boat"
    assert rules.gated_f1(prediction, answer, keywords) == pytest.approx(expected)


def test_keywords_without_a_word_are_an_error() -> None:
    with pytest.raises(ValueError, match="answer_keywords: they have no word to look for"):
        rules.gated_f1("x", "y", "...")
    assert scored("loogle_SD_mixup", "x", "y", answer_keywords="the").status == "error"


def test_the_gate_of_chinese_keywords() -> None:
    answer = "三位医生在上海的医院工作"
    assert rules.gated_f1_zh(answer, answer, "上海 医院") == 1.0
    assert rules.gated_f1_zh("医生在工作", answer, "上海 医院") == 0.0
    assert rules.gated_f1_zh("在上海工作", answer, "上海 医院") > 0.0  # a half of them
    # Without keywords the answer is what is looked for
    assert rules.gated_f1_zh("工作", answer, None) == 0.0
    assert rules.gated_f1_zh("医生在上海的医院", answer, None) > 0.5


def test_facts_have_longbenchs_f1_and_dureader_a_rouge_without_common_words() -> None:
    for text in ("Ludwig Beethoven", "Beethoven", "", "a beethoven!"):
        assert rules.TASK_RULES["factrecall_en"](text, "Ludwig Beethoven", "x") == qa_f1(
            text, ["Ludwig Beethoven"]
        )
    for text in ("贝多芬", "路德维希·贝多芬", "无"):
        assert rules.TASK_RULES["factrecall_zh"](text, "贝多芬", "x") == qa_f1_zh(text, ["贝多芬"])
    rouge = rules.TASK_RULES["dureader_mixup"]
    assert rouge("发动机可以使用汽油", "发动机的汽油", None) == pytest.approx(
        rouge("发动机使用汽油", "发动机汽油", None)
    )
    assert rouge("的和是", "发动机", None) == 0.0
