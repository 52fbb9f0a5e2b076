"""Stores in this process, which need no key and no server: every turn verbatim, ranked by BM25 or
by cosine of embeddings. What they hold is in the run's folder, and outlives the process."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from memray_eval.benchmarks.conversations.conversation import (
    Rank,
    Session,
    rank_by_vectors,
    rank_by_words,
)
from memray_eval.stores.port import Entry, JsonLines, Store


class VerbatimStore(Store):
    """A store that keeps each turn as it is. A subclass ranks them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held = dict[str, list[Entry]]()
        self._ranks = dict[str, Rank]()

    def open(self, partition: str) -> None:
        self._held_in(partition)

    def ingest(self, partition: str, session: Session) -> None:
        whole = (session.id, session.date)
        turns = session.turns
        self._add(partition, [Entry(t.id, f"{t.speaker}: {t.text}", *whole) for t in turns])

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        entries = self._held_in(partition)
        if not entries:
            return []
        if partition not in self._ranks:
            texts = [f"{entry.date}\n{entry.text}" for entry in entries]
            self._ranks[partition] = self._rank(texts)
        order = np.argsort(-self._ranks[partition](query), kind="stable")[:k]
        return [entries[number] for number in order]

    def entries(self, partition: str) -> Sequence[Entry]:
        return tuple(self._held_in(partition))

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        left = [] if ids is None else [e for e in self._held_in(partition) if e.id not in ids]
        self._file(partition).write(entry._asdict() for entry in left)
        self._held[partition] = left
        self._ranks.pop(partition, None)

    def _rank(self, texts: Sequence[str]) -> Rank:
        raise NotImplementedError

    def _add(self, partition: str, entries: Sequence[Entry]) -> None:
        held = {entry.id for entry in self._held_in(partition)}
        new = [entry for entry in entries if entry.id not in held]
        self._file(partition).append(entry._asdict() for entry in new)
        self._held[partition] += new
        self._ranks.pop(partition, None)

    def _held_in(self, partition: str) -> list[Entry]:
        if partition not in self._held:
            lines = self._file(partition).read()
            self._held[partition] = [Entry(**line) for line in lines]
        return self._held[partition]

    def _file(self, partition: str) -> JsonLines:
        name = blake2b(partition.encode(), digest_size=8).hexdigest()
        return JsonLines(f"{self._folder}/{name}.entries")


class Bm25Store(VerbatimStore):
    """Turns by BM25 (Lucene's, over stems)."""

    def _rank(self, texts: Sequence[str]) -> Rank:
        return rank_by_words(texts)


class EmbeddingStore(VerbatimStore):
    """Turns by cosine of a local embedding model. Raises EmbeddingError if it cannot be loaded."""

    def __init__(self, folder: str, model: str = "local") -> None:
        super().__init__(folder)
        self._model = model

    def _rank(self, texts: Sequence[str]) -> Rank:
        return rank_by_vectors(texts, self._model)
