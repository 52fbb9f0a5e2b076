"""MRCR's score."""

import pytest

from memray_eval.benchmarks.mrcr import prefix_ratio
from memray_eval.types import Sample, Score
from tests.build import score_text

PREFIX = "aB3dE5gH7j"


def scored(metric: str, reply: str, *answers: str, **metadata: object) -> Score:
    fields = {"id": "1", "suite": "mrcr", "task": "2needle", "query": "q", "metadata": metadata}
    return score_text(metric, Sample.model_validate({**fields, "answers": answers}), reply)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (f"{PREFIX}once upon a time", 1.0),
        ("once upon a time", 0.0),
        (f" {PREFIX}once upon a time", 0.0),  # as the original: not even a space before it
        (f"{PREFIX.lower()}once upon a time", 0.0),
        (PREFIX, 0.0),
        (f"{PREFIX}once", 0.4),  # 2 * 4 / (4 + 16)
        ("", 0.0),
    ],
)
def test_ratio(reply: str, expected: float) -> None:
    assert prefix_ratio(reply, f"{PREFIX}once upon a time", PREFIX) == pytest.approx(expected)


def test_frequent_characters_of_a_long_answer_begin_no_match() -> None:
    reply, answer = "x = foo(bar, baz)  " * 14, "x = fooo(bar, bas)  " * 13
    ratio = prefix_ratio(PREFIX + reply, PREFIX + answer, PREFIX)
    assert ratio == pytest.approx(0.03, abs=0.005)


def test_it_compares_one_answer() -> None:
    score = scored("mrcr_ratio", "x", "x", "y", random_string_to_prepend=PREFIX)
    expected = ("error", "ValueError: MRCR compares one answer; the sample has 2")
    assert (score.status, score.error) == expected
