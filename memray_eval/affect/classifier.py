"""Classifies emotion in text with a small model that comes with the package: multinomial logistic
regression, in numpy alone.

classifier.npz is made by tests/bench/train_emotions.py from GoEmotions with Ekman's labels;
affect/README.md says how good it is and under which licence its data stand."""

from __future__ import annotations

import importlib.resources
import io
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memray_eval.affect.features import (
    Vocabulary,
    char_hashes,
    normalise,
    word_hash,
    word_hashes,
    words,
)
from memray_eval.affect.labels import EKMAN, Distribution

FILE = "classifier.npz"
READABLE_SHARE = 0.5  # of a text's words must be known: the classifier has seen English alone
_SAYS = re.compile(r"[^\W\d_]|[^\x00-\x7f]")  # a letter, or a sign beyond ASCII such as an emoji


class ClassifierWeights(NamedTuple):
    """One row a feature, the words' first: int8, times `scale` (one a label) and the feature's
    TF-IDF, plus `bias`. `share` is what the characters' features count beside the words'."""

    words: Vocabulary
    chars: Vocabulary
    rows: NDArray[np.int8]
    scale: NDArray[np.float32]
    bias: NDArray[np.float32]
    share: float

    def logits(self, tokens: list[str]) -> NDArray[np.float64]:
        """What each label of EKMAN scores for the words of a normalised text."""
        word_rows, word_weights = self.words.weigh(word_hashes(tokens))
        char_rows, char_weights = self.chars.weigh(char_hashes(tokens))
        rows = self.rows[np.concatenate((word_rows, char_rows + len(self.words.hashes)))]
        weights = np.concatenate((word_weights, char_weights * self.share))
        return np.asarray(
            (weights[:, None] * rows).sum(axis=0) * self.scale + self.bias, dtype=np.float64
        )


def load(path: Path) -> ClassifierWeights:
    """Raises OSError, or ValueError for a file whose labels are not EKMAN's."""
    return _parse(path.read_bytes())


@cache
def shipped() -> ClassifierWeights:
    """The classifier that comes with the package."""
    return _parse((importlib.resources.files("memray_eval.affect") / FILE).read_bytes())


def _parse(data: bytes) -> ClassifierWeights:
    with np.load(io.BytesIO(data), allow_pickle=False) as held:
        if tuple(held["labels"]) != EKMAN.labels:
            raise ValueError(
                f"the classifier's labels are {', '.join(held['labels'])}, not "
                f"{', '.join(EKMAN.labels)}"
            )
        return ClassifierWeights(
            words=Vocabulary(held["word_hashes"], held["word_idf"].astype(np.float32)),
            chars=Vocabulary(held["char_hashes"], held["char_idf"].astype(np.float32)),
            rows=held["rows"],
            scale=held["scale"],
            bias=held["bias"],
            share=float(held["share"]),
        )


class ClassifierEmotion:
    """Probabilities of the emotions in a message of English. Uniform where less than READABLE_SHARE
    of the words (emoji among them) are ones it has seen, so for empty texts, numbers and most other
    languages."""

    name = "classifier"
    labels = EKMAN

    def __init__(self, weights: ClassifierWeights | None = None) -> None:
        self._weights = weights or shipped()

    async def infer(self, texts: Sequence[str]) -> list[Distribution]:
        return [self._infer_one(text) for text in texts]

    def _infer_one(self, text: str) -> Distribution:
        tokens = words(normalise(text))
        if not self._is_readable(tokens):
            return self.labels.uniform()
        logits = self._weights.logits(tokens)
        return self.labels.normalised(np.exp(logits - logits.max()).tolist())

    def _is_readable(self, tokens: list[str]) -> bool:
        saying = {token for token in tokens if _SAYS.search(token)}
        hashes = np.array([word_hash(token) for token in saying], dtype=np.uint32)
        return bool(saying) and float(self._weights.words.known(hashes).mean()) >= READABLE_SHARE
