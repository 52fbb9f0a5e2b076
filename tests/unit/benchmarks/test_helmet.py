"""What of a reply HELMET's rule reads."""

import pytest

from memray_eval.benchmarks.helmet import read_answer, substring_match


def test_what_follows_the_prefix_is_read_to_the_end_of_its_line() -> None:
    assert read_answer("So: ANSWER: answer: x \ny", "Answer:") == "x"
    assert read_answer("first\nsecond", "Answer:") == "first"
    with pytest.raises(ValueError, match="no answers"):
        substring_match("x", [])
