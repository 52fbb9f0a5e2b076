"""Calls that wait for their batch, on this machine's disk: files of requests, each as large as a
provider takes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from memray_eval.judges.batches.journal import BatchedCall
from memray_eval.judges.limits.budget import NOTHING, Spending
from memray_eval.storage.scratch import ScratchFolder

# Of one batch, as published (documents of April to November 2026). How much may be queued differs
# by model and account: a provider says so when it is too much.
MAX_BYTES: Mapping[str, int] = {"openai": 200_000_000, "anthropic": 256_000_000}


@dataclass
class PackedFile:
    """Requests and their calls, line by line, in two files, which are open until `close`."""

    requests: Path
    calls: Path
    n_calls: int = 0
    n_bytes: int = 0
    tokens: int = 0
    most: Spending = NOTHING

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
    """The files of one judge: one that is being filled, and those that wait to be sent. `most_of`
    says what a call may cost that has a prompt of this many tokens."""

    max_calls: int
    max_bytes: int
    most_of: Callable[[int], Spending]
    waiting: deque[PackedFile] = field(default_factory=deque)
    _open: PackedFile | None = None
    _n_files: int = 0
    _scratch: ScratchFolder = field(default_factory=lambda: ScratchFolder("batches"))

    def add(self, line: bytes, call: BatchedCall) -> None:
        packed = self._open
        if packed is not None and (
            packed.n_calls >= self.max_calls or packed.n_bytes + len(line) > self.max_bytes
        ):
            self.close_file()
        if self._open is None:
            self._open = self._new_file()
        self._open.write(line, call.line, call.tokens, self.most_of(call.tokens))

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

    def _new_file(self) -> PackedFile:
        self._n_files += 1
        stem = self._scratch.path / f"{self._n_files:06d}"
        return PackedFile(stem.with_suffix(".jsonl"), stem.with_suffix(".calls"))
