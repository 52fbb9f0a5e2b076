"""Google's batches (the developer API): a JSONL file of requests is uploaded, and a batch made of
it, which is found again by its display name."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from google import genai
from google.genai import errors, types

from memray_eval.errors import JudgeError
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.batches.journal import BatchEntry
from memray_eval.judges.batches.port import (
    PAGE,
    RESULT_BYTES,
    TRANSFER_S,
    BatchClient,
    BatchResult,
    BatchStatus,
    FoundBatch,
    odd_answer,
    to_line,
)
from memray_eval.judges.providers.google import open_client
from memray_eval.provider_http.replies import Edge

MOST_LISTED = 5_000
_ENDS: Mapping[str, Any] = {
    "SUCCEEDED": "completed",
    "PARTIALLY_SUCCEEDED": "completed",
    "FAILED": "failed",
    "EXPIRED": "expired",
    "CANCELLED": "cancelled",
}
# Codes of google.rpc.Status that have an HTTP status which passes; all others are 400
_PASSING = {4: 504, 8: 429, 13: 500, 14: 503}
T = TypeVar("T")


class GoogleBatches(BatchClient):
    provider = "google"

    def __init__(self, client: genai.Client, edge: Edge) -> None:
        self._client, self._edge = client, edge

    def line(self, key: str, request: Mapping[str, Any]) -> bytes:
        return to_line({"key": key, "request": request})

    async def upload(self, path: Path, tag: str) -> str:
        config = types.UploadFileConfig(
            display_name=tag,
            mime_type="application/jsonl",
            http_options=types.HttpOptions(timeout=int(TRANSFER_S * 1000)),
        )
        resource = await self._ask(lambda: self._client.aio.files.upload(file=path, config=config))
        return self._name_of(resource)

    async def find_upload(self, entry: BatchEntry) -> str:
        def is_it(file: Any) -> bool:
            return bool(file.display_name == entry.tag and file.size_bytes == entry.n_bytes)

        return await self._find_first(self._client.aio.files.list, is_it)

    async def submit(self, entry: BatchEntry, file_id: str, path: Path | None) -> str:
        batches = self._client.aio.batches
        config = types.CreateBatchJobConfig(display_name=entry.tag)
        resource = await self._ask(
            lambda: batches.create(model=entry.model, src=file_id, config=config)
        )
        return self._name_of(resource)

    async def find(
        self, entry: BatchEntry, keys: Collection[str], known_ids: Collection[str]
    ) -> FoundBatch:
        batches = self._client.aio.batches.list
        return FoundBatch(
            await self._find_first(batches, lambda job: job.display_name == entry.tag)
        )

    async def _find_first(
        self, list_all: Callable[..., Awaitable[Any]], is_it: Callable[[Any], bool]
    ) -> str:
        """The name of the first resource in a list that is it; "" if none is."""

        async def search() -> str:
            n_listed = 0
            async for resource in await list_all(config={"page_size": PAGE}):
                if is_it(resource):
                    return self._name_of(resource)
                if (n_listed := n_listed + 1) >= MOST_LISTED:
                    break
            return ""

        return await self._ask(search)

    async def status(self, batch_id: str) -> BatchStatus:
        job = await self._ask(lambda: self._client.aio.batches.get(name=batch_id))
        # The SDK names them JOB_STATE_..., or as they came if it knows none
        state = str(job.state.value if job.state is not None else "")
        end = _ENDS.get(state.rpartition("STATE_")[2], "")
        file = job.dest.file_name if job.dest is not None else None
        error = job.error
        return BatchStatus(
            state=state.rpartition("STATE_")[2].lower(),
            end=end,
            reason=str(error.message or "")[:200] if error is not None else "",
            files=(file,) if file else (),
        )

    async def cancel(self, batch_id: str) -> None:
        await self._ask(lambda: self._client.aio.batches.cancel(name=batch_id))

    async def delete_upload(self, file_id: str) -> None:
        await self._ask(lambda: self._client.aio.files.delete(name=file_id))

    async def _download(self, name: str, path: Path) -> None:
        files = self._client.aio.files
        await self._ask(lambda: files.download(file=name, destination=path))

    def _name_of(self, resource: Any) -> str:
        if not isinstance(resource.name, str) or not resource.name:
            raise odd_answer(self._edge.host, "it names no id")
        return resource.name

    async def _ask(self, send: Callable[[], Awaitable[T]]) -> T:
        try:
            # Of a state that it does not know the SDK warns, and gives it as it came
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                return await send()
        except JudgeError:
            raise
        except errors.APIError as error:
            headers = getattr(error.response, "headers", None) or {}
            status = getattr(error.response, "status_code", None) or error.code
            body = json.dumps(error.details, default=str)
            raise self._edge.refusal(int(status), headers.get("retry-after"), body) from None
        except (KeyError, ValueError, AttributeError, TypeError) as error:  # what it could not read
            raise odd_answer(self._edge.host, type(error).__name__) from None
        except Exception as error:
            raise self._edge.lost(error) from None

    @staticmethod
    def read_result(line: Mapping[str, Any]) -> BatchResult | None:
        """A line of the file of results: a response, or a status in its place."""
        key, response, error = line.get("key"), line.get("response"), line.get("error")
        if not isinstance(key, str):
            return None
        if isinstance(response, Mapping) and not response.get("error"):
            return BatchResult(key, "reply", 200, json.dumps(response).encode())
        if isinstance(response, Mapping):
            error = response["error"]
        code = error.get("code") if isinstance(error, Mapping) else None
        status = code if isinstance(code, int) and code >= 400 else _PASSING.get(code or 0, 400)
        return BatchResult(key, "error", status, json.dumps({"error": error}).encode())


def open_google(spec: JudgeSpec) -> GoogleBatches:
    return GoogleBatches(*open_client(spec, most_bytes=RESULT_BYTES))
