"""A real HTTP server that speaks the wire formats of OpenAI (chat, streamed or not, and embeddings), Anthropic (messages) and
Google (generateContent), scripted by the test.

`reply` turns a request's body into what the server does: a text to answer, an `Answer`, or a `Fault`. Every body is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from aiohttp import web

INPUT_TOKENS = 10  # every answer says that its prompt had so many; its output has one a word


@dataclass(frozen=True)
class Answer:
    """A text, and how it ended: done, cut off at the output limit, or refused (by the model or a content filter)."""

    text: str = ""
    ending: Literal["done", "truncated", "refused", "filtered"] = "done"


@dataclass(frozen=True)
class Fault:
    """Answer with this status; `reset` closes the connection instead; `cut` ends a stream before its finish reason; `hang_s`
    waits first."""

    status: int = 500
    retry_after: str | None = None
    reset: bool = False
    cut: bool = False
    hang_s: float = 0.0


Reply = Callable[[dict[str, Any]], str | Answer | Fault]


@dataclass
class Provider:
    """The running server: its root address, and what it was asked."""

    reply: Reply
    latency_s: float = 0.0
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Where OpenAI clients point."""
        return f"{self.root}/v1"

    async def outcome(self, request: web.Request) -> tuple[dict[str, Any], Answer | Fault]:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        await asyncio.sleep(self.latency_s)
        scripted = self.reply(body)
        return body, Answer(scripted) if isinstance(scripted, str) else scripted

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body, outcome = await self.outcome(request)
        if isinstance(outcome, Fault) and not outcome.cut:
            return await failed(request, outcome)
        if body.get("stream"):
            return await self._streamed(request, body, outcome)
        assert isinstance(outcome, Answer)
        finish = {"truncated": "length", "filtered": "content_filter"}.get(outcome.ending, "stop")
        message = {"role": "assistant", "content": None if outcome.ending == "refused" else outcome.text}
        message["refusal"] = outcome.text or "no" if outcome.ending == "refused" else None
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({**_chunk(body, "chat.completion"), "choices": [choice], "usage": usage(outcome)})

    async def _streamed(self, request: web.Request, body: dict[str, Any], outcome: Answer | Fault) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        words = outcome.text.split(" ") if isinstance(outcome, Answer) else ["Cut", "short"]
        for index, word in enumerate(words):
            await _send(response, body, {"content": word if index == 0 else f" {word}"}, None)
        if isinstance(outcome, Answer):
            await _send(response, body, {}, "stop")
            last = {**_chunk(body, "chat.completion.chunk"), "choices": [], "usage": usage(outcome)}
            await response.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
        await response.write_eof()
        return response

    async def messages(self, request: web.Request) -> web.StreamResponse:
        body, outcome = await self.outcome(request)
        if isinstance(outcome, Fault):
            return await failed(request, outcome)
        stop = {"truncated": "max_tokens", "refused": "refusal", "filtered": "refusal"}.get(outcome.ending, "end_turn")
        spent = {"input_tokens": INPUT_TOKENS, "output_tokens": len(outcome.text.split())}
        content = [{"type": "text", "text": outcome.text}] if outcome.text else []
        fixed = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        return web.json_response({**fixed, "content": content, "stop_reason": stop, "usage": spent})

    async def generate_content(self, request: web.Request) -> web.StreamResponse:
        _, outcome = await self.outcome(request)
        if isinstance(outcome, Fault):
            return await failed(request, outcome)
        spent = {"promptTokenCount": INPUT_TOKENS, "candidatesTokenCount": len(outcome.text.split())}
        if outcome.ending == "filtered":
            return web.json_response({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": spent})
        finish = {"truncated": "MAX_TOKENS", "refused": "SAFETY"}.get(outcome.ending, "STOP")
        candidate = {"content": {"role": "model", "parts": [{"text": outcome.text}]}, "finishReason": finish, "index": 0}
        return web.json_response({"candidates": [candidate], "usageMetadata": spent})

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        data = [{"object": "embedding", "index": i, "embedding": word_vector(text)} for i, text in enumerate(body["input"])]
        spent = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "model": body["model"], "data": data, "usage": spent})


async def failed(request: web.Request, fault: Fault) -> web.Response:
    await asyncio.sleep(fault.hang_s)
    if fault.reset and request.transport is not None:
        request.transport.abort()
    headers = {"retry-after": fault.retry_after} if fault.retry_after is not None else {}
    error = {"error": {"message": "scripted", "code": fault.status, "status": "SCRIPTED", "type": "scripted"}}
    return web.json_response(error, status=fault.status, headers=headers)


async def _send(response: web.StreamResponse, body: dict[str, Any], delta: dict[str, str], finish: str | None) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    await response.write(f"data: {json.dumps({**_chunk(body, 'chat.completion.chunk'), 'choices': [choice]})}\n\n".encode())


def _chunk(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "c", "object": kind, "created": 0, "model": body["model"]}


def usage(answer: Answer) -> dict[str, int]:
    output = len(answer.text.split())
    return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": output, "total_tokens": INPUT_TOKENS + output}


def word_vector(text: str, dimensions: int = 64) -> list[float]:
    """A bag of hashed words: texts with common words are close."""
    vector = np.zeros(dimensions)
    for word in text.lower().split():
        vector[hashlib.blake2b(word.encode()).digest()[0] % dimensions] += 1.0
    return [float(value) for value in vector]


@contextmanager
def serving(reply: Reply, latency_s: float = 0.0) -> Iterator[Provider]:
    """Runs a provider on a free port of 127.0.0.1, in a thread of its own."""
    provider, loop = Provider(reply, latency_s), asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 28)
        app.add_routes(
            [
                web.post("/v1/chat/completions", provider.chat),
                web.post("/v1/embeddings", provider.embeddings),
                web.post("/v1/messages", provider.messages),
                web.post("/{version}/{model:models/.*}", provider.generate_content),
            ]
        )
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.port = runner.addresses[0][1]
        started.set()
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
