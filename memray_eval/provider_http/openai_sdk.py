"""The openai SDK for judges, candidates, embeddings and speech: its clients, and what it returns
and raises in this project's types."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memray_eval.errors import JudgeError
from memray_eval.provider_http import keep_open, silence_payload_logs
from memray_eval.provider_http.replies import Edge

if TYPE_CHECKING:
    import openai

    from memray_eval.provider_http.transport import JsonClient, OnHeaders

silence_payload_logs()


def open_client(
    key: str, base_url: str | None, timeout_s: float, *, max_retries: int = 0, **transport: Any
) -> openai.AsyncOpenAI:
    """A client whose replies are bounded: see `client_options`."""
    import openai  # here and below: it takes a second, which many processes of a run never need

    from memray_eval.provider_http.transport import CONNECT_S, client_options

    http = keep_open(openai.DefaultAsyncHttpxClient(**client_options(timeout_s, **transport)))
    return openai.AsyncOpenAI(
        api_key=key,
        base_url=base_url,
        timeout=openai.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)),
        max_retries=max_retries,
        http_client=http,
    )


def warm_up(client: openai.AsyncOpenAI) -> None:
    """Imports what the SDK would import in its first call, half a second inside its duration."""
    with suppress(ImportError):  # another release of the SDK may run on something else
        importlib.import_module("anyio._backends._asyncio")
    for completions in (client.chat.completions, client.completions):
        _ = completions.with_streaming_response.create


def json_client(
    client: openai.AsyncOpenAI, timeout_s: float, on_headers: OnHeaders | None
) -> JsonClient:
    """What sends to the server of an SDK's client as that would, but for the SDK's own figures."""
    from memray_eval.provider_http.transport import JsonClient

    headers = {**client.default_headers, **client.auth_headers}
    sent = {
        name: value
        for name, value in headers.items()
        if isinstance(value, str) and not name.startswith("X-Stainless")
    }
    return JsonClient(edge_for(client), sent, timeout_s, on_headers)


def edge_for(client: openai.AsyncOpenAI) -> Edge:
    return Edge(str(client.base_url), client.api_key)


def to_judge_error(client: openai.AsyncOpenAI, error: BaseException) -> JudgeError:
    """Whatever the SDK raised, as ours; ours as they are."""
    import openai

    return edge_for(client).translate(error, (openai.APIStatusError,))
