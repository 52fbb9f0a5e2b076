"""Emotions by their labels and in texts."""

import asyncio
import math
from typing import Any

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
    TransformersEmotion,
    convert,
    fuse,
    labels_of,
    normalised_weights,
)
from memray_eval.errors import ConfigError

SETS = st.sampled_from(list(LABEL_SETS.values()))


@given(source=SETS, target=SETS, data=st.data())
def test_the_sum_is_kept(source: LabelSet, target: LabelSet, data: st.DataObject) -> None:
    size = len(source.labels)
    any_shares = st.lists(st.floats(0, 1e6), min_size=size, max_size=size)
    converted = convert(source.normalised(data.draw(any_shares)), source, target)
    assert math.isclose(math.fsum(converted.values()), 1.0, abs_tol=1e-6)


@given(st.lists(st.floats(), min_size=7, max_size=7))
def test_any_weights_become_a_distribution(weights: list[float]) -> None:
    distribution = EKMAN.normalised(weights)
    assert tuple(distribution) == EKMAN.labels
    assert math.isclose(math.fsum(distribution.values()), 1.0, abs_tol=1e-6)
    assert all(0.0 <= share <= 1.0 for share in distribution.values())


def test_what_cannot_be_a_weight_counts_as_nothing() -> None:
    assert EKMAN.normalised([math.nan, -1, 0, 2, math.inf, 2, 0])["joy"] == 0.5
    assert EKMAN.normalised([math.nan] * 7) == EKMAN.uniform()
    with pytest.raises(ValueError, match="shorter"):
        EKMAN.normalised([1.0, 2.0, 3.0])


def test_tables_tell_of_all_labels_and_no_others() -> None:
    for name, own in LABEL_SETS.items():
        for table, of, to in ((TO_EKMAN[name], own, EKMAN), (FROM_EKMAN[name], EKMAN, own)):
            assert set(table) == set(of.labels)
            assert {label for shares in table.values() for label in shares} <= set(to.labels)


def test_the_likeliest_emotion_stays_the_likeliest() -> None:
    assert convert({"angry": 1.0}, FOUR, EKMAN)["anger"] > 0.5
    assert convert({"fear": 1.0}, EKMAN, GOEMOTIONS)["fear"] == 1.0
    four = convert({"gratitude": 0.6, "grief": 0.4}, GOEMOTIONS, FOUR)
    assert four == pytest.approx({"angry": 0.0, "happy": 0.6, "neutral": 0.0, "sad": 0.4})
    # four classes that know nothing do not speak against fear
    assert convert(FOUR.uniform(), FOUR, EKMAN) == pytest.approx(EKMAN.uniform())


def test_a_distribution_has_one_set() -> None:
    assert [labels_of(labels.uniform()) for labels in LABEL_SETS.values()] == [*LABEL_SETS.values()]
    with pytest.raises(ConfigError, match="no label set has the labels"):
        labels_of({"joy": 0.5, "happy": 0.5})


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (FOUR, {"Angry": "angry", "HAPPY": "happy", "neu": "neutral", "sad": "sad"}),
        (EKMAN, {"anger": "anger", "joy": "joy", "fearful": "fear"}),
        (GOEMOTIONS, {"love": "love", "joy": "joy", "sadness": "sadness"}),
        (FOUR, {"neutral": "neutral", "calm": "neutral", "<unk>": "neutral"}),
    ],
)
def test_a_models_labels_are_recognised(labels: LabelSet, named: dict[str, str]) -> None:
    for label, our in named.items():
        model = FakeModel(**dict.fromkeys(named, 0.0) | {label: 0.3})
        (scaled,) = model.infer("hm")
        assert (model.backend.labels, scaled[our]) == (labels, 1.0)


def test_labels_that_no_set_knows_are_named() -> None:
    with pytest.raises(ConfigError, match=r"some/model .* 'LABEL_0', 'boredom'"):
        TransformersEmotion("some/model", ("LABEL_0", "joy", "boredom"), lambda texts: [])


