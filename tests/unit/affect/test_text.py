"""Text emotion of transformers models: their labels and scores become ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memray_eval.affect.labels import FOUR, GOEMOTIONS
from memray_eval.affect.text import TransformersEmotion
from memray_eval.errors import ConfigError, GenerationError


class FakeModel:
    """Gives every text the same scores, and keeps the texts."""

    def __init__(self, **scores: float) -> None:
        self.scores, self.batches = scores, list[list[str]]()

    def __call__(self, texts: list[str]) -> list[Any]:
        self.batches.append(texts)
        return [self.scores] * len(texts)


def transformer(model: FakeModel) -> TransformersEmotion:
    return TransformersEmotion("transformers:fake", list(model.scores), model)


def test_a_models_labels_decide_the_set_and_its_scores_are_made_to_sum_to_one() -> None:
    model = FakeModel(gratitude=0.9, joy=0.6, neutral=0.5)
    backend = transformer(model)
    first = asyncio.run(backend.infer(["thanks", "a \ud800 half"]))[0]
    assert backend.labels == GOEMOTIONS
    assert first["gratitude"] == pytest.approx(0.45)
    assert first["grief"] == 0.0
    assert model.batches == [["thanks", "a ? half"]]
    assert asyncio.run(backend.infer([])) == []


def test_labels_of_one_meaning_are_summed() -> None:
    backend = transformer(FakeModel(happy=0.25, joyful=0.25, calm=0.25, neutral=0.25))
    assert backend.labels == FOUR
    assert asyncio.run(backend.infer(["hm"])) == [
        {"angry": 0.0, "happy": 0.5, "neutral": 0.5, "sad": 0.0}
    ]


def test_a_model_whose_labels_mean_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="'LABEL_0', 'LABEL_1'"):
        transformer(FakeModel(LABEL_0=0.5, LABEL_1=0.5))


def test_a_model_that_fails_is_a_generation_error() -> None:
    def fail(texts: list[str]) -> Any:
        raise RuntimeError("out of memory")

    backend = TransformersEmotion("transformers:fake", ["joy", "fear"], fail)
    with pytest.raises(GenerationError, match="transformers:fake failed"):
        asyncio.run(backend.infer(["hm"]))
