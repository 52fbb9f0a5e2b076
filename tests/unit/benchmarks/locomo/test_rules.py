from __future__ import annotations

import json

import pytest

from memray_eval.benchmarks.locomo.rules import TASK_OF_CATEGORY, score
from tests.conftest import REPOSITORY

REAL = REPOSITORY.parent / "shared/data/conversation-memory/locomo_scored_slice.jsonl"


def test_words_are_stemmed_and_articles_and_commas_dropped() -> None:
    assert score("single_hop", "The runners, enjoyed an apple!", "runner enjoys apples") == 1.0
    assert score("single_hop", "Two dogs", "two cats") == 0.5


def test_a_list_counts_by_the_best_part_of_the_prediction() -> None:
    assert score("multi_hop", "cats, a red dog", "dog, cat") == pytest.approx((2 / 3 + 1) / 2)
    # the same words as one text
    assert score("single_hop", "cats, a red dog", "dog, cat") == pytest.approx(0.8)


def test_an_open_answer_ends_at_its_semicolon() -> None:
    assert score("open_domain", "Yes", "Yes; she says that she would") == 1.0
    assert score("temporal", "Yes", "Yes; she says") < 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("There is no information available.", 1.0),
        ("That is NOT MENTIONED in the conversation", 1.0),
        ("I don't know", 0.0),
        ("", 0.0),
    ],
)
def test_an_adversarial_question_wants_one_of_two_phrases(text: str, value: float) -> None:
    assert score("adversarial", text, "whatever") == value


def test_no_word_in_common_and_no_words_at_all_are_zero() -> None:
    assert score("single_hop", "", "the") == 0.0
    assert score("multi_hop", "", ",") == 0.0


def test_another_category_is_refused() -> None:
    with pytest.raises(ValueError, match="no category 'other'"):
        score("other", "a", "b")


@pytest.mark.skipif(not REAL.is_file(), reason="../shared/data/conversation-memory is not here")
def test_every_published_score_is_met_to_a_millionth() -> None:
    rows = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]
    assert len(rows) == 233
    for row in rows:
        own = score(TASK_OF_CATEGORY[row["category"]], row["prediction"], str(row["answer"]))
        assert own == pytest.approx(row["official_f1"], abs=1e-6)