WEIGHTS = st.floats(0, allow_infinity=False, allow_nan=False)
AFRAID = EKMAN.normalised([0, 0, 8, 0, 2, 0, 0])
EVEN = normalised_weights(1, 1)


def test_the_weights_are_normalised() -> None:
    assert normalised_weights(3, 1) == (0.75, 0.25)
    assert normalised_weights(0.7, 0.3) == pytest.approx(normalised_weights(7e300, 3e300))


@pytest.mark.parametrize(
    ("speech", "text", "flag"),
    [
        *((-0.1, 1, "--speech-weight -0.1"), (1, -1, "--text-weight -1")),
        *((math.nan, 1, "--speech-weight nan"), (1, math.inf, "--text-weight inf")),
        (0, 0, "--speech-weight 0 --text-weight 0"),
    ],
)
def test_a_weight_that_cannot_be_is_named(speech: float, text: float, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        normalised_weights(speech, text)


@given(SETS, SETS, WEIGHTS, WEIGHTS.filter(bool), st.data())
def test_any_two_fuse_to_a_distribution_over_the_texts_labels(
    spoken: LabelSet, written: LabelSet, of_speech: float, of_text: float, data: st.DataObject
) -> None:
    speech, text = (
        labels.normalised([data.draw(st.floats(0, 1)) for _ in labels.labels])
        for labels in (spoken, written)
    )
    fused = fuse(speech, text, normalised_weights(of_speech, of_text))
    assert tuple(fused) == written.labels
    assert math.isclose(math.fsum(fused.values()), 1.0, abs_tol=1e-6)


def test_sets_are_unified_to_the_texts_and_speech_that_is_off_is_uniform() -> None:
    fused = fuse({"angry": 0.0, "happy": 0.0, "neutral": 0.0, "sad": 1.0}, AFRAID, EVEN)
    assert fused["fear"] == pytest.approx((3 / 7 + 0.8) / 2)
    assert fused["sadness"] == pytest.approx(4 / 7 / 2)
    assert fuse(None, AFRAID, EVEN)["fear"] == pytest.approx(0.8 / 2 + 1 / 14)
    assert fuse(None, AFRAID, normalised_weights(0, 1)) == pytest.approx(AFRAID)


@given(SETS, SETS)
def test_speech_that_says_nothing_favours_no_label(spoken: LabelSet, written: LabelSet) -> None:
    assert fuse(spoken.uniform(), written.uniform(), EVEN) == pytest.approx(written.uniform())


class FakeModel:
    """Gives every text the same scores, and keeps the texts."""

    def __init__(self, **scores: float) -> None:
        self.scores, self.batches = scores, list[list[str]]()
        self.backend = TransformersEmotion("m", list(scores), self)

    def __call__(self, texts: list[str]) -> list[Any]:
        self.batches.append(texts)
        return [self.scores] * len(texts)

    def infer(self, *texts: str) -> list[Any]:
        return [*asyncio.run(self.backend.infer(list(texts)))]


def test_a_models_labels_decide_the_set_and_its_scores_are_made_to_sum_to_one() -> None:
    model = FakeModel(gratitude=0.9, joy=0.6, neutral=0.5)
    first, _ = model.infer("thanks", "a \ud800 half")
    assert model.backend.labels == GOEMOTIONS
    assert (first["gratitude"], first["grief"]) == (pytest.approx(0.45), 0.0)
    assert model.batches == [["thanks", "a ? half"]]
    assert model.infer() == []
    of_one_meaning = FakeModel(happy=0.25, joyful=0.25, calm=0.25, neutral=0.25)
    assert of_one_meaning.infer("hm") == [{"angry": 0.0, "happy": 0.5, "neutral": 0.5, "sad": 0.0}]


def test_a_model_that_fails_is_a_reason_for_each_text() -> None:
    def fail(texts: list[str]) -> Any:
        raise RuntimeError("out of memory")

    backend = TransformersEmotion("transformers:fake", ["joy", "fear"], fail)
    reason = "transformers:fake failed: RuntimeError: out of memory"
    assert asyncio.run(backend.infer(["hm", "ah"])) == [reason, reason]
