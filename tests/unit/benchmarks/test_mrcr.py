"""MRCR's score."""

import pytest

from memray_eval.benchmarks.mrcr import prefix_ratio
from tests.build import build_sample, score_text

PREFIX = "aB3dE5gH7j"


def test_frequent_characters_of_a_long_answer_begin_no_match() -> None:
    reply, answer = "x = foo(bar, baz)  " * 14, "x = fooo(bar, bas)  " * 13
    ratio = prefix_ratio(PREFIX + reply, PREFIX + answer, PREFIX)
    assert ratio == pytest.approx(0.03, abs=0.005)


def test_it_compares_one_answer() -> None:
    about = {"metadata": {"random_string_to_prepend": PREFIX}, "answers": ("x", "y")}
    score = score_text("mrcr_ratio", build_sample(suite="mrcr", **about), "x")
    expected = ("error", "ValueError: MRCR compares one answer; the sample has 2")
    assert (score.status, score.error) == expected
