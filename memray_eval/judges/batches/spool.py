"""Calls that wait for their batch, and their requests on this machine's disk: files that are each
as large as a provider takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memray_eval.judges.batches.journal import BatchedCall
from memray_eval.judges.limits.budget import NOTHING, Spending
from memray_eval.storage.scratch import ScratchFolder

# Of one batch, as published (documents of April to November 2026). How much may be queued differs
# by model and account: a provider says so when it is too much.
MAX_BYTES: Mapping[str, int] = {"openai": 200_000_000, "anthropic": 256_000_000}


@dataclass
class PackedFile:
    """Calls, and their requests in a file, line by line."""

    path: Path
    calls: list[BatchedCall] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, line: bytes, call: BatchedCall) -> None:
        with self.path.open("ab") as file:
            file.write(line)
        self.calls.append(call)
        self.n_bytes += len(line)


@dataclass
class Spool:
    """The files of one judge that wait to be sent. `most_of` says what a call may cost that has a
    prompt of this many tokens."""

    max_calls: int
    max_bytes: int
    most_of: Callable[[int], Spending]
    waiting: deque[PackedFile] = field(default_factory=deque)
    _n_files: int = 0
    _scratch: ScratchFolder = field(default_factory=lambda: ScratchFolder("batches"))

    def add(self, line: bytes, call: BatchedCall) -> None:
        last = self.waiting[-1] if self.waiting else None
        is_full = last is None or len(last.calls) >= self.max_calls
        if last is None or is_full or last.n_bytes + len(line) > self.max_bytes:
            self.waiting.append(last := self._new_file())
        last.add(line, call)

    def most(self, packed: PackedFile) -> Spending:
        return sum((self.most_of(call.tokens) for call in packed.calls), NOTHING)

    def halve(self, packed: PackedFile) -> PackedFile:
        """Takes the second half of a file's calls into one of its own, which waits first."""
        first, second = self._new_file(), self._new_file()
        with packed.path.open("rb") as lines:
            for number, (line, call) in enumerate(zip(lines, packed.calls, strict=True)):
                (first if number < len(packed.calls) // 2 else second).add(line, call)
        packed.path.unlink()
        self.waiting.appendleft(second)
        return first

    def discard(self) -> None:
        """Deletes all files."""
        self.waiting.clear()
        self._scratch.close()

    def _new_file(self) -> PackedFile:
        self._n_files += 1
        return PackedFile(self._scratch.path / f"{self._n_files:06d}.jsonl")
