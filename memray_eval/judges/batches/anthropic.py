"""Anthropic's message batches. Nothing names one but its id: one whose submission was not answered
is found by its size and time, and by its calls once it has ended."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx2

from memray_eval.errors import JudgeError
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.batches.journal import BatchEntry
from memray_eval.judges.batches.port import (
    RESULT_BYTES,
    TRANSFER_S,
    BatchClient,
    BatchResult,
    BatchStatus,
    count_calls,
    to_line,
)
from memray_eval.judges.providers.anthropic import open_client
from memray_eval.provider_http.replies import Edge

CLOCKS_S = 600.0  # how far the provider's clock may be off ours
_STATES = ("processing", "succeeded", "errored", "canceled", "expired")  # of calls


class AnthropicBatches(BatchClient):
    provider, _state, _after = "anthropic", "processing_status", "after_id"

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        edge = Edge(str(client.base_url), client.api_key or "")
        super().__init__(client.messages.batches, edge, anthropic.APIStatusError)
        self._client = client

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        return to_line({"custom_id": key, "params": request})

    async def submit(self, entry: BatchEntry, path: Path | None) -> str:
        assert path is not None
        # As it lies in the file: a list of 100,000 requests would be in memory thrice. `post` is
        # the SDK's way to an endpoint with a body of one's own.
        return await self._ask_for_id(
            lambda: self._client.post(
                "/v1/messages/batches",
                cast_to=httpx2.Response,
                content=_as_one_request(path),
                options={"timeout": TRANSFER_S},
            )
        )

    async def find(
        self, entry: BatchEntry, keys: Collection[str], known_ids: Collection[str]
    ) -> str | None:
        is_unsure = False
        async for batch in self._list():
            batch_id, created = batch.text("id"), _seconds(batch.get("created_at"))
            if created is not None and created < entry.created_s - CLOCKS_S:
                break  # the newest come first
            if batch_id in known_ids or count_calls(batch, _STATES) != entry.n_calls:
                continue
            if batch.text("processing_status") != "ended":
                is_unsure = True
            elif await self._holds(batch_id, keys):
                return batch_id
        return None if is_unsure else ""

    async def status(self, batch_id: str) -> BatchStatus:
        answer = await self._ask(lambda: self._batches.with_raw_response.retrieve(batch_id))
        state = answer.text("processing_status")
        has_ended = state == "ended"
        return BatchStatus(
            state=state,
            done=count_calls(answer, _STATES[1:]),
            # A batch ends as a whole; each call says by itself whether it succeeded
            end="completed" if has_ended else "",
            files=(batch_id,) if has_ended and answer.get("results_url") else (),
        )

    async def _holds(self, batch_id: str, keys: Collection[str]) -> bool:
        """True if the results of a batch that has ended are those of these calls."""
        with suppress(JudgeError):
            async for result in self.results(BatchStatus("ended", files=(batch_id,))):
                return result.key in keys
        return False

    def _open_results(self, name: str) -> Any:
        return self._batches.with_streaming_response.results(name, timeout=TRANSFER_S)

    @staticmethod
    def read_result(line: Mapping[str, Any]) -> BatchResult | None:
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
        is_wrong = isinstance(inner, Mapping) and inner.get("type") == "invalid_request_error"
        return BatchResult(key, "error", 400 if is_wrong else 500, json.dumps(error).encode())


async def _as_one_request(path: Path) -> AsyncIterator[bytes]:
    """The lines of a file as the one JSON object that makes a batch."""
    yield b'{"requests":['
    with path.open("rb") as file:
        separator = b""
        for line in file:
            yield separator + line.rstrip(b"\n")
            separator = b","
    yield b"]}"


def _seconds(moment: Any) -> float | None:
    """RFC 3339 as epoch seconds."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None


def open_anthropic(spec: JudgeSpec) -> AnthropicBatches:
    return AnthropicBatches(open_client(spec, most_bytes=RESULT_BYTES))
