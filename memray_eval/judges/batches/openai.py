"""OpenAI's batches: a JSONL file of chat completions is uploaded, and a batch made of it."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import openai

from memray_eval.errors import cut
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
from memray_eval.judges.providers.openai import open_client
from memray_eval.provider_http.openai_sdk import edge_for
from memray_eval.provider_http.replies import token_count

ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
TAG = "memray_eval"  # the metadata by which a batch is found again
_ENDS = ("completed", "failed", "expired", "cancelled")
_FULL = ("token_limit_exceeded", "rate_limit", "request_limit")
_REFUSED = ("model_not_found", "model_not_supported", "not_supported", "unsupported", "mismatched")


class OpenAIBatches(BatchClient):
    provider, _state, _after = "openai", "status", "after"

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        super().__init__(client.batches, edge_for(client), openai.APIStatusError)
        self._client = client

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        return to_line({"custom_id": key, "method": "POST", "url": ENDPOINT, "body": request})

    async def upload(self, path: Path, tag: str) -> str:
        async def send() -> Any:
            with path.open("rb") as file:
                create = self._client.files.with_raw_response.create
                return await create(
                    file=(f"{tag}.jsonl", file), purpose="batch", timeout=TRANSFER_S
                )

        return await self._ask_for_id(send)

    async def delete_upload(self, file_id: str) -> None:
        await self._ask(lambda: self._client.files.with_raw_response.delete(file_id))

    async def submit(self, entry: BatchEntry, path: Path | None) -> str:
        create = self._batches.with_raw_response.create
        return await self._ask_for_id(
            lambda: create(
                input_file_id=entry.file_id,
                endpoint=ENDPOINT,
                completion_window="24h",
                metadata={TAG: entry.tag},
            )
        )

    async def find(
        self, entry: BatchEntry, keys: Collection[str], known_ids: Collection[str]
    ) -> str | None:
        async for batch in self._list():
            metadata = batch.get("metadata")
            if isinstance(metadata, Mapping) and metadata.get(TAG) == entry.tag:
                return batch.text("id")
        return ""

    async def status(self, batch_id: str) -> BatchStatus:
        answer = await self._ask(lambda: self._batches.with_raw_response.retrieve(batch_id))
        state = answer.text("status")
        end: Any = state if state in _ENDS else ""
        errors = answer.get("errors")
        data = errors.get("data") if isinstance(errors, Mapping) else None
        reasons = [e for e in data if isinstance(e, Mapping)] if isinstance(data, list) else []
        text = " ".join(f"{e.get('code')} {e.get('message')}" for e in reasons).lower()
        files = [answer.get(kind) for kind in ("output_file_id", "error_file_id")]
        return BatchStatus(
            state=state,
            done=count_calls(answer, ("completed", "failed")),
            end=end,
            reason="; ".join(cut(str(e.get("message") or e.get("code")), 200) for e in reasons),
            is_full=any(word in text for word in _FULL),
            is_refused=any(word in text for word in _REFUSED),
            files=tuple(str(name) for name in files if name),
        )

    def _open_results(self, name: str) -> Any:
        return self._client.files.with_streaming_response.content(name, timeout=TRANSFER_S)

    @staticmethod
    def read_result(line: Mapping[str, Any]) -> BatchResult | None:
        """A line of an output or error file. Of a call that failed `error` may be null, and the
        error the body of its response."""
        key, response, error = line.get("custom_id"), line.get("response"), line.get("error")
        if not isinstance(key, str):
            return None
        if isinstance(response, Mapping) and response.get("body") is not None:
            body, status = response["body"], token_count(response.get("status_code")) or 0
            content = json.dumps(body).encode()
            if status >= 300 or (isinstance(body, Mapping) and body.get("error")):
                return BatchResult(key, "error", status if status >= 300 else 400, content)
            return BatchResult(key, "reply", 200, content)
        code = error.get("code") if isinstance(error, Mapping) else None
        if code == "batch_expired":
            return BatchResult(key, "expired")
        if code == "batch_cancelled":
            return BatchResult(key, "cancelled")
        return BatchResult(key, "error", 500, json.dumps({"error": error}).encode())


def open_openai(spec: JudgeSpec) -> OpenAIBatches:
    return OpenAIBatches(open_client(spec, most_bytes=RESULT_BYTES))
