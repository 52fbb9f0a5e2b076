"""A real HTTP server that speaks the wire formats of OpenAI (chat, streamed or not, speech and
embeddings), Anthropic (messages) and Google (generateContent), scripted by the test.

`reply` turns a request's body into what the server does: a text to answer, an `Answer`, or a
`Fault`; `Storm` is one that fails at random. `Limits` refuse what comes too fast. Every body is
kept, or with `keep_requests=False` only counted by its digest. tests/servers/process.py runs the
same server as a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import struct
import threading
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from aiohttp import web

from tests.servers.judgments import body_digest, judgment_reply, message_texts
from tests.servers.prompt_cache import PromptCache

# unless tokens are counted, every answer says that its prompt had so many; its output has one a
# word
INPUT_TOKENS = 10


@dataclass(frozen=True)
class Answer:
    """A text, and how it ended: done, cut off at the output limit, or refused (by the model or a
    content filter). `model` is the one that says it; "": the one that was asked. `thinking` comes
    in a field of its own, of the name `thinking_in`."""

    text: str = ""
    ending: Literal["done", "truncated", "refused", "filtered"] = "done"
    model: str = ""
    thinking: str = ""
    thinking_in: str = "reasoning_content"


@dataclass(frozen=True)
class Fault:
    """Answer with this status; `reset` closes the connection instead; `hang_s` waits first.
    `code`: the provider's own, in the error's body."""

    status: int = 500
    retry_after: str | None = None
    code: str | None = None
    reset: bool = False
    hang_s: float = 0.0


@dataclass(frozen=True)
class Raw:
    """These bytes as they are, in pieces; then the reply ends, or the connection is closed in its
    middle, or nothing comes any more."""

    body: bytes | tuple[bytes, ...]
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    then: Literal["end", "close", "stall"] = "end"


Outcome = Answer | Fault | Raw
Reply = Callable[[dict[str, Any]], str | Outcome]


@dataclass(kw_only=True)
class Storm:
    """A reply that fails at random: every attempt of a body by itself, at these rates, decided by a
    hash of seed, body and the number of the attempt. What does not fail is left to `reply`; a
    malformed answer is the first half of it."""

    rate_429: float = 0.0
    rate_500: float = 0.0
    rate_hang: float = 0.0
    rate_reset: float = 0.0
    rate_malformed: float = 0.0
    seed: int = 0
    hang_s: float = 30.0
    retry_after: str | None = None
    reply: Reply = judgment_reply
    attempts: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: dict[str, Any]) -> str | Outcome:
        digest = body_digest(body)
        self.attempts[digest] += 1
        chance = random.Random(f"{self.seed} {digest} {self.attempts[digest]}").random()
        for rate, fault in (
            (self.rate_429, Fault(429, retry_after=self.retry_after)),
            (self.rate_500, Fault(500)),
            (self.rate_hang, Fault(500, hang_s=self.hang_s)),
            (self.rate_reset, Fault(reset=True)),
        ):
            if chance < rate:
                return fault
            chance -= rate
        scripted = self.reply(body)
        if chance >= self.rate_malformed or isinstance(scripted, Fault | Raw):
            return scripted
        text = scripted.text if isinstance(scripted, Answer) else scripted
        return text[: len(text) // 2]


@dataclass(frozen=True)
class Limits:
    """Rates that are never passed in any stretch of `window_s`: a shorter window allows its share
    of a minute. None: no limit. The headers of every reply tell them, as OpenAI's do. Tokens are
    input and output together."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    window_s: float = 60.0

    def __post_init__(self) -> None:
        if self.in_window(self.requests_per_min) < 1:
            raise ValueError(
                f"{self.requests_per_min:g} requests a minute are less than one in "
                f"{self.window_s:g} s"
            )

    def in_window(self, per_min: float | None) -> float:
        return math.inf if per_min is None else math.floor(per_min * self.window_s / 60 + 1e-9)


