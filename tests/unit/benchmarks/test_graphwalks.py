"""GraphWalks' three readings of a reply, and their scores."""

import pytest

from memray_eval.types import Sample
from tests.build import score_text

RIGHT = ["a1", "b2", "c3"]


def scored(metric: str, reply: str, *answers: str, task: str = "bfs"):  # type: ignore[no-untyped-def]
    sample = Sample(id="1", suite="graphwalks", task=task, query="q", answers=answers)
    return score_text(metric, sample, reply)


@pytest.mark.parametrize(
    ("reply", "strict", "flexible", "harness"),
    [
        ("Final Answer: [a1, b2, c3]", 1.0, 1.0, 1.0),
        ("So.\nFinal Answer: [a1, b2, c3]\n", 1.0, 1.0, 1.0),
        ("Final Answer: ['a1',\"b2\", c3,]", 1.0, 1.0, 1.0),
        ("Final Answer: [a1, b2, c3]\nI hope that helps.", 0.0, 1.0, 0.0),
        ("final answer: [a1, b2, c3]", 0.0, 0.0, 0.0),
        ("Final Answer: []", 0.0, 0.0, 0.0),
        ("Final Answer: a1", 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
        ("Final Answer: [a1, a1, x9]", 0.4, 0.4, 0.4),
        ("**Final Answer:[a1 , b2 , c3]**", 1.0, 1.0, 1.0),
        ("Final Answer: (a1, b2, c3)", 0.0, 0.0, 0.0),
    ],
)
def test_readings(reply: str, strict: float, flexible: float, harness: float) -> None:
    assert scored("graphwalks_f1", reply, *RIGHT).value == pytest.approx(strict)
    assert scored("graphwalks_flexible_f1", reply, *RIGHT).value == pytest.approx(flexible)
    assert scored("graphwalks_harness_f1", reply, *RIGHT).value == pytest.approx(harness)


def test_both_empty_is_right_but_for_the_harness() -> None:
    values = {
        name: scored(f"graphwalks_{name}", "Final Answer: []").value
        for name in ("f1", "flexible_f1", "harness_f1")
    }
    assert values == {"f1": 1.0, "flexible_f1": 1.0, "harness_f1": 0.0}
    assert scored("graphwalks_f1", "There are none.").value == 0.0  # it lists nothing
    assert scored("graphwalks_f1", "Final Answer: [a1]").value == 0.0
