"""A provider's batch API as a run sees it: batches, their states and results, and the files of
requests and results on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from memray_eval.errors import JudgeError, Unreadable

# Asked too often, too large, or in conflict: none of these says that batches are not taken
_NO_REFUSAL = (408, 409, 413, 429)
RESULT_BYTES = 4_000_000_000  # of a file of results that is downloaded
TRANSFER_S = 900.0  # for a file on its way


@dataclass(frozen=True)
class BatchStatus:
    """Progress of a batch. `state` is the provider's own word, `done` of `total` calls are through
    (None: it does not say). An `end` of "failed" means that no call was made, for `reason`;
    `is_full` that the account has too much in its queue, so that it may be sent again later, and
    `is_refused` that its model takes no batches. `files` are where results lie."""

    state: str
    done: int | None = None
    total: int | None = None
    end: Literal["", "completed", "failed", "expired", "cancelled"] = ""
    reason: str = ""
    is_full: bool = False
    is_refused: bool = False
    files: tuple[str, ...] = ()

    @property
    def why_without_result(self) -> str:
        """Why those of its calls have no result that it tells nothing of."""
        if self.end == "failed":
            return "full" if self.is_full else "missing" if self.state == "gone" else "invalid"
        return {"expired": "expired", "cancelled": "cancelled"}.get(self.end, "missing")


class BatchResult(NamedTuple):
    """What became of one call: a completion, an error of its own (`status` as over HTTP), or
    nothing, as the batch expired or was cancelled first. Of the first two `body` is what the
    provider says."""

    key: str
    kind: Literal["reply", "error", "expired", "cancelled"]
    status: int = 200
    body: bytes = b""


class FoundBatch(NamedTuple):
    """A search for a batch whose submission was never answered: its id, "" if there is none.
    `unsure`: batches that may be it, of a provider that shows what is in one only at its end."""

    id: str = ""
    unsure: tuple[str, ...] = ()


class SentBatch(Protocol):
    """What is known of a batch before its submission is answered."""

    @property
    def tag(self) -> str: ...

    @property
    def n_calls(self) -> int: ...

    @property
    def n_bytes(self) -> int: ...

    @property
    def created_s(self) -> float: ...

    @property
    def model(self) -> str: ...


class BatchClient(Protocol):
    """One provider's batch API. Every method raises JudgeError, and nothing else of the SDK's."""

    provider: str
    has_files: bool  # requests are uploaded as a file, before the batch is made of it

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        """One call, as a line of a file of requests."""
        ...

    async def upload(self, path: Path, tag: str) -> str:
        """Sends a file of requests; returns its id."""
        ...

    async def find_upload(self, sent: SentBatch) -> str:
        """The id of a file that was uploaded whole; "" if there is none."""
        ...

    async def submit(self, sent: SentBatch, file_id: str, path: Path | None) -> str:
        """Makes a batch of an uploaded file, or of the one at `path`; returns its id."""
        ...

    async def find(
        self, sent: SentBatch, keys: Collection[str], known_ids: Collection[str]
    ) -> FoundBatch:
        """Looks for a batch that was submitted, by its tag or by the `keys` of its calls. `known`
        are ids of others."""
        ...

    async def status(self, batch_id: str) -> BatchStatus: ...

    def results(self, batch_id: str, status: BatchStatus) -> AsyncIterator[BatchResult]:
        """What became of the calls of a batch that has ended, in any order. A line that cannot be
        read is left out: its call counts as one without a result."""
        ...

    async def cancel(self, batch_id: str) -> None: ...

    async def delete_upload(self, file_id: str) -> None: ...


def refuses_batches(error: JudgeError) -> bool:
    """True if a provider says that it takes no batch of this model, or none at all: its calls are
    made one by one."""
    return error.status is not None and 400 <= error.status < 500 and not is_passing(error)


def is_passing(error: JudgeError) -> bool:
    """True if the same request may succeed later."""
    if isinstance(error, Unreadable) or error.status is None:
        return True
    return error.status in _NO_REFUSAL or error.status >= 500 or error.status < 400


def odd_answer(host: str, what: str) -> Unreadable:
    """The error of an answer with a success status that is not what it has to be."""
    return Unreadable(f"{host} answered 200, but oddly: {what}", status=200)


@contextmanager
def scratch_file() -> Iterator[Path]:
    """A path for a file that goes with the block."""
    with tempfile.TemporaryDirectory(prefix="memray-eval-batch-") as folder:
        yield Path(folder) / "file"


async def save(pieces: AsyncIterator[bytes], path: Path) -> None:
    with path.open("wb") as file:
        async for piece in pieces:
            file.write(piece)


def read_objects(path: Path) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a file, one a line; what is none is left out. Lines end at \\n alone: a
    model may write any other separator, and SDKs that read lines as text break there."""
    with path.open("rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def to_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