class SlidingWindow:
    """What was let in during the last `limits.window_s`: a time and a number of tokens each."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.tokens = limits, 0
        self._let_in: deque[tuple[float, int]] = deque()

    def wait_s(self, now_s: float, tokens: int = 0) -> float:
        """Seconds until one more request of so many tokens fits: 0.0 now. What never fits waits a
        whole window."""
        self._forget(now_s)
        limits = self.limits
        surplus = len(self._let_in) + 1 - limits.in_window(limits.requests_per_min)
        too_many = self.tokens + tokens - limits.in_window(limits.tokens_per_min)
        if surplus <= 0 and too_many <= 0:
            return 0.0
        for at_s, freed in self._let_in:
            surplus, too_many = surplus - 1, too_many - freed
            if surplus <= 0 and too_many <= 0:
                return max(1e-3, at_s + limits.window_s - now_s)
        return limits.window_s

    def let_in(self, now_s: float, tokens: int) -> None:
        self._let_in.append((now_s, tokens))
        self.tokens += tokens

    def _forget(self, now_s: float) -> None:
        while self._let_in and self._let_in[0][0] <= now_s - self.limits.window_s:
            self.tokens -= self._let_in.popleft()[1]


@dataclass(kw_only=True)
class Tally:
    """What a server was asked, without the bodies. Times are of time.monotonic, which all processes
    of a machine share."""

    n_requests: int = 0
    n_429: int = 0  # refused by the limits; a scripted 429 is a fault
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    # Requests that got an answer, by the digest of the body: they are paid for
    answered: Counter[str] = field(default_factory=Counter)
    # Arrivals of those that the limits let in
    times: array[float] = field(default_factory=lambda: array("d"))


class Spent(NamedTuple):
    """Tokens of one request; of its input, those read from the prompt cache and written into it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    starts: Iterable[str] = ()

    @property
    def tokens(self) -> int:
        return self.input + self.output


class Asked(NamedTuple):
    """A request that is let in, and what is answered to it."""

    request: web.Request
    body: dict[str, Any]
    outcome: Answer
    spent: Spent
    headers: dict[str, str]


