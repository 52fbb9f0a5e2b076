"""Any OpenAI-compatible chat server: OpenAI, a vLLM server, Ollama."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

import httpx
import openai

from memray_eval.config import ServerConfig, server_key
from memray_eval.types import Candidate, Message, Response


class OpenAIGenerator:
    """Asks one candidate's server, at most `max_in_flight` calls at a time. Replies stream, so that the time to the first
    token is known. Build it on the event loop that will use it."""

    def __init__(self, candidate: Candidate, config: ServerConfig) -> None:
        key = server_key(candidate.base_url, candidate.api_key_env, f"candidate {candidate.name!r}")
        self._client = openai.AsyncOpenAI(api_key=key, base_url=candidate.base_url, timeout=config.timeout_s, max_retries=3)
        self._slots = asyncio.Semaphore(config.max_in_flight)

    async def generate(self, messages: Sequence[Message], candidate: Candidate) -> Response:
        async with self._slots:
            started = time.perf_counter()
            try:
                return await self._stream(messages, candidate, started)
            except openai.APIStatusError as error:
                return Response(error=f"the server answered {error.status_code}", duration_s=time.perf_counter() - started)
            except (openai.APIError, httpx.HTTPError) as error:  # a stream that breaks raises httpx's own
                return Response(error=f"no reply: {type(error).__name__}", duration_s=time.perf_counter() - started)

    async def _stream(self, messages: Sequence[Message], candidate: Candidate, started: float) -> Response:
        sampling = candidate.sampling
        # Not OpenAI's own, but vLLM's and others': sent only where it is asked for.
        extra = {"repetition_penalty": sampling.repetition_penalty} if sampling.repetition_penalty != 1.0 else None
        stream = await self._client.chat.completions.create(
            model=candidate.model,
            messages=cast(Any, [message.model_dump() for message in messages]),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
            stop=list(sampling.stop) or None,
            extra_body=extra,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, finish_reason, usage, ttft_s = [], None, None, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                if choice.delta.content:
                    ttft_s = ttft_s if ttft_s is not None else time.perf_counter() - started
                    text.append(choice.delta.content)
                finish_reason = choice.finish_reason or finish_reason
        return Response(
            text="".join(text),
            error=None if finish_reason else "the server closed the stream before the answer was finished",
            finish_reason=finish_reason,
            prompt_tokens=usage.prompt_tokens if usage else None,
            output_tokens=usage.completion_tokens if usage else None,
            ttft_s=ttft_s,
            duration_s=time.perf_counter() - started,
        )
