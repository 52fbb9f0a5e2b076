"""OpenAI's batches: a JSONL file of chat completions is uploaded, and a batch made of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import openai

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
from memray_eval.judges.providers.openai import open_client
from memray_eval.provider_http.openai_sdk import edge_for, to_http_reply, to_judge_error
from memray_eval.provider_http.replies import (
    InvalidReply,
    mappings_in,
    text_in,
    token_count,
)
from memray_eval.provider_http.transport import client_options

ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
TAG = "memray_eval"  # the metadata by which a batch is found again
PAGE, MOST_PAGES = 100, 50
_ENDS: Mapping[str, Any] = {
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
_FULL = ("token_limit_exceeded", "rate_limit", "request_limit")
_REFUSED = ("model_not_found", "model_not_supported", "not_supported", "unsupported", "mismatched")


class OpenAIBatches:
    provider, has_files = "openai", True

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client, self._edge = client, edge_for(client)

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        return to_line({"custom_id": key, "method": "POST", "url": ENDPOINT, "body": request})

    async def upload(self, path: Path, tag: str) -> str:
        async def send() -> Any:
            with path.open("rb") as file:
                create = self._client.files.with_raw_response.create
                return await create(
                    file=(f"{tag}.jsonl", file), purpose="batch", timeout=TRANSFER_S
                )

        return await self._id_of(send)

    async def find_upload(self, sent: SentBatch) -> str:
        async for file in self._list(self._client.files.with_raw_response.list, purpose="batch"):
            if file.get("filename") == f"{sent.tag}.jsonl" and file.get("bytes") == sent.n_bytes:
                return text_in(file, "id")
        return ""

    async def submit(self, sent: SentBatch, file_id: str, path: Path | None) -> str:
        create = self._client.batches.with_raw_response.create
        return await self._id_of(
            lambda: create(
                input_file_id=file_id,
                endpoint=ENDPOINT,
                completion_window="24h",
                metadata={TAG: sent.tag},
            )
        )

    async def find(
        self, sent: SentBatch, keys: Collection[str], known_ids: Collection[str]
    ) -> FoundBatch:
        async for batch in self._list(self._client.batches.with_raw_response.list):
            metadata = batch.get("metadata")
            if isinstance(metadata, Mapping) and metadata.get(TAG) == sent.tag:
                return FoundBatch(text_in(batch, "id"))
        return FoundBatch()

    async def status(self, batch_id: str) -> BatchStatus:
        retrieve = self._client.batches.with_raw_response.retrieve
        answer = await self._asked(lambda: retrieve(batch_id))
        state = text_in(answer, "status")
        counts = answer.get("request_counts")
        counts = counts if isinstance(counts, Mapping) else {}
        through = [token_count(counts.get(name)) or 0 for name in ("completed", "failed")]
        reasons = _errors_in(answer)
        text = " ".join(f"{e.get('code')} {e.get('message')}" for e in reasons).lower()
        files = tuple(
            name for kind in ("output_file_id", "error_file_id") if (name := answer.get(kind))
        )
        return BatchStatus(
            state=state,
            done=sum(through),
            total=token_count(counts.get("total")),
            end=_ENDS.get(state, ""),
            reason="; ".join(str(e.get("message") or e.get("code"))[:200] for e in reasons),
            is_full=any(word in text for word in _FULL),
            is_refused=any(word in text for word in _REFUSED),
            files=tuple(str(name) for name in files),
        )

    async def results(self, batch_id: str, status: BatchStatus) -> AsyncIterator[BatchResult]:
        for file_id in status.files:
            with scratch_file() as path:
                await self._download(file_id, path)
                for line in read_objects(path):
                    if (result := _result_of(line)) is not None:
                        yield result

    async def cancel(self, batch_id: str) -> None:
        cancel = self._client.batches.with_raw_response.cancel
        await self._asked(lambda: cancel(batch_id))

    async def delete_upload(self, file_id: str) -> None:
        delete = self._client.files.with_raw_response.delete
        await self._asked(lambda: delete(file_id))

    async def _download(self, file_id: str, path: Path) -> None:
        try:
            content = self._client.files.with_streaming_response.content
            async with content(file_id, timeout=TRANSFER_S) as response:
                await save(response.iter_bytes(), path)
        except Exception as error:
            raise to_judge_error(self._client, error) from None

    async def _asked(self, send: Callable[[], Any]) -> dict[str, Any]:
        try:
            reply = to_http_reply(await send())
        except Exception as error:  # of the SDK: ours from here on
            raise to_judge_error(self._client, error) from None
        answer = self._edge.object(reply)
        with self._edge.reading(reply):
            for name in ("id", "status"):
                text_in(answer, name)
        return answer

    async def _id_of(self, send: Callable[[], Any]) -> str:
        answer = await self._asked(send)
        if not (batch_id := text_in(answer, "id")):
            raise odd_answer(self._edge.host, "it names no id")
        return batch_id

    async def _list(
        self, page_of: Callable[..., Any], **how: Any
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The objects of a list, the newest first."""
        after: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            page = await self._asked(lambda: page_of(limit=PAGE, **after, **how))  # noqa: B023
            try:
                entries = mappings_in(page, "data")
                for entry in entries:
                    yield entry
                after = {"after": text_in(entries[-1], "id")} if entries else {}
            except InvalidReply as odd:
                raise odd_answer(self._edge.host, str(odd)) from None
            if not page.get("has_more") or not after:
                return


def _errors_in(batch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    errors = batch.get("errors")
    data = errors.get("data") if isinstance(errors, Mapping) else None
    errors = data if isinstance(data, list) else []
    return [error for error in errors if isinstance(error, Mapping)]


def _result_of(line: Mapping[str, Any]) -> BatchResult | None:
    """A line of an output or error file. Of a call that failed `error` may be null, and the error
    the body of its response."""
    key, response, error = line.get("custom_id"), line.get("response"), line.get("error")
    if not isinstance(key, str):
        return None
    if isinstance(response, Mapping) and response.get("body") is not None:
        body, status = response["body"], token_count(response.get("status_code")) or 0
        failed = status >= 300 or (isinstance(body, Mapping) and bool(body.get("error")))
        kind, status = ("error", status if status >= 300 else 400) if failed else ("reply", 200)
        return BatchResult(key, kind, status, json.dumps(body).encode())  # type: ignore[arg-type]
    code = error.get("code") if isinstance(error, Mapping) else None
    if code == "batch_expired":
        return BatchResult(key, "expired")
    if code == "batch_cancelled":
        return BatchResult(key, "cancelled")
    return BatchResult(key, "error", 500, json.dumps({"error": error}).encode())


def open_openai(spec: JudgeSpec) -> OpenAIBatches:
    options = client_options(spec.timeout_s, most_bytes=RESULT_BYTES)
    return OpenAIBatches(open_client(spec, options))
