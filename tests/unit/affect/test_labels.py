"""Label sets and how they map onto each other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.affect.labels import (
    EKMAN,
    FOUR,
    FROM_EKMAN,
    GOEMOTIONS,
    LABEL_SETS,
    TO_EKMAN,
    LabelSet,
    convert,
    labels_of,
    match_labels,
)
from memray_eval.errors import ConfigError

SETS = st.sampled_from(list(LABEL_SETS.values()))


def sure(label: str) -> dict[str, float]:
    return {label: 1.0}


@given(source=SETS, target=SETS, data=st.data())
def test_the_sum_is_kept(source: LabelSet, target: LabelSet, data: st.DataObject) -> None:
    size = len(source.labels)
    told = source.normalised(data.draw(st.lists(st.floats(0, 1e6), min_size=size, max_size=size)))
    assert math.isclose(math.fsum(convert(told, source, target).values()), 1.0, abs_tol=1e-6)


@given(st.lists(st.floats(), min_size=7, max_size=7))
def test_any_weights_become_a_distribution(weights: list[float]) -> None:
    told = EKMAN.normalised(weights)
    assert tuple(told) == EKMAN.labels
    assert math.isclose(math.fsum(told.values()), 1.0, abs_tol=1e-6)
    assert all(0.0 <= share <= 1.0 for share in told.values())


def test_weights_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="3 weights for the 7 labels"):
        EKMAN.normalised([1.0, 2.0, 3.0])


def test_what_cannot_be_a_weight_counts_as_nothing() -> None:
    assert EKMAN.normalised([math.nan, -1, 0, 2, math.inf, 2, 0])["joy"] == 0.5
    assert EKMAN.normalised([math.nan] * 7) == EKMAN.uniform()


def test_tables_tell_of_all_labels_and_no_others() -> None:
    for labels in LABEL_SETS.values():
        assert set(TO_EKMAN[labels.name]) == set(labels.labels)
        assert {name for shares in TO_EKMAN[labels.name].values() for name in shares} <= set(
            EKMAN.labels
        )
        assert set(FROM_EKMAN[labels.name]) == set(EKMAN.labels)
        assert {name for shares in FROM_EKMAN[labels.name].values() for name in shares} <= set(
            labels.labels
        )


def test_four_classes_that_know_nothing_do_not_speak_against_fear() -> None:
    assert convert(FOUR.uniform(), FOUR, EKMAN) == pytest.approx(EKMAN.uniform())


def test_the_likeliest_emotion_stays_the_likeliest() -> None:
    assert convert(sure("angry"), FOUR, EKMAN)["anger"] > 0.5
    assert convert(sure("fear"), EKMAN, GOEMOTIONS)["fear"] == 1.0
    assert convert({"gratitude": 0.6, "grief": 0.4}, GOEMOTIONS, FOUR) == pytest.approx(
        {"angry": 0.0, "happy": 0.6, "neutral": 0.0, "sad": 0.4}
    )


def test_labels_of_another_set_are_named() -> None:
    with pytest.raises(ConfigError, match=r"not labels of 'four': \['joy'\]; there are: angry"):
        convert({"joy": 1.0}, FOUR, EKMAN)


def test_a_set_without_a_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mapping for the label set 'two'"):
        convert({"up": 1.0}, LabelSet(name="two", labels=("up", "down")), EKMAN)


def test_a_label_is_in_a_set_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        LabelSet(name="two", labels=("up", "up"))


@pytest.mark.parametrize("labels", LABEL_SETS.values(), ids=lambda labels: labels.name)
def test_a_distribution_tells_its_set(labels: LabelSet) -> None:
    assert labels_of(labels.uniform()) == labels


def test_a_part_of_a_distribution_tells_the_smallest_set() -> None:
    assert labels_of({"happy": 1.0}) == FOUR
    assert labels_of({"joy": 0.5, "disgust": 0.5}) == EKMAN
    with pytest.raises(ConfigError, match="no label set has all of"):
        labels_of({"joy": 0.5, "happy": 0.5})


@pytest.mark.parametrize(
    ("model_labels", "labels", "ours"),
    [
        (("Angry", "HAPPY", "neu", "sad"), FOUR, ("angry", "happy", "neutral", "sad")),
        (("anger", "joy", "fearful"), EKMAN, ("anger", "joy", "fear")),
        (("love", "joy", "sadness"), GOEMOTIONS, ("love", "joy", "sadness")),
        (("neutral", "calm", "<unk>"), FOUR, ("neutral", "neutral", "neutral")),
    ],
)
def test_a_models_labels_are_recognised(
    model_labels: tuple[str, ...], labels: LabelSet, ours: tuple[str, ...]
) -> None:
    assert match_labels(model_labels, "a model") == (labels, ours)


def test_labels_that_no_set_knows_are_named() -> None:
    with pytest.raises(
        ConfigError, match=r"some/model has labels that no label set knows: 'LABEL_0', 'boredom'"
    ):
        match_labels(("LABEL_0", "joy", "boredom"), "some/model")
