"""Anthropic's message batches: one request holds all calls, and nothing names a batch but its id.
So one whose submission was not answered is found by its size and time, and by the calls in it once
it has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx2

from memray_eval.errors import JudgeError
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.batches.port import (
    RESULT_BYTES,
    TRANSFER_S,
    BatchResult,
    BatchStatus,
    FoundBatch,
    SentBatch,
    odd_answer,
    read_objects,
    save,
    scratch_file,
    to_line,
)
from memray_eval.judges.providers.anthropic import open_client
from memray_eval.provider_http.replies import (
    Edge,
    HttpReply,
    InvalidReply,
    mappings_in,
    text_in,
    token_count,
)
from memray_eval.provider_http.transport import client_options

PAGE, MOST_PAGES = 100, 50
CLOCKS_S = 600.0  # how far the provider's clock may be off ours
_ENDED = ("succeeded", "errored", "canceled", "expired")
# Anthropic's types of errors as HTTP statuses: those that pass, and all others as 400
_PASSING = {
    "api_error": 500,
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "timeout_error": 504,
}


class AnthropicBatches:
    provider, has_files = "anthropic", False

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client
        self._edge = Edge(str(client.base_url), client.api_key or "")

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        return to_line({"custom_id": key, "params": request})

    async def upload(self, path: Path, tag: str) -> str:
        raise NotImplementedError("Anthropic takes no files of requests")

    async def find_upload(self, sent: SentBatch) -> str:
        return ""

    async def submit(self, sent: SentBatch, file_id: str, path: Path | None) -> str:
        assert path is not None
        # As it lies in the file: a list of 100,000 requests would be in memory thrice. `post` is
        # the SDK's way to an endpoint with a body of one's own.
        answer = await self._asked(
            lambda: self._client.post(
                "/v1/messages/batches",
                cast_to=httpx2.Response,
                content=_as_one_request(path),
                options={"timeout": TRANSFER_S},
            )
        )
        if not (batch_id := text_in(answer, "id")):
            raise odd_answer(self._edge.host, "it names no id")
        return batch_id

    async def find(
        self, sent: SentBatch, keys: Collection[str], known_ids: Collection[str]
    ) -> FoundBatch:
        unsure = list[str]()
        async for batch in self._list():
            batch_id, created = text_in(batch, "id"), _seconds(batch.get("created_at"))
            if created is not None and created < sent.created_s - CLOCKS_S:
                break  # the newest come first
            if batch_id in known_ids or sum(_counts(batch).values()) != sent.n_calls:
                continue
            if text_in(batch, "processing_status") != "ended":
                unsure.append(batch_id)
            elif await self._holds(batch_id, keys):
                return FoundBatch(batch_id)
        return FoundBatch("", tuple(unsure))

    async def status(self, batch_id: str) -> BatchStatus:
        retrieve = self._client.messages.batches.with_raw_response.retrieve
        answer = await self._asked(lambda: retrieve(batch_id))
        state, counts = text_in(answer, "processing_status"), _counts(answer)
        has_ended = state == "ended"
        return BatchStatus(
            state=state,
            done=sum(counts[name] for name in _ENDED),
            total=sum(counts.values()),
            # A batch ends as a whole; each call says by itself whether it succeeded
            end="completed" if has_ended else "",
            files=(batch_id,) if has_ended and answer.get("results_url") else (),
        )

    async def results(self, batch_id: str, status: BatchStatus) -> AsyncIterator[BatchResult]:
        if not status.files:
            return
        with scratch_file() as path:
            await self._download(batch_id, path)
            for line in read_objects(path):
                if (result := _result_of(line)) is not None:
                    yield result

    async def cancel(self, batch_id: str) -> None:
        cancel = self._client.messages.batches.with_raw_response.cancel
        await self._asked(lambda: cancel(batch_id))

    async def delete_upload(self, file_id: str) -> None:
        return

    async def _holds(self, batch_id: str, keys: Collection[str]) -> bool:
        """True if the results of a batch that has ended are those of these calls."""
        try:
            with scratch_file() as path:
                await self._download(batch_id, path)
                first = next(read_objects(path), {})
        except JudgeError:
            return False
        return first.get("custom_id") in keys

    async def _download(self, batch_id: str, path: Path) -> None:
        try:
            results = self._client.messages.batches.with_streaming_response.results
            async with results(batch_id, timeout=TRANSFER_S) as response:
                await save(response.iter_bytes(), path)
        except Exception as error:
            raise self._translate(error) from None

    async def _asked(self, send: Callable[[], Any]) -> dict[str, Any]:
        try:
            answer_of_sdk = await send()
            response: httpx2.Response = getattr(answer_of_sdk, "http_response", answer_of_sdk)
            reply = HttpReply(response.status_code, response.content)
        except Exception as error:  # of the SDK: ours from here on
            raise self._translate(error) from None
        answer = self._edge.object(reply)
        with self._edge.reading(reply):
            for name in ("id", "processing_status"):
                text_in(answer, name)
        return answer

    def _translate(self, error: BaseException) -> JudgeError:
        if isinstance(error, JudgeError):
            return error
        if isinstance(error, anthropic.APIStatusError):
            answer = error.response
            return self._edge.refusal(
                error.status_code, answer.headers.get("retry-after"), answer.content
            )
        return self._edge.lost(error)

    async def _list(self) -> AsyncIterator[Mapping[str, Any]]:
        """The workspace's batches, the newest first."""
        page_of = self._client.messages.batches.with_raw_response.list
        after: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            page = await self._asked(lambda: page_of(limit=PAGE, **after))  # noqa: B023
            try:
                for batch in mappings_in(page, "data"):
                    yield batch
                last = text_in(page, "last_id")
            except InvalidReply as odd:
                raise odd_answer(self._edge.host, str(odd)) from None
            if not page.get("has_more") or not last:
                return
            after = {"after_id": last}


async def _as_one_request(path: Path) -> AsyncIterator[bytes]:
    """The lines of a file as the one JSON object that makes a batch."""
    yield b'{"requests":['
    with path.open("rb") as file:
        separator = b""
        for line in file:
            yield separator + line.rstrip(b"\n")
            separator = b","
    yield b"]}"


def _counts(batch: Mapping[str, Any]) -> dict[str, int]:
    counts = batch.get("request_counts")
    counts = counts if isinstance(counts, Mapping) else {}
    return {name: token_count(counts.get(name)) or 0 for name in ("processing", *_ENDED)}


def _seconds(moment: Any) -> float | None:
    """RFC 3339 as epoch seconds."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None


def _result_of(line: Mapping[str, Any]) -> BatchResult | None:
    key, result = line.get("custom_id"), line.get("result")
    if not isinstance(key, str) or not isinstance(result, Mapping):
        return None
    kind = result.get("type")
    if kind == "succeeded":
        return BatchResult(key, "reply", 200, json.dumps(result.get("message")).encode())
    if kind == "expired":
        return BatchResult(key, "expired")
    if kind == "canceled":
        return BatchResult(key, "cancelled")
    error = result.get("error")
    inner = error.get("error") if isinstance(error, Mapping) else None
    named = str(inner.get("type")) if isinstance(inner, Mapping) else ""
    return BatchResult(key, "error", _PASSING.get(named, 400), json.dumps(error).encode())


def open_anthropic(spec: JudgeSpec) -> AnthropicBatches:
    options = client_options(spec.timeout_s, most_bytes=RESULT_BYTES)
    return AnthropicBatches(open_client(spec, options))
