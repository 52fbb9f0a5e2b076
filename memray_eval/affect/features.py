"""Extracts the classifier's features from a text: hashes of its words, word pairs and character
n-grams, and their TF-IDF vector.

Training and inference share this file, so they see the same features.
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint32]

CHAR_SIZES = range(2, 6)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[!?]+|[^\w\s]")
_STRETCHED = re.compile(r"(.)\1{2,}", re.DOTALL)
_MASKS = re.compile(r"\[(?:NAME|RELIGION)\]")
_APOSTROPHES = str.maketrans("’‘`´", "''''")
_BASE, _MIX = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
_SPACE = ord(" ")


def normalise(text: str) -> str:
    """Lower case, one kind of apostrophe, no letter more than twice in a row, GoEmotions' masks
    out."""
    return _STRETCHED.sub(r"\1\1", _MASKS.sub(" ", text).lower().translate(_APOSTROPHES))


def words(text: str) -> list[str]:
    """Words, runs of ! and ?, and every other sign by itself (so also each emoji), of a normalised
    text."""
    return _WORD.findall(text)


def word_hashes(tokens: list[str]) -> Hashes:
    """A hash of each word and of each pair of neighbours, repeats kept."""
    pairs = (f"{first} {second}" for first, second in pairwise(tokens))
    return np.array([word_hash(gram) for gram in (*tokens, *pairs)], dtype=np.uint32)


def word_hash(gram: str) -> int:
    return zlib.crc32(gram.encode("utf-8", "surrogatepass"))


def char_hashes(tokens: list[str]) -> Hashes:
    """A hash of each n-gram (CHAR_SIZES) of characters within a word and its margins, repeats
    kept."""
    codes = np.frombuffer(
        f" {' '.join(tokens)} ".encode("utf-32-le", "surrogatepass"), dtype=np.uint32
    ).astype(np.uint64)
    spaces = np.concatenate(([0], np.cumsum(codes == _SPACE)))
    rolling, found = codes, []
    for size in range(2, CHAR_SIZES.stop):
        if len(codes) < size:
            break
        rolling = rolling[:-1] * _BASE + codes[size - 1 :]
        starts = np.arange(len(rolling))
        within = spaces[starts + size - 1] == spaces[starts + 1]  # no space but at either end
        if size in CHAR_SIZES:
            found.append((rolling[within] + np.uint64(size)) * _MIX >> np.uint64(32))
    return np.concatenate(found).astype(np.uint32) if found else np.zeros(0, np.uint32)


class Vocabulary(NamedTuple):
    """Known hashes, sorted, and the inverse document frequency of each."""

    hashes: Hashes
    idf: NDArray[np.float32]

    def known(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of the hashes are here."""
        rows = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.asarray(self.hashes[rows] == hashes)

    def weigh(self, hashes: Hashes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The rows of the known hashes, each once, and their weights: (1 + ln count) x idf, of
        Euclidean length 1. Empty where none is known."""
        unique, counts = np.unique(hashes, return_counts=True)
        is_known = self.known(unique)
        rows, counts = np.searchsorted(self.hashes, unique[is_known]), counts[is_known]
        weights = (1.0 + np.log(counts)) * self.idf[rows]
        return rows, weights / np.linalg.norm(weights) if len(weights) else weights
