"""HELMET's recall and RAG files, and the rule of the latter."""

import pytest

from memray_eval.benchmarks.helmet import read_answer, substring_match


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It was Iver Dahl.", 1.0),
        ("answer: the iver DAHL!", 1.0),
        ("Iver, Dahl", 1.0),
        ("Iver", 0.0),
        ("Diver Dahlia", 1.0),  # the original's defect: parts of words count
        ("", 0.0),
    ],
)
def test_substrings_of_normalised_text(reply: str, expected: float) -> None:
    assert substring_match(reply, ["Iver Dahl", "I. Dahl"]) == expected


def test_what_follows_the_prefix_is_read_to_the_end_of_its_line() -> None:
    assert read_answer("So: ANSWER: answer: x \ny", "Answer:") == "x"
    assert read_answer("first\nsecond", "Answer:") == "first"
    with pytest.raises(ValueError, match="no answers"):
        substring_match("x", [])
