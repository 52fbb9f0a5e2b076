"""The journal of a run's batches, in its folder: what is about to be sent is written before it is,
and the provider's ids after. So a session that dies at any step leaves behind what the next one
needs to find what was sent, from any machine.

batches/TAG.json         a batch and how far it is (BatchEntry)
batches/TAG.calls.jsonl  its calls, a line each: key, unit and metric that pay for it, tokens"""

import hashlib
import json
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from memray_eval.errors import DataError
from memray_eval.judges.limits.budget import NOTHING, Spending
from memray_eval.results.run_folder import BATCHES, RunFolder
from memray_eval.storage.leases import ScratchFolder
from memray_eval.types import Frozen

# Each step is written when it is done. `dropped`: it never reached the provider, or its queue.
# `refused`: the provider takes no batches of this judge. Both cost nothing. `uploaded` was an
# intent's second step in earlier versions.
State = Literal["intent", "uploaded", "submitted", "collected", "dropped", "refused"]
OPEN: tuple[State, ...] = ("intent", "uploaded", "submitted")
ENTRY, CALLS = ".json", ".calls.jsonl"


class BatchEntry(Frozen):
    """One batch. `tag` is what the provider keeps with it; `most` what it may cost, `spent` what it
    did, `lost` of that for calls that brought no verdict; `outcomes` count its calls. Times in
    epoch seconds. Earlier versions had further fields."""

    model_config = ConfigDict(extra="ignore")

    tag: str
    judge: str
    provider: str
    state: State = "intent"
    n_calls: int
    most: Spending
    created_s: float
    submitted_s: float | None = None
    cancelled_s: float | None = None
    collected_s: float | None = None
    file_id: str = ""
    batch_id: str = ""
    status: str = ""
    note: str = ""
    outcomes: Mapping[str, int] = Field(default_factory=dict)
    spent: Spending = Spending()
    lost: Spending = Spending()

    @property
    def is_open(self) -> bool:
        return self.state in OPEN


class BatchedCall(NamedTuple):
    """A call of a batch: its key in the store of paid calls, the unit and the metric whose score
    says what it cost, and about how many tokens its prompt has at most."""

    key: str
    unit: str
    metric: str
    tokens: int


class BatchJournal:
    """Reads and writes the journal of one run; the calls of one batch at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def new_tag(self) -> str:
        """A name that no other batch has, of letters, digits and hyphens."""
        run = hashlib.blake2b(self._folder.run_id.encode(), digest_size=4).hexdigest()
        return f"memray-{run}-{secrets.token_hex(6)}"

    def load(self) -> list[BatchEntry]:
        """The run's batches, the earliest first. Raises DataError where one cannot be read."""
        names = [name for name in self._folder.list_batch_files() if name.endswith(ENTRY)]
        entries = list[BatchEntry]()
        for name, data in zip(names, self._folder.read_batch_files(names), strict=True):
            try:
                entries.append(BatchEntry.model_validate_json(data))
            except ValidationError:
                raise DataError(
                    f"{self._folder.path}/batches/{name} is no batch of this version; put it back "
                    "from a copy, or delete it, with its calls, to have them paid again"
                ) from None
        return sorted(entries, key=lambda entry: (entry.created_s, entry.tag))

    def begin(self, entry: BatchEntry, calls: Iterable[BatchedCall]) -> None:
        """Writes what is about to be sent: the calls first, so that an entry is never without."""
        lines = "".join(f"{json.dumps(call)}\n" for call in calls)
        self._folder.write(f"{BATCHES}/{entry.tag}{CALLS}", lines)
        self.write(entry)

    def write(self, entry: BatchEntry) -> None:
        self._folder.write(f"{BATCHES}/{entry.tag}{ENTRY}", entry.model_dump_json(indent=1))

    def read_calls(self, tag: str) -> Iterator[BatchedCall]:
        """Raises DataError if they cannot be read."""
        try:
            (data,) = self._folder.read_batch_files([tag + CALLS])
            for line in data.splitlines():
                key, unit, metric, tokens = json.loads(line)
                yield BatchedCall(str(key), str(unit), str(metric), int(tokens))
        except (ValueError, TypeError):
            raise DataError(f"{self._folder.path}/batches/{tag}{CALLS} cannot be read") from None


def spent_in_batches(entries: Iterable[BatchEntry]) -> Spending:
    """What the batches that have ended cost."""
    return sum((entry.spent for entry in entries), Spending())


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
