"""A real HTTP server that speaks OpenAI's chat (streamed or not) and embeddings wire formats, scripted by the test.

`reply` turns a chat request's body into what the server does: text to answer, or a `Fault`. Every request body is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web


@dataclass(frozen=True)
class Fault:
    """Answer with this status; `reset` closes the connection instead; `cut` ends a stream without its finish reason."""

    status: int = 500
    reset: bool = False
    cut: bool = False


Reply = Callable[[dict[str, Any]], str | Fault]


@dataclass
class Provider:
    """The running server: its base URL and what it was asked."""

    reply: Reply
    latency_s: float = 0.0
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        await asyncio.sleep(self.latency_s)
        outcome = self.reply(body)
        if isinstance(outcome, Fault) and not outcome.cut:
            if outcome.reset and request.transport is not None:
                request.transport.abort()
            return web.json_response({"error": {"message": "scripted"}}, status=outcome.status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        words = "Cut short".split() if isinstance(outcome, Fault) else outcome.split(" ")
        for index, word in enumerate(words):
            await self._send(response, body, {"content": word if index == 0 else f" {word}"}, None)
        if not isinstance(outcome, Fault):
            await self._send(response, body, {}, "stop")
            usage = {"prompt_tokens": 10, "completion_tokens": len(words), "total_tokens": 10 + len(words)}
            await response.write(f"data: {json.dumps({**_chunk(body), 'choices': [], 'usage': usage})}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    @staticmethod
    async def _send(response: web.StreamResponse, body: dict[str, Any], delta: dict[str, str], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await response.write(f"data: {json.dumps({**_chunk(body), 'choices': [choice]})}\n\n".encode())

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        data = [{"object": "embedding", "index": i, "embedding": word_vector(text)} for i, text in enumerate(body["input"])]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "model": body["model"], "data": data, "usage": usage})


def _chunk(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}


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
        app.add_routes([web.post("/v1/chat/completions", provider.chat), web.post("/v1/embeddings", provider.embeddings)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
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
