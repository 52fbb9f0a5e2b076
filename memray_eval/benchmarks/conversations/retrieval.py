"""Retrieval from a conversation: turns or sessions, ranked by BM25 or cosine of embeddings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from memray_eval.benchmarks.conversations.conversation import Session, from_context
from memray_eval.config.sections import EmbeddingConfig
from memray_eval.ports import FloatArray
from memray_eval.text_processing.matching import STOPWORDS, stem
from memray_eval.types import Retrieval

_WORD = re.compile(r"\w+")
_KEPT = 2  # indexes at hand; questions on one conversation stand together
Rank = Callable[[str], FloatArray]  # a question -> one score a unit


class _Index(NamedTuple):
    """The units of a conversation, each a session with some of its turns, and how they rank."""

    units: tuple[Session, ...]
    rank: Rank


def retrieve(context: str, query: str, how: Retrieval) -> list[Session]:
    """The `how.k` units that rank highest, best first; of equals the earlier one. A turn comes as
    its session with this turn alone. Raises EmbeddingError if the model cannot be loaded."""
    index = _index(context, how.by, how.unit, how.model)
    order = np.argsort(-index.rank(query), kind="stable")[: how.k]
    return [index.units[number] for number in order]


@lru_cache(_KEPT)
def _index(context: str, by: str, unit: str, model: str) -> _Index:
    sessions = from_context(context)
    if unit == "turn":
        units = tuple(part._replace(turns=(turn,)) for part in sessions for turn in part.turns)
    else:
        units = sessions
    texts = [
        "\n".join([part.date, *(f"{turn.speaker}: {turn.text}" for turn in part.turns)])
        for part in units
    ]
    return _Index(units, rank_by_words(texts) if by == "bm25" else rank_by_vectors(texts, model))


def rank_by_words(texts: Sequence[str]) -> Rank:
    """BM25 as Lucene has it (k1 1.5, b 0.75), over stems without stopwords, by bm25s."""
    import bm25s  # scipy and numba, where they are installed: a second

    words = [word_stems(text) for text in texts]
    if not any(words):
        return lambda query: np.zeros(len(texts))
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend="numpy")
    index.index(words, show_progress=False)
    return lambda query: np.asarray(index.get_scores(word_stems(query)), dtype=np.float64)


def word_stems(text: str) -> list[str]:
    return [stem(word) for word in _WORD.findall(text.casefold()) if word not in STOPWORDS]


def rank_by_vectors(texts: Sequence[str], model: str) -> Rank:
    """Cosine by a local embedding model. Raises EmbeddingError."""
    encode = load_encoder(model)
    vectors = encode(texts)

    def rank(query: str) -> FloatArray:
        scores: FloatArray = vectors @ encode([query])[0]
        return scores

    return rank


def load_encoder(model: str) -> Callable[[Sequence[str]], FloatArray]:
    """A local embedding model, loaded once a process, by any thread. Raises EmbeddingError."""
    from memray_eval.models.embeddings import LocalEmbedder  # seconds to import

    return LocalEmbedder(EmbeddingConfig(model=model)).encode