Write = Callable[[Asked], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Provider(Tally):
    """The running server: its root address, and what it was asked. `down`: every request is
    answered 500. `by_key`: the limits hold for each key by itself, as accounts have theirs.
    `count_tokens`: a token for every four characters, in and out, instead of the
    fixed figures. A reply comes when `ready` returns."""

    reply: Reply
    latency_s: float = 0.0
    ready: Callable[[dict[str, Any]], Awaitable[object]] = lambda body: asyncio.sleep(0)
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    window: SlidingWindow = field(default_factory=lambda: SlidingWindow(Limits()))
    by_key: bool = False
    windows: dict[str, SlidingWindow] = field(default_factory=dict)
    count_tokens: bool = False
    # The provider's prompt cache, by whose rules tokens are counted; None: it has none
    cache: PromptCache | None = None
    keep_requests: bool = True
    down: bool = False
    # Models that are off: a 404, as the provider whose format it is words it
    retired: frozenset[str] = frozenset()
    # What to answer instead of embeddings
    embed: Callable[[dict[str, Any]], Raw | None] = lambda body: None
    # Whether an equal request with the same Idempotency-Key gets its answer again, unpaid
    takes_keys: bool = False
    by_idempotency_key: dict[str, tuple[str, Answer]] = field(default_factory=dict)
    at_key: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    # Scripted for a request that the limits then refused
    held: dict[str, str | Outcome] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Where OpenAI clients point."""
        return f"{self.root}/v1"

    def reset(self) -> None:
        """Forgets what was asked, and what the limits let in."""
        vars(self).update(vars(Tally()))
        self.window = SlidingWindow(self.window.limits)
        for kept in (self.requests, self.headers, self.held, self.windows):
            kept.clear()
        if self.cache is not None:
            self.cache.kept.clear()

    def handler(self, write: Write) -> Handler:
        """The handler of a wire format, by how it writes."""

        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            if path := request.match_info.get("model"):  # Google's, whose body does not name it
                body = {"model": path.removeprefix("models/").partition(":")[0]} | body
            return await self._handled(request, body, write)

        return handle

    async def _handled(
        self, request: web.Request, body: dict[str, Any], write: Write
    ) -> web.StreamResponse:
        key = request.headers.get("idempotency-key", "") if self.takes_keys else ""
        if not key:
            return await self._answered(request, body, write)
        async with self.at_key[key]:
            if key not in self.by_idempotency_key:
                return await self._answered(request, body, write, key)
            of_body, answer = self.by_idempotency_key[key]
            if of_body != body_digest(body):
                return await failed(request, Fault(400, code="idempotency_key_reused"))
            return await write(Asked(request, body, answer, Spent(), {}))

    async def _answered(
        self, request: web.Request, body: dict[str, Any], write: Write, key: str = ""
    ) -> web.StreamResponse:
        self.n_requests += 1
        if self.keep_requests:
            self.requests.append(body)
            self.headers.append(dict(request.headers))
        if self.down:
            return await failed(request, Fault(hang_s=self.latency_s))
        if body.get("model") in self.retired:
            return web.json_response(_unknown_model(body["model"], write), status=404)
        digest, window = body_digest(body), self.window
        if self.by_key:
            account = request.headers.get("authorization", "")
            window = self.windows.setdefault(account, SlidingWindow(self.window.limits))
        outcome, spent, wait_s = self._let_in(body, digest, window)
        headers = _limit_headers(window.limits)
        if wait_s:
            self.n_429 += 1
            return await failed(
                request, Fault(429, retry_after=f"{math.ceil(wait_s * 1000) / 1000:.3f}"), headers
            )
        if isinstance(outcome, Fault):  # a provider that fails does so before the work
            return await failed(request, outcome, headers)
        await asyncio.sleep(self.latency_s)
        await self.ready(body)
        if isinstance(outcome, Raw):
            return await _write_raw(request, outcome, headers)
        if key:
            self.by_idempotency_key[key] = digest, outcome
        self.count(digest, spent)
        if self.cache is not None:
            self.cache.kept.update(spent.starts)
        return await write(Asked(request, body, outcome, spent, headers))

    def count(self, digest: str, spent: Spent) -> None:
        """A request is answered, and so paid."""
        self.answered[digest] += 1
        self.input_tokens += spent.input
        self.output_tokens += spent.output
        self.cached_tokens += spent.cached
        self.written_tokens += spent.written

    def _let_in(
        self, body: dict[str, Any], digest: str, window: SlidingWindow
    ) -> tuple[Outcome, Spent, float]:
        """What to answer, its tokens, and 0.0; or seconds to wait, where it does not fit the
        limits. What was scripted for a request that is refused waits for the next with that
        body."""
        now_s = time.monotonic()
        if wait_s := window.wait_s(now_s):
            return Fault(), Spent(), wait_s
        scripted = self.held.pop(digest) if digest in self.held else self.reply(body)
        outcome = Answer(scripted) if isinstance(scripted, str) else scripted
        spent = self._spent(body, outcome)
        if wait_s := window.wait_s(now_s, spent.tokens):
            self.held[digest] = scripted
            return outcome, spent, wait_s
        window.let_in(now_s, spent.tokens)
        self.times.append(now_s)
        return outcome, spent, 0.0

    def _spent(self, body: dict[str, Any], outcome: Outcome) -> Spent:
        if isinstance(outcome, Fault | Raw):
            return Spent()
        if self.cache is not None:
            cached, starts = self.cache.look_up(body)
            output = math.ceil(len(outcome.text) / 4)
            return Spent(cached.input, output, cached.read, cached.written, starts)
        if not self.count_tokens:
            return Spent(INPUT_TOKENS, len(outcome.text.split()))
        # A schema that is sent beside the messages becomes part of the prompt at the provider.
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        characters = sum(map(len, message_texts(body))) + (len(json.dumps(schema)) if schema else 0)
        return Spent(math.ceil(characters / 4), math.ceil(len(outcome.text) / 4))

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if (odd := self.embed(body)) is not None:
            return await _write_raw(request, odd, {})
        data = [
            {"object": "embedding", "index": i, "embedding": word_vector(text)}
            for i, text in enumerate(body["input"])
        ]
        spent = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response(
            {"object": "list", "model": body["model"], "data": data, "usage": spent}
        )


async def failed(
    request: web.Request, fault: Fault, headers: dict[str, str] | None = None
) -> web.Response:
    await asyncio.sleep(fault.hang_s)
    if fault.reset and request.transport is not None:
        request.transport.abort()
    headers = (headers or {}) | (
        {"retry-after": fault.retry_after} if fault.retry_after is not None else {}
    )
    named = {"code": fault.code or fault.status, "type": fault.code or "scripted"}
    error = {"error": {"message": "scripted", "status": "SCRIPTED"} | named}
    return web.json_response(error, status=fault.status, headers=headers)


def _unknown_model(model: str, write: Write) -> dict[str, Any]:
    if write is _write_message:
        error = {"type": "not_found_error", "message": f"model: {model}"}
        return {"type": "error", "error": error, "request_id": "req_1"}
    if write is _write_candidate:
        message_text = f"models/{model} is not found for API version v1beta"
        return {"error": {"code": 404, "message": message_text, "status": "NOT_FOUND"}}
    message_text = f"The model `{model}` does not exist or you do not have access to it."
    named = {"type": "invalid_request_error", "param": None, "code": "model_not_found"}
    return {"error": {"message": message_text, **named}}


async def _write_raw(request: web.Request, raw: Raw, headers: dict[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(
        status=raw.status, headers={"content-type": raw.content_type} | headers | dict(raw.headers)
    )
    await response.prepare(request)
    for piece in (raw.body,) if isinstance(raw.body, bytes) else raw.body:
        if piece:
            await response.write(piece)
    if raw.then == "stall":
        await asyncio.sleep(30)
    if raw.then == "close" and request.transport is not None:
        await asyncio.sleep(0.01)
        request.transport.close()
        return response
    await response.write_eof()
    return response


def _limit_headers(limits: Limits) -> dict[str, str]:
    figures = {"requests": limits.requests_per_min, "tokens": limits.tokens_per_min}
    return {
        f"x-ratelimit-limit-{name}": f"{per_min:.0f}"
        for name, per_min in figures.items()
        if per_min is not None
    }


async def _write_chat(asked: Asked) -> web.StreamResponse:
    _, body, outcome, spent, headers = asked
    if body.get("stream"):
        return await _write_stream(asked)
    finish = {"truncated": "length", "filtered": "content_filter"}.get(outcome.ending, "stop")
    message = {
        "role": "assistant",
        "content": None if outcome.ending == "refused" else outcome.text,
    }
    message["refusal"] = outcome.text or "no" if outcome.ending == "refused" else None
    if outcome.thinking:
        message[outcome.thinking_in] = outcome.thinking
    choice = {"index": 0, "message": message, "finish_reason": finish}
    completion = {
        **_chunk(body, "chat.completion", outcome),
        "choices": [choice],
        "usage": _openai_usage(spent),
    }
    return web.json_response(completion, headers=headers)


async def _write_stream(asked: Asked) -> web.StreamResponse:
    request, body, outcome, spent, headers = asked
    response = web.StreamResponse(headers={"content-type": "text/event-stream"} | headers)
    await response.prepare(request)
    head = _chunk(body, "chat.completion.chunk", outcome)

    async def send(delta: dict[str, str], finish: str | None = None) -> None:
        content = {"delta": delta} if "messages" in body else {"text": delta.get("content", "")}
        event = {**head, "choices": [{"index": 0, **content, "finish_reason": finish}]}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())

    if outcome.thinking:
        await send({outcome.thinking_in: outcome.thinking})
    for index, word in enumerate(outcome.text.split(" ")):
        await send({"content": word if index == 0 else f" {word}"})
    await send({}, "stop")
    last = {**head, "choices": [], "usage": _openai_usage(spent)}
    await response.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
    await response.write_eof()
    return response


def _chunk(body: dict[str, Any], kind: str, outcome: Answer) -> dict[str, Any]:
    return {"id": "c", "object": kind, "created": 0, "model": outcome.model or body["model"]}


def _openai_usage(spent: Spent) -> dict[str, Any]:
    details = {"cached_tokens": spent.cached}
    if spent.written:
        details["cache_write_tokens"] = spent.written
    return {
        "prompt_tokens": spent.input,
        "completion_tokens": spent.output,
        "total_tokens": spent.tokens,
        "prompt_tokens_details": details,
    }


async def _write_speech(asked: Asked) -> web.StreamResponse:
    """A wav whose tone is as long as the text; a truncated answer is no whole wav."""
    _, body, outcome, _, headers = asked
    wav = tone_wav(0.1 * len(body["input"].split()))
    return web.Response(
        body=wav[:20] if outcome.ending == "truncated" else wav,
        content_type="audio/wav",
        headers=headers,
    )


def tone_wav(duration_s: float, rate_hz: int = 8000) -> bytes:
    """A hum of 150 Hz with overtones, in a wav whose lengths are left open, as OpenAI's are."""
    beat = (
        math.sin(2 * math.pi * 150 * k * i / rate_hz) / k
        for i in range(int(duration_s * rate_hz))
        for k in (1, 2, 3)
    )
    samples = [sum(parts) for parts in zip(beat, beat, beat, strict=True)]
    sound = b"".join(round(8000 * sample).to_bytes(2, "little", signed=True) for sample in samples)
    layout = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return (
        b"RIFF\xff\xff\xff\xffWAVEfmt "
        + struct.pack("<I", 16)
        + layout
        + b"data\xff\xff\xff\xff"
        + sound
    )


async def _write_message(asked: Asked) -> web.StreamResponse:
    _, body, outcome, spent, headers = asked
    stop = {"truncated": "max_tokens", "refused": "refusal", "filtered": "refusal"}.get(
        outcome.ending, "end_turn"
    )
    content = [{"type": "text", "text": outcome.text}] if outcome.text else []
    if outcome.thinking:
        content.insert(0, {"type": "thinking", "thinking": outcome.thinking})
    fixed = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": outcome.model or body["model"],
        "stop_sequence": None,
    }
    usage = {
        "input_tokens": spent.input - spent.cached - spent.written,
        "cache_creation_input_tokens": spent.written,
        "cache_read_input_tokens": spent.cached,
        "output_tokens": spent.output,
    }
    return web.json_response(
        {**fixed, "content": content, "stop_reason": stop, "usage": usage}, headers=headers
    )


