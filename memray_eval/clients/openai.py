"""OpenAI and any server that speaks its protocol (a vLLM server, Ollama): candidates under test, and judges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import httpx
import openai
from instructor import Mode
from instructor.utils.providers import Provider
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from memray_eval.clients.instructed import Access, InstructedJudge, JudgeSpec, Reply, by_status, instructed_request, judge_key
from memray_eval.clients.quota import quota_error
from memray_eval.config import ServerConfig, server_key
from memray_eval.errors import JudgeError, Unavailable
from memray_eval.types import Candidate, Prompt, Response, Usage, split_thinking

SMALL_TEXT, SMALL_LIST = 160, 3  # characters of a text and entries of a list that a small judge may write


class OpenAIGenerator:
    """Asks one candidate's server, at most `max_in_flight` calls at a time. Replies stream, so that the time to the first
    token is known. Build it on the event loop that will use it."""

    def __init__(self, candidate: Candidate, config: ServerConfig) -> None:
        key = server_key(candidate.base_url, candidate.api_key_env, f"candidate {candidate.name!r}")
        self._client = openai.AsyncOpenAI(api_key=key, base_url=candidate.base_url, timeout=config.timeout_s, max_retries=3)
        self._slots = asyncio.Semaphore(config.max_in_flight)

    async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
        """Chat prompts go to the chat completions; plain ones to a server's completions, which OpenAI itself does not have for
        its models of today, so there they are a chat of one message."""
        is_chat = prompt.is_chat or candidate.base_url is None
        form = {"prompt_form": "chat" if is_chat else "plain"}
        async with self._slots:
            started = time.perf_counter()
            try:
                spoken = await self._stream(prompt, candidate, is_chat, started)
            except openai.APIStatusError as error:
                spoken = Response(error=f"the server answered {error.status_code}")
            except (openai.APIError, httpx.HTTPError) as error:  # a stream that breaks raises httpx's own
                spoken = Response(error=f"no reply: {type(error).__name__}")
            return spoken.model_copy(update={**form, "duration_s": time.perf_counter() - started})

    async def _stream(self, prompt: Prompt, candidate: Candidate, is_chat: bool, started: float) -> Response:
        reply = _Heard(started)
        async for chunk in await self._open(prompt, candidate, is_chat):
            reply.hear(chunk, is_chat)
        return reply.response()

    async def _open(self, prompt: Prompt, candidate: Candidate, is_chat: bool) -> Any:
        sampling = prompt.sampling(candidate)
        settings: dict[str, Any] = {
            "model": candidate.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
            # Not OpenAI's own, but vLLM's and others': sent only where it is asked for.
            "extra_body": {"repetition_penalty": sampling.repetition_penalty} if sampling.repetition_penalty != 1.0 else None,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if is_chat:
            messages = [message.model_dump() for message in prompt.messages]
            return await self._client.chat.completions.create(messages=cast(Any, messages), **settings)
        text = "".join(message.content for message in prompt.messages)
        return await self._client.completions.create(prompt=text, **settings)


class _Heard:
    """A streamed answer, as it comes."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._finish_reason: str | None = None
        self._usage: Any = None
        self._ttft_s: float | None = None

    def hear(self, chunk: Any, is_chat: bool) -> None:
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            said = choice.delta.content if is_chat else choice.text
            thought = getattr(choice.delta, "reasoning_content", None) if is_chat else None  # vLLM's and DeepSeek's field
            if said or thought:
                self._ttft_s = self._ttft_s if self._ttft_s is not None else time.perf_counter() - self._started
            self._text.append(said or "")
            self._thinking.append(thought or "")
            self._finish_reason = choice.finish_reason or self._finish_reason

    def response(self) -> Response:
        spoken, apart, usage = split_thinking("".join(self._text)), "".join(self._thinking).strip(), self._usage
        details = getattr(usage, "prompt_tokens_details", None)
        return Response(
            text=spoken.text,
            thinking="\n".join(part for part in (apart, spoken.thinking) if part),
            thinking_blocks=spoken.blocks + bool(apart),
            error=None if self._finish_reason else "the server closed the stream before the answer was finished",
            finish_reason=self._finish_reason,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=getattr(details, "cached_tokens", None),
            output_tokens=usage.completion_tokens if usage else None,
            ttft_s=self._ttft_s,
        )


class OpenAIWire:
    """Judging by chat completions: a strict JSON schema where OpenAI itself is asked, guided decoding at other servers."""

    assistant_role = "assistant"

    def __init__(
        self, client: openai.AsyncOpenAI, model: str, is_openai: bool, parameters: Mapping[str, Any], is_small: bool = False
    ) -> None:
        self._client, self._model, self._is_openai, self._is_small = client, model, is_openai, is_small
        self.parameters: Mapping[str, Any] = dict(parameters)

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        request = {"model": self._model, **self.parameters}
        arguments = instructed_request(Provider.OPENAI, Mode.JSON_SCHEMA, judgment, request)
        asked = arguments["response_format"]["json_schema"]
        if self._is_openai:
            asked.update(strict=True, schema=to_strict_json_schema(judgment))
        elif self._is_small:
            asked["schema"] = bounded(asked["schema"])
        del arguments["messages"]
        return arguments

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> Any:
        # As an extra body: what the SDK takes by name it walks through, type by type, at every call.
        body = {**prepared, "messages": talk}
        return await self._client.chat.completions.create(model=self._model, messages=[], extra_body=body)

    def read(self, completion: Any) -> Reply:
        choice, usage = completion.choices[0], completion.usage
        spent = Usage(input_tokens=usage.prompt_tokens if usage else 0, output_tokens=usage.completion_tokens if usage else 0)
        if choice.message.refusal or choice.finish_reason == "content_filter":
            return Reply("", spent, "refused")
        return Reply(choice.message.content or "", spent, "truncated" if choice.finish_reason == "length" else "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        if isinstance(error, openai.APIStatusError):
            quota = quota_error(error.status_code, error.body)
            return quota or by_status(error.status_code, error.response.headers.get("retry-after"))
        if isinstance(error, openai.APITimeoutError):
            return Unavailable("no answer in time")
        return Unavailable("the connection was lost") if isinstance(error, openai.APIConnectionError) else None


def bounded(schema: Any) -> Any:
    """A JSON schema whose texts and lists are short: a small model under guided decoding would fill them without end."""
    if isinstance(schema, list):
        return [bounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: bounded(part) for key, part in schema.items()}
    if out.get("type") == "string" and not {"enum", "const"} & out.keys():
        out["maxLength"] = SMALL_TEXT
    if out.get("type") == "array":
        out["maxItems"] = SMALL_LIST
    return out


def openai_judge(spec: JudgeSpec, access: Access, is_small: bool = False) -> InstructedJudge:
    key = judge_key(spec, "OPENAI_API_KEY")

    async def hear(response: Any) -> None:
        await access.gate.heard(response.headers)

    # aiohttp below the SDK: half the CPU of a call over httpx.
    http = openai.DefaultAioHttpClient(timeout=spec.timeout_s, event_hooks={"response": [hear]})
    client = openai.AsyncOpenAI(api_key=key, base_url=spec.base_url, timeout=spec.timeout_s, max_retries=0, http_client=http)
    limit = "max_completion_tokens" if spec.base_url is None else "max_tokens"
    wire = OpenAIWire(client, spec.model, spec.base_url is None, {limit: spec.max_output_tokens, **spec.parameters}, is_small)
    return InstructedJudge(spec, wire, access, client.close)
