"""Judges behind OpenAI, and behind any server that speaks its protocol (a vLLM server, Ollama)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import openai
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from memray_eval.errors import JudgeError
from memray_eval.judges.adapter import JudgeSpec, ProviderAdapter, Reply, Request, Turns, judge_key
from memray_eval.judges.instructor_compat import Mode, Provider, build_request
from memray_eval.judges.prompt_cache import SharedStart
from memray_eval.judges.structured_judge import CallPolicy, StructuredJudge
from memray_eval.provider_http import IDEMPOTENCY_KEY, openai_sdk
from memray_eval.provider_http.json_client import JsonClient, encode
from memray_eval.provider_http.replies import (
    Edge,
    HttpReply,
    TokenFields,
    read_usage,
)

_TOKENS = TokenFields(
    input=("prompt_tokens",),
    output=("completion_tokens",),
    cached=("prompt_tokens_details.cached_tokens",),
    written=("prompt_tokens_details.cache_write_tokens",),
)
SMALL_TEXT = 160  # characters of a text that a small judge may write
SMALL_LIST = 3  # entries of a list


class OpenAIAdapter(ProviderAdapter):
    """Judging by chat completions: a strict JSON schema at OpenAI, guided decoding elsewhere."""

    def __init__(
        self,
        client: JsonClient,
        model: str,
        is_openai: bool,
        parameters: Mapping[str, Any],
        is_small: bool = False,
        is_marked: bool = False,
    ) -> None:
        self._client, self._model, self._is_marked = client, model, is_openai and is_marked
        self.edge = client.edge
        # OpenAI puts it before the system's words; a server decodes by it
        self.schema_is_in_start = is_openai
        self._is_openai, self._is_small = is_openai, is_small
        self.parameters: Mapping[str, Any] = dict(parameters)
        self.negotiable: Mapping[str, Any] = self.parameters

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        request: dict[str, Any] = {"model": self._model, **self.parameters}
        if shared_first and self._is_openai:  # the schema is in the prompt
            return request | {"response_format": {"type": "json_object"}} | self._cache_options
        arguments = build_request(Provider.OPENAI, Mode.JSON_SCHEMA, judgment, request)
        schema = arguments["response_format"]["json_schema"]
        if self._is_openai:
            schema.update(strict=True, schema=to_strict_json_schema(judgment))
        elif self._is_small:
            schema["schema"] = bound_schema(schema["schema"])
        arguments.pop("messages", None)
        return arguments | self._cache_options

    @property
    def _cache_options(self) -> dict[str, Any]:
        """Keeps a model that bills cache writes from keeping every prompt to its end."""
        return {"prompt_cache_options": {"mode": "explicit"}} if self._is_marked else {}

    async def body(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Request:
        """A request's whole body. At OpenAI calls with one start have one key, which brings them to
        the machine that keeps it; a model that takes marks gets one at the start's ends."""
        body: Request = {**prepared, "messages": messages}
        if start is None or not self._is_openai:
            return body
        body["prompt_cache_key"] = start.key
        if self._is_marked:
            mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
            first = {**messages[1], "content": start.marked(mark)}
            body["messages"] = [messages[0], first, *messages[2:]]
        return body

    async def send(
        self, prepared: Request, messages: Turns, start: SharedStart | None
    ) -> HttpReply:
        body, headers = encode(await self.body(prepared, messages, start)), {}
        if key := IDEMPOTENCY_KEY.get():  # another body under an equal key would be refused
            headers = {"Idempotency-Key": f"{key}-{blake2b(body, digest_size=8).hexdigest()}"}
        return await self._client.post("chat/completions", body, headers)

    def read(self, completion: HttpReply) -> Reply:
        return read_completion(self.edge, completion)

    def translate(self, error: BaseException) -> JudgeError:
        return self.edge.lost(error)


def read_completion(edge: Edge, reply: HttpReply) -> Reply:
    """A chat completion. Raises JudgeError."""
    completion = edge.object(reply)
    spent, is_counted = read_usage(completion.get("usage"), _TOKENS)
    with edge.reading(reply, spent):
        choice = completion.first("choices")
        message, ending = choice.object("message"), choice.text("finish_reason")
        served = completion.name("model")
        if message.text("refusal") or ending == "content_filter":
            return Reply("", spent, "refused", is_counted, served)
        text = (
            "".join(part.text("text") for part in message.objects("content"))
            if isinstance(message.get("content"), list)  # Mistral's, with thinking in other parts
            else message.text("content")
        )
        is_cut = ending == "length"
        return Reply(text, spent, "truncated" if is_cut else "done", is_counted, served)


def bound_schema(schema: Any) -> Any:
    """A JSON schema with short texts and lists, which a small model would fill without end."""
    if isinstance(schema, list):
        return [bound_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: bound_schema(part) for key, part in schema.items()}
    if out.get("type") == "string" and not {"enum", "const"} & out.keys():
        out["maxLength"] = SMALL_TEXT
    if out.get("type") == "array":
        out["maxItems"] = SMALL_LIST
    return out


def open_client(spec: JudgeSpec, **transport: Any) -> openai.AsyncOpenAI:
    """The SDK's client for live calls and batches. Raises ConfigError if a needed key is unset."""
    key = judge_key(spec, "openai")
    return openai_sdk.open_client(key, spec.base_url, spec.timeout_s, **transport)


def openai_judge(spec: JudgeSpec, access: CallPolicy, is_small: bool = False) -> StructuredJudge:
    sdk = open_client(spec)
    client = openai_sdk.json_client(sdk, spec.timeout_s, access.admission.observe_headers)
    is_own_server = spec.base_url is not None or spec.environment_url is not None
    is_openai = spec.is_providers or not is_own_server
    limit = "max_completion_tokens" if is_openai else "max_tokens"
    parameters = {limit: spec.max_output_tokens, **spec.parameters}
    adapter = OpenAIAdapter(
        client, spec.model, is_openai, parameters, is_small, spec.cache.is_marked
    )
    return StructuredJudge(spec, adapter, access)
