"""Speech and text become one emotion."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.affect.fusion import fuse, normalised_weights
from memray_eval.affect.labels import EKMAN, FOUR, GOEMOTIONS, LABEL_SETS, LabelSet
from memray_eval.errors import ConfigError

SETS = st.sampled_from(list(LABEL_SETS.values()))
WEIGHTS = st.floats(0, allow_infinity=False, allow_nan=False)
AFRAID = EKMAN.normalised([0, 0, 8, 0, 2, 0, 0])


def test_the_weights_are_normalised() -> None:
    assert fuse({"joy": 1.0}, {"sadness": 1.0, "disgust": 0.0}, 3, 1)["joy"] == 0.75
    assert normalised_weights(0.7, 0.3) == pytest.approx(normalised_weights(7e300, 3e300))


@pytest.mark.parametrize(
    ("speech", "text", "flag"),
    [
        (-0.1, 1, "--speech-weight -0.1"),
        (1, -1, "--text-weight -1"),
        (math.nan, 1, "--speech-weight nan"),
        (1, math.inf, "--text-weight inf"),
        (0, 0, "--speech-weight 0 --text-weight 0"),
    ],
)
def test_a_weight_that_cannot_be_is_named(speech: float, text: float, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        fuse(None, AFRAID, speech, text)


@given(SETS, SETS, WEIGHTS, WEIGHTS.filter(bool), st.data())
def test_any_two_fuse_to_a_distribution_over_the_texts_labels(
    spoken: LabelSet,
    written: LabelSet,
    speech_weight: float,
    text_weight: float,
    data: st.DataObject,
) -> None:
    speech, text = (
        labels.normalised(
            data.draw(
                st.lists(st.floats(0, 1), min_size=len(labels.labels), max_size=len(labels.labels))
            )
        )
        for labels in (spoken, written)
    )
    fused = fuse(speech, text, speech_weight, text_weight)
    assert tuple(fused) == written.labels
    assert math.isclose(math.fsum(fused.values()), 1.0, abs_tol=1e-6)


def test_speech_that_is_off_is_uniform() -> None:
    assert fuse(None, AFRAID, 0.5, 0.5)["fear"] == pytest.approx(0.8 / 2 + 1 / 14)
    assert fuse(None, AFRAID, 0, 1) == pytest.approx(AFRAID)


@pytest.mark.parametrize("spoken", [EKMAN, FOUR, GOEMOTIONS], ids=lambda labels: labels.name)
@pytest.mark.parametrize("written", [EKMAN, FOUR, GOEMOTIONS], ids=lambda labels: labels.name)
def test_speech_that_says_nothing_favours_no_label(spoken: LabelSet, written: LabelSet) -> None:
    assert fuse(spoken.uniform(), written.uniform(), 1, 1) == pytest.approx(written.uniform())


def test_sets_are_unified_to_the_texts() -> None:
    fused = fuse({"angry": 0.0, "happy": 0.0, "neutral": 0.0, "sad": 1.0}, AFRAID, 1, 1)
    assert fused["fear"] == pytest.approx((3 / 7 + 0.8) / 2)
    assert fused["sadness"] == pytest.approx(4 / 7 / 2)