async def _write_candidate(asked: Asked) -> web.StreamResponse:
    _, _, outcome, spent, headers = asked
    usage = {
        "promptTokenCount": spent.input,
        "candidatesTokenCount": spent.output,
        **({"cachedContentTokenCount": spent.cached} if spent.cached else {}),
    }
    if outcome.ending == "filtered":
        return web.json_response(
            {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}, headers=headers
        )
    finish = {"truncated": "MAX_TOKENS", "refused": "SAFETY"}.get(outcome.ending, "STOP")
    candidate = {
        "content": {
            "role": "model",
            "parts": [
                *([{"text": outcome.thinking, "thought": True}] if outcome.thinking else []),
                {"text": outcome.text},
            ],
        },
        "finishReason": finish,
        "index": 0,
    }
    reply = {"candidates": [candidate], "usageMetadata": usage}
    reply |= {"modelVersion": outcome.model} if outcome.model else {}
    return web.json_response(reply, headers=headers)


# How the answers of batches are written
WRITERS: Mapping[str, Write] = {"openai": _write_chat, "anthropic": _write_message}


def word_vector(text: str, dimensions: int = 64) -> list[float]:
    """A bag of hashed words: texts with common words are close."""
    vector = [0.0] * dimensions
    for word in text.lower().split():
        vector[hashlib.blake2b(word.encode()).digest()[0] % dimensions] += 1.0
    return vector


