"""Clients for OpenAI's speech models, and servers with its protocol: they speak texts, and
recognise emotion in audio."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field, ValidationError, create_model

from memray_eval.config.environment import server_key
from memray_eval.config.sections import Count, Positive
from memray_eval.errors import Malformed, Refused, Truncated
from memray_eval.judges.adapter import Reply
from memray_eval.judges.limits.limiter_member import CallPermit
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.providers.openai import read_completion
from memray_eval.judges.structured_judge import CallPolicy
from memray_eval.provider_http.openai_sdk import (
    edge_for,
    open_client,
    to_http_reply,
    to_judge_error,
)
from memray_eval.provider_http.replies import HttpReply, InvalidReply, valid_text
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Frozen, Share

T = TypeVar("T")
SPEAKING_MODEL, VOICE = "gpt-4o-mini-tts", "alloy"
LISTENING_MODEL = "gpt-audio"
MAX_OUTPUT_TOKENS = 512
TOKENS_A_CLIP = 600.0  # roughly: half a minute at some 10 tokens a second, question and answer
MOST_SOUND_BYTES = 64_000_000  # a wav of the longest text that a provider takes is some 15 MB
# Sound is worth less than a verdict: after that the sample does without
PATIENCE = RetryPolicy(tries=4, ceiling_s=120.0)

_QUESTION = """Listen to the voice in this recording: its pitch, loudness, rate and quality, not the words. How probable is each
emotion in it? Answer with one JSON object that fits this schema, and nothing else; the probabilities sum to 1.
{schema}"""  # noqa: E501


class SpeechServer(Frozen):
    """A speech server: `base_url` None is OpenAI itself, with OPENAI_API_KEY. Another server's key
    is in the environment variable `api_key_env`."""

    base_url: str | None = None
    api_key_env: str | None = None
    timeout_s: Positive = 60.0
    max_in_flight: Count = 8


class _Caller:
    """Calls one endpoint under one policy. Build it on the event loop that will use it."""

    def __init__(self, purpose: str, server: SpeechServer, access: CallPolicy) -> None:
        """Raises ConfigError without the key."""
        key = server_key(server.base_url, server.api_key_env, purpose)
        self._access, self._slots = access, asyncio.Semaphore(server.max_in_flight)
        self.client = open_client(
            key, server.base_url, server.timeout_s, most_bytes=MOST_SOUND_BYTES
        )

    async def ask(
        self, send: Callable[[], Awaitable[T]], tokens: float, spent: Callable[[T], CallCost]
    ) -> T:
        """Returns the reply, after as many tries as the policy gives. Raises JudgeError."""

        async def attempt(permit: CallPermit) -> T:
            try:
                reply = await send()
                permit.used = spent(reply)
            except Exception as error:  # the SDK's, or those of an odd reply
                raise to_judge_error(self.client, error) from None
            return reply

        return await self._access.policy.run(attempt, partial(self._admit, tokens))

    def sound(self, reply: HttpReply) -> bytes:
        """Returns the audio of a reply. Raises JudgeError if it is JSON, HTML or nothing."""
        body = reply.body if isinstance(reply.body, bytes) else reply.body.encode()
        edge = edge_for(self.client)
        if body.lstrip()[:1] in (b"{", b"["):
            edge.object(reply)
        with edge.reading(reply):
            if not body.strip() or body.lstrip()[:1] in (b"{", b"[", b"<"):
                raise InvalidReply("the body is no audio" if body.strip() else "the body is empty")
        return body

    @asynccontextmanager
    async def _admit(self, tokens: float) -> AsyncIterator[CallPermit]:
        async with self._slots, self._access.admission.permit(tokens) as permit:
            yield permit


class OpenAIVoice:
    """The speech endpoint as a Speaker: its wavs leave their length open."""

    backend = "openai"

    def __init__(
        self,
        model: str = SPEAKING_MODEL,
        voice: str = VOICE,
        server: SpeechServer = SpeechServer(),
        access: CallPolicy = CallPolicy(PATIENCE),
    ) -> None:
        self.model, self.voice = model, voice
        self._caller = _Caller(f"speech synthesis by openai/{model}", server, access)
        self.aclose = self._caller.client.close

    async def speak(self, text: str) -> bytes:
        """Returns the text as a wav. Raises JudgeError."""
        create, text = self._caller.client.audio.speech.with_raw_response.create, valid_text(text)
        tokens = len(text) / 4

        async def send() -> bytes:
            reply = to_http_reply(
                await create(model=self.model, voice=self.voice, input=text, response_format="wav")
            )
            return self._caller.sound(reply)

        return await self._caller.ask(send, tokens, lambda _: CallCost(tokens))


class OpenAIListener:
    """An audio model as a Listener, through the chat completions. The schema is in the prompt:
    OpenAI's audio models answer 400 to a `response_format` with a schema."""

    def __init__(
        self,
        model: str = LISTENING_MODEL,
        server: SpeechServer = SpeechServer(),
        access: CallPolicy = CallPolicy(PATIENCE),
    ) -> None:
        self.model = model
        self._caller = _Caller(f"speech emotion by openai/{model}", server, access)
        self._limit = "max_completion_tokens" if server.base_url is None else "max_tokens"
        self.aclose = self._caller.client.close

    async def listen(self, wav: bytes, labels: Sequence[str]) -> Mapping[str, float]:
        """Returns the model's weight for each label, not normalised. Raises JudgeError; Malformed
        if the answer is no distribution."""
        model = _emotion_model(tuple(labels))
        body = self._request_body(wav, model)

        create = self._caller.client.chat.completions.with_raw_response.create

        async def send() -> Reply:
            reply = to_http_reply(await create(model=self.model, messages=[], extra_body=body))
            return read_completion(edge_for(self._caller.client), reply)

        def cost(reply: Reply) -> CallCost:
            return CallCost.from_usage(reply.usage) if reply.is_counted else CallCost(TOKENS_A_CLIP)

        return _parse_reply(await self._caller.ask(send, TOKENS_A_CLIP, cost), model)

    def _request_body(self, wav: bytes, model: type[BaseModel]) -> dict[str, Any]:
        question = _QUESTION.format(schema=json.dumps(model.model_json_schema()))
        sound = {
            "type": "input_audio",
            "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"},
        }
        content = [{"type": "text", "text": question}, sound]
        options: dict[str, Any] = {
            "modalities": ["text"],
            "temperature": 0,
            self._limit: MAX_OUTPUT_TOKENS,
        }
        return {**options, "messages": [{"role": "user", "content": content}]}


@cache
def _emotion_model(labels: tuple[str, ...]) -> type[BaseModel]:
    """A judgment with a probability for each label, all of them required."""
    fields: dict[str, Any] = {label: (Share, Field()) for label in labels}
    return cast(
        type[BaseModel], create_model("Emotions", __doc__="How probable each emotion is.", **fields)
    )


def _parse_reply(reply: Reply, model: type[BaseModel]) -> dict[str, float]:
    if reply.ending == "refused":
        raise Refused("the model declined to listen")
    if reply.ending == "truncated":
        raise Truncated("the answer was cut off at the output limit")
    start, end = reply.text.find("{"), reply.text.rfind("}")  # some wrap their JSON in a fence
    try:
        return dict(model.model_validate_json(reply.text[start : end + 1]))
    except ValidationError:
        raise Malformed("the answer is no distribution over the labels") from None
