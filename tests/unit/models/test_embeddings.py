"""A text is embedded once while its vector is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from memray_eval.models import embeddings
from memray_eval.ports import FloatArray


class Lengths:
    """A model whose vectors are the lengths of texts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], **options: Any) -> FloatArray:
        self.asked += texts
        return np.array([[len(text)] for text in texts], np.float64)


def test_a_text_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "CACHED_TEXTS", 3)
    model = Lengths()
    cached = embeddings._CachedModel(model)
    for texts in (["a", "bb", "a"], ["bb", "ccc"], ["dddd", "ccc"]):
        assert cached.encode(texts, 64).ravel().tolist() == [len(text) for text in texts]
    assert model.asked == ["a", "bb", "ccc", "dddd"]
    cached.encode(["a", "dddd"], 64)  # the oldest is gone
    assert model.asked[4:] == ["a"]
