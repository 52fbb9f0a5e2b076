"""RULER's and BABILong's rules, and the table of the needles."""

import pytest

from memray_eval.benchmarks import babilong
from memray_eval.benchmarks.needles import suite as ruler
from memray_eval.types import Sample
from tests.build import score_text


def sample(
    task: str, *answers: str, suite: str = "needles", query: str = "q", **fields: object
) -> Sample:
    return Sample.model_validate(
        {"id": "1", "query": query, "suite": suite, "task": task, "answers": answers, **fields}
    )


@pytest.mark.parametrize(
    ("prediction", "answers", "recall", "found_any"),
    [
        ("1234567 and 7654321", ["1234567", "7654321"], 1.0, 1.0),
        ("1234567", ["1234567", "7654321", "5", "9"], 0.5, 1.0),
        # the original's defect: a part of a longer number counts
        ("12345678", ["1234567"], 1.0, 1.0),
        ("PARIS", ["Paris"], 1.0, 1.0),
        ("答案是北京。", ["北京", "上海"], 0.5, 1.0),
        ("a\tb", ["a\nb"], 1.0, 1.0),  # what does not print becomes a new line
        ("", ["x"], 0.0, 0.0),
        ("none", ["x"], 0.0, 0.0),
    ],
)
def test_ruler(prediction: str, answers: list[str], recall: float, found_any: float) -> None:
    assert ruler.recall(prediction, answers) == recall
    assert ruler.any_answer(prediction, answers) == found_any


@pytest.mark.parametrize(
    ("task", "prediction", "answer", "question", "expected"),
    [
        ("qa1", "Mary is in the kitchen.", "kitchen", "Where is Mary?", 1.0),
        ("qa1", "KITCHEN", "kitchen", "Where is Mary?", 1.0),
        ("qa1", "The kitchen or the garden.", "kitchen", "Where is Mary?", 0.0),
        # the first sentence only
        ("qa1", "The kitchen. Then the garden.", "kitchen", "Where is Mary?", 1.0),
        ("qa1", "Let me see. The kitchen.", "kitchen", "Where is Mary?", 0.0),
        (
            "qa3",
            "She left the office for the garden",
            "garden",
            "Where was the milk before the office?",
            1.0,
        ),
        ("qa1", "kitchen <example> garden", "kitchen", "Where is Mary?", 1.0),
        # the original looks for it after lowering
        ("qa1", "kitchen Question garden", "kitchen", "Where is Mary?", 0.0),
        ("qa5", "Bill", "Bill", "Who gave the milk?", 1.0),
        ("qa7", "none", "none", "How many?", 0.0),  # "one" is a part of it
        ("qa6", "I know: yes", "yes", "Is it?", 0.0),  # and "no" of this
        ("qa8", "milk, apple", "apple,milk", "What is carried?", 1.0),
        ("qa8", "milk", "apple,milk", "What is carried?", 0.0),
        ("qa8", "milk, apple, football", "apple,milk", "What is carried?", 0.0),
        ("qa19", "n,e", "n,e", "How do you go?", 1.0),
        ("qa1", "", "kitchen", "Where is Mary?", 0.0),
    ],
)
def test_babilong(task: str, prediction: str, answer: str, question: str, expected: float) -> None:
    assert babilong.only_label(prediction, answer, question, babilong.LABELS[task]) == expected
    assert (
        score_text("babilong", sample(task, answer, query=question), prediction).value == expected
    )


def test_babilong_knows_twenty_tasks_and_takes_the_samples_own_classes() -> None:
    assert set(babilong.LABELS) == {f"qa{number}" for number in range(1, 21)}
    assert score_text("babilong", sample("chat", "x"), "x").status == "not_applicable"
    assert (
        score_text(
            "babilong", sample("rooms", "attic", classes=["attic", "cellar"]), "In the attic"
        ).value
        == 1.0
    )
    assert score_text("babilong", sample("qa1", "kitchen", "garden"), "kitchen").status == "error"
    seen = score_text("rule_score", sample("chat", "x", metadata={"rule": "babilong"}), "x").status
    assert seen == "error"