async def start(
    provider: Provider, port: int = 0, more: Sequence[web.RouteDef] = ()
) -> web.AppRunner:
    """Listens at 127.0.0.1, on this event loop, until the runner is cleaned up; port 0 is any free
    one."""
    app, answers = web.Application(client_max_size=1 << 28), provider.handler
    app.add_routes(
        [
            web.post("/v1/chat/completions", answers(_write_chat)),
            web.post("/v1/completions", answers(_write_stream)),
            web.post("/v1/embeddings", provider.embeddings),
            web.post("/v1/audio/speech", answers(_write_speech)),
            web.post("/v1/messages", answers(_write_message)),
            *more,
            web.post("/{version}/{model:models/.*}", answers(_write_candidate)),
        ]
    )
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    provider.port = runner.addresses[0][1]
    return runner


@contextmanager
def serving(
    reply: Reply,
    latency_s: float = 0.0,
    *,
    limits: Limits | None = None,
    more: Callable[[Provider], Sequence[web.RouteDef]] = lambda provider: (),
    **options: Any,
) -> Iterator[Provider]:
    """Runs a provider on 127.0.0.1, in a thread of its own, on a free port unless `options` names
    one: further fields of Provider. `more`: routes beside its own."""
    provider = Provider(reply, latency_s, window=SlidingWindow(limits or Limits()), **options)
    loop = asyncio.new_event_loop()
    started = threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start(provider, provider.port, more(provider)))
        started.set()
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
