"""A provider's batch API as a run sees it: batches, their states and results, and the files of
requests and results on this machine."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from memray_eval.errors import JudgeError, Unreadable
from memray_eval.judges.batches.journal import BatchEntry
from memray_eval.provider_http.replies import Edge, HttpReply, InvalidReply, JsonObject, token_count
from memray_eval.storage.leases import ScratchFolder

# Asked too often, too large, or in conflict: none of these says that batches are not taken
_NO_REFUSAL = (408, 409, 413, 429)
RESULT_BYTES = 4_000_000_000  # of a file of results that is downloaded
TRANSFER_S = 900.0  # for a file on its way
PAGE, MOST_PAGES = 100, 50  # of a list


@dataclass(frozen=True)
class BatchStatus:
    """Progress of a batch: the provider's own `state`, and how many calls are `done` (None: not
    known). An `end` of "failed" means that no call was made, for `reason`: `is_full`, its queue is,
    so that it may be sent again; `is_refused`, its model takes no batches. `files` are where
    results lie."""

    state: str
    done: int | None = None
    end: Literal["", "completed", "failed", "expired", "cancelled"] = ""
    reason: str = ""
    is_full: bool = False
    is_refused: bool = False
    files: tuple[str, ...] = ()

    @property
    def why_without_result(self) -> str:
        """The outcome of its calls that it tells nothing of."""
        if self.end == "failed":
            return "full" if self.is_full else "missing" if self.state == "gone" else "invalid"
        return {"expired": "expired", "cancelled": "cancelled"}.get(self.end, "missing")


class BatchResult(NamedTuple):
    """The outcome of one call: a completion, an error of its own (`status` as over HTTP), or
    nothing, as the batch expired or was cancelled. `body` is what the provider says."""

    key: str
    kind: Literal["reply", "error", "expired", "cancelled"]
    status: int = 200
    body: bytes = b""


class BatchClient(ABC):
    """One provider's batch API. Every method raises JudgeError, and nothing else of the SDK's. The
    SDKs are generated alike: `_state` and `_after` name a batch's state and a list's cursor, and
    `status_errors` are raised for a status that is no success."""

    provider: ClassVar[str]
    _state: ClassVar[str]
    _after: ClassVar[str]

    def __init__(self, batches: Any, edge: Edge, *status_errors: type[Exception]) -> None:
        self._batches, self._edge, self._status_errors = batches, edge, status_errors

    @abstractmethod
    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        """One call, as a line of a file of requests."""

    async def upload(self, path: Path, tag: str) -> str:
        """Sends a file of requests; returns its id, "" if a batch takes it along."""
        return ""

    async def delete_upload(self, file_id: str) -> None:
        return

    @abstractmethod
    async def submit(self, entry: BatchEntry, path: Path | None) -> str:
        """Makes a batch of the entry's uploaded file, or of the one at `path`; returns its id."""

    @abstractmethod
    async def find(
        self, entry: BatchEntry, keys: Collection[str], known_ids: Collection[str]
    ) -> str | None:
        """The id of a batch that was submitted, by its tag or by the `keys` of its calls; "" if
        there is none, None while one that runs may be it. `known_ids` are those of others."""

    @abstractmethod
    async def status(self, batch_id: str) -> BatchStatus: ...

    async def cancel(self, batch_id: str) -> None:
        await self._ask(lambda: self._batches.with_raw_response.cancel(batch_id))

    async def results(self, status: BatchStatus) -> AsyncIterator[BatchResult]:
        """The outcomes of the calls of a batch that has ended, in any order. A line that cannot be
        read is left out: its call counts as one without a result."""
        for name in status.files:
            with ScratchFolder("batch") as folder:
                path = Path(folder) / "file"
                try:
                    async with self._open_results(name) as response:
                        with path.open("wb") as file:
                            async for piece in response.iter_bytes():
                                file.write(piece)
                except Exception as error:
                    raise self._edge.translate(error, self._status_errors) from None
                for line in read_objects(path):
                    if (result := self.read_result(line)) is not None:
                        yield result

    @staticmethod
    @abstractmethod
    def read_result(line: Mapping[str, Any]) -> BatchResult | None:
        """A line of a file of results; None if it is none."""

    @abstractmethod
    def _open_results(self, name: str) -> Any:
        """A file of results as the SDK streams it."""

    async def _ask(self, send: Callable[[], Awaitable[Any]]) -> JsonObject:
        """The object that the provider answers; its id and state are texts."""
        try:
            reply = HttpReply.of_sdk(await send())
        except Exception as error:  # of the SDK: ours from here on
            raise self._edge.translate(error, self._status_errors) from None
        answer = self._edge.object(reply)
        with self._edge.reading(reply):
            for name in ("id", self._state):
                answer.text(name)
        return answer

    async def _ask_for_id(self, send: Callable[[], Awaitable[Any]]) -> str:
        if not (named := (await self._ask(send)).text("id")):
            raise _odd_answer(self._edge.host, "it names no id")
        return named

    async def _list(self) -> AsyncIterator[JsonObject]:
        """The batches of the account, the newest first."""
        page_of, after = self._batches.with_raw_response.list, dict[str, str]()
        for _ in range(MOST_PAGES):
            page = await self._ask(lambda: page_of(limit=PAGE, **after))  # noqa: B023
            try:
                entries = page.objects("data")
                for entry in entries:
                    yield entry
                after = {self._after: entries[-1].text("id")} if entries else {}
            except InvalidReply as odd:
                raise _odd_answer(self._edge.host, str(odd)) from None
            if not page.get("has_more") or not after:
                return


def count_calls(batch: Mapping[str, Any], states: Collection[str]) -> int:
    """How many calls of a batch are in these states, as its provider counts."""
    counts = batch.get("request_counts")
    counts = counts if isinstance(counts, Mapping) else {}
    return sum(token_count(counts.get(state)) or 0 for state in states)


def refuses_batches(error: JudgeError) -> bool:
    """True if a provider takes no batch of this model: its calls are made one by one."""
    if isinstance(error, Unreadable) or error.status is None:
        return False
    return 400 <= error.status < 500 and error.status not in _NO_REFUSAL


def _odd_answer(host: str, what: str) -> Unreadable:
    """The error of an answer with a success status that is not what it has to be."""
    return Unreadable(f"{host} answered 200, but oddly: {what}", status=200)


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
