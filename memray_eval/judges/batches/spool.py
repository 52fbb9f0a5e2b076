"""Calls that wait for their batch, on this machine's disk: files of requests, each as large as a
provider takes, and an index of the state of each call. Memory does not grow with the calls."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from memray_eval.config.sections import BatchConfig, Provider
from memray_eval.judges.batches.journal import BatchedCall, BatchEntry
from memray_eval.judges.limits.budget import NOTHING, Spending
from memray_eval.storage.scratch import ScratchFolder

# held: it waits, or is in a batch under way; kept: its batch brought its verdict, in the store of
# paid calls; live: it is asked one by one
CallState = Literal["held", "kept", "live"]
PAGES_KB = 4096


@dataclass(frozen=True)
class BatchLimits:
    """What a provider takes: calls and bytes of one batch, prompt tokens of all that wait or run
    (None: not known), and batches at a time."""

    max_calls: int
    max_bytes: int
    enqueued_tokens: int | None
    at_once: int


# Smaller than what providers allow: one that fails or expires takes less with it, and the calls of
# one batch are what the driver has in memory.
CALLS = 10_000
# Published (documents of April to November 2026): OpenAI 50,000 calls and 200 MB; Anthropic 100,000
# and 256 MB; Google 2 GB of a file, and 100 batches at a time. How many prompt tokens may be queued
# differs by model and account: OpenAI and Google say so when it is too much.
PUBLISHED: Mapping[Provider, BatchLimits] = {
    "openai": BatchLimits(CALLS, 200_000_000, None, 100),
    "anthropic": BatchLimits(CALLS, 256_000_000, None, 100),
    "google": BatchLimits(CALLS, 2_000_000_000, None, 100),
}


def limits_of_batches(options: BatchConfig, provider: Provider, judge: str) -> BatchLimits:
    """A judge's limits: what the job says for it or its provider, else what is published."""
    own, published = options.limits.get(judge) or options.limits.get(provider), PUBLISHED[provider]
    if own is None:
        return published
    return BatchLimits(
        max_calls=own.calls or published.max_calls,
        max_bytes=round(own.mb * 1e6) if own.mb else published.max_bytes,
        enqueued_tokens=own.enqueued_tokens or published.enqueued_tokens,
        at_once=own.at_once or published.at_once,
    )


@dataclass
class PackedFile:
    """Requests and their calls, line by line, in two files, which are open until `close`. `ticket`
    is what the budget gave for it; `entry` is there once the journal has it."""

    requests: Path
    calls: Path
    n_calls: int = 0
    n_bytes: int = 0
    tokens: int = 0
    most: Spending = NOTHING
    ticket: int = 0
    entry: BatchEntry | None = None

    def __post_init__(self) -> None:
        self._files = self.requests.open("wb"), self.calls.open("wb")

    def write(self, line: bytes, call: bytes, tokens: int, most: Spending) -> None:
        for file, written in zip(self._files, (line, call), strict=True):
            file.write(written)
        self.n_calls, self.n_bytes = self.n_calls + 1, self.n_bytes + len(line)
        self.tokens, self.most = self.tokens + tokens, self.most + most

    def close(self) -> None:
        for file in self._files:
            file.close()

    def delete(self) -> None:
        for path in (self.requests, self.calls):
            path.unlink(missing_ok=True)


@dataclass
class Spool:
    """The files of one judge, on the disk: one that is being filled, and those that wait to be
    sent. `most_of` says what a call may cost that has a prompt of this many tokens."""

    limits: BatchLimits
    most_of: Callable[[int], Spending]
    waiting: deque[PackedFile] = field(default_factory=deque)
    n_added: int = 0
    _open: PackedFile | None = None
    _n_files: int = 0
    _scratch: ScratchFolder = field(default_factory=lambda: ScratchFolder("batches"))

    def add(self, line: bytes, call: BatchedCall) -> bool:
        """Adds a call; returns whether a file has become full, and waits."""
        was_full = self._open is not None and not self._fits(self._open, line, call)
        if was_full:
            self.close_file()
        if self._open is None:
            self._open = self._new_file()
        self._open.write(line, call.line, call.tokens, self.most_of(call.tokens))
        self.n_added += 1
        return was_full

    def close_file(self) -> None:
        """Ends the file that is being filled, which then waits."""
        if self._open is not None:
            self._open.close()
            self.waiting.append(self._open)
            self._open = None

    def halve(self, packed: PackedFile) -> PackedFile:
        """Takes the second half of a file's calls into one of its own, which waits first."""
        with packed.requests.open("rb") as requests, packed.calls.open("rb") as calls:
            pairs = zip(requests, calls, strict=True)
            first = self._pack(islice(pairs, packed.n_calls // 2))
            self.waiting.appendleft(self._pack(pairs))
        packed.delete()
        return first

    def _pack(self, pairs: Iterable[tuple[bytes, bytes]]) -> PackedFile:
        packed = self._new_file()
        for line, call in pairs:
            tokens = int(json.loads(call)[3])
            packed.write(line, call, tokens, self.most_of(tokens))
        packed.close()
        return packed

    def discard(self) -> None:
        """Deletes all files that are not sent."""
        self.close_file()
        self.waiting.clear()
        self._scratch.close()

    def _fits(self, packed: PackedFile, line: bytes, call: BatchedCall) -> bool:
        limits = self.limits
        return (
            packed.n_calls < limits.max_calls
            and packed.n_bytes + len(line) <= limits.max_bytes
            and (
                limits.enqueued_tokens is None
                or packed.tokens + call.tokens <= limits.enqueued_tokens
            )
        )

    def _new_file(self) -> PackedFile:
        self._n_files += 1
        stem = self._scratch.path / f"{self._n_files:06d}"
        return PackedFile(stem.with_suffix(".jsonl"), stem.with_suffix(".calls"))


class CallEntry(NamedTuple):
    state: CallState
    tag: str


class CallStateIndex:
    """Keys of calls, with their state and the batch that they are in."""

    def __init__(self) -> None:
        self._folder = ScratchFolder("keys")
        self._connection = sqlite3.connect(self._folder.path / "keys.sqlite", isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{PAGES_KB}"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE keys (key TEXT PRIMARY KEY, state TEXT, tag TEXT) WITHOUT ROWID"
        )

    def get(self, key: str) -> CallEntry | None:
        query = "SELECT state, tag FROM keys WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else CallEntry(*row)

    def put(self, keys: Iterable[str], state: CallState, tag: str = "") -> None:
        rows = ((key, state, tag) for key in keys)
        self._connection.execute("BEGIN")
        self._connection.executemany("REPLACE INTO keys VALUES (?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def free(self, keys: Iterable[str]) -> None:
        """These calls may be noted again."""
        self._connection.execute("BEGIN")
        self._connection.executemany("DELETE FROM keys WHERE key = ?", ((key,) for key in keys))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
        self._folder.close()
