"""Which engine answers rows whose prompts begin alike: the one that has computed the beginning."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, defaultdict
from typing import NamedTuple

SPARE = 1.25  # of the mean rows of an engine: one above it passes others on
MOST_HOMES = 10_000  # beginnings that are remembered, the last used


class PrefixAsk(NamedTuple):
    """Rows that a client is about to ask. `own` is its engine if that is up, else ""; a busy engine
    has `places` rows."""

    pipeline: str
    client: str
    own: str
    prefix: str
    rows: int
    places: int


class PrefixRouter:
    """Gives each beginning of prompts an engine: the first, by rendezvous hashing, that is not
    above SPARE of the mean (consistent hashing with bounded loads, arXiv:1608.01350). It stays
    there while the engine is up, but for rows above SPARE of what keeps an engine busy."""

    def __init__(self) -> None:
        self._up: defaultdict[str, set[str]] = defaultdict(set)  # by pipeline
        self._asked: defaultdict[str, Counter[str]] = defaultdict(Counter)  # rows, by client
        self._rows: Counter[str] = Counter()
        self._homes: OrderedDict[tuple[str, str], str] = OrderedDict()

    def place(self, ask: PrefixAsk) -> str:
        """The name of the engine to ask; "" if none is known."""
        if ask.own:
            self.add(ask.pipeline, ask.own)
        up, key = self._up[ask.pipeline], (ask.pipeline, ask.prefix)
        if not up:
            return ""
        mean = sum(self._rows[engine] for engine in up) / len(up)
        engine = self._homes.get(key, "")
        is_home = engine in up
        if not is_home or self._rows[engine] > SPARE * max(ask.places, mean):
            ranked = sorted(up, key=lambda name: _weight(ask.prefix, name), reverse=True)
            engine = next(name for name in ranked if self._rows[name] <= SPARE * mean)
        if not is_home:
            self._homes[key] = engine
        self._homes.move_to_end(key)
        if len(self._homes) > MOST_HOMES:
            self._homes.popitem(last=False)
        self._asked[ask.client][engine] += ask.rows
        self._rows[engine] += ask.rows
        return engine

    def record_answered(self, client: str, engine: str, rows: int) -> None:
        """Notes that rows are no longer under way, if they were placed since this began."""
        rows = min(rows, self._asked[client][engine])
        self._asked[client][engine] -= rows
        self._rows[engine] -= rows

    def forget_client(self, client: str) -> None:
        """Drops what a client had under way: it was restarted."""
        self._rows.subtract(self._asked.pop(client, Counter[str]()))

    def add(self, pipeline: str, engine: str) -> None:
        """Notes that an engine is up."""
        self._up[pipeline].add(engine)

    def lose(self, pipeline: str, engine: str) -> None:
        """Moves the beginnings of a lost engine, until its own client finds it up again."""
        self._up[pipeline].discard(engine)


def _weight(prefix: str, engine: str) -> bytes:
    text = f"{prefix}\n{engine}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()
