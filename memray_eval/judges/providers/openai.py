"""Judges behind OpenAI, and behind any server that speaks its protocol (a vLLM server, Ollama)."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import openai
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from memray_eval.errors import ConfigError
from memray_eval.judges.adapter import (
    BY_WORDS,
    JudgeSpec,
    ProviderAdapter,
    Reply,
    Request,
    Turns,
    ending_of,
)
from memray_eval.judges.prompt_cache import SharedStart
from memray_eval.judges.providers import Mode, Provider, build_request
from memray_eval.provider_http import IDEMPOTENCY_KEY, openai_sdk
from memray_eval.provider_http.parameters import FORM, FORMS, STREAM, Changes
from memray_eval.provider_http.replies import (
    OPENAI_TOKENS,
    Edge,
    HttpReply,
    JsonObject,
    joined_events,
    read_usage,
    thoughts_in,
    valid_text,
)
from memray_eval.provider_http.transport import OnHeaders, encode

SMALL_TEXT = 160  # characters of a text that a small judge may write
SMALL_LIST = 3  # entries of a list
_AS = "verdict asked for by"  # in a prepared request: one of FORMS


class OpenAIAdapter(ProviderAdapter):
    """Judging by chat completions: a strict JSON schema at OpenAI, guided decoding elsewhere, and
    what is left where a server takes no schema, or a job's `response_format` says so."""

    def __init__(self, spec: JudgeSpec, on_headers: OnHeaders | None = None) -> None:
        self._client = openai_sdk.json_client(open_client(spec), spec.timeout_s, on_headers)
        self.edge, self._model, self._is_small = self._client.edge, spec.model, spec.is_small
        self._is_openai = spec.is_providers or spec.base_url is None
        self._is_marked = self._is_openai and spec.cache.is_marked
        # OpenAI puts it before the system's words; a server decodes by it
        self.schema_is_in_start = self._is_openai
        limit = "max_completion_tokens" if self._is_openai else "max_tokens"
        self.parameters = {limit: spec.max_output_tokens, **spec.parameters}
        self.negotiable = {k: v for k, v in self.parameters.items() if k != FORM}
        named = self.parameters.get(FORM, FORMS[0])
        form = str(named.get("type") if isinstance(named, Mapping) else named)
        if (form := "words" if form == "text" else form) not in FORMS:
            raise ConfigError(f"judging.parameters: {FORM}: {form}; there are: {', '.join(FORMS)}")
        self.forms = FORMS[FORMS.index(form) :]

    def adjust(self, prepared: Request, changes: Changes) -> Request:
        request = super().adjust(prepared, changes)
        if STREAM in changes:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return request | {_AS: changes.get(FORM, self.forms[0])}

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        request: dict[str, Any] = {"model": self._model, **self.negotiable}
        if shared_first and self._is_openai:  # the schema is in the prompt
            return request | {FORM: {"type": "json_object"}} | self._cache_options
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
        body = _by_form({**prepared, "messages": messages})
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
        return joined_events(await self._client.post("chat/completions", body, headers))

    def read(self, completion: HttpReply) -> Reply:
        return read_completion(self.edge, completion)


def _by_form(body: Request) -> Request:
    """A request whose verdict is asked for by another form than a schema."""
    form, schema = body.pop(_AS, FORMS[0]), body.get(FORM, {}).get("json_schema")
    if form == FORMS[0]:
        return body
    del body[FORM]
    if form == "json_object":
        body[FORM] = {"type": "json_object"}
    elif form == "tool" and schema is not None:
        function = {"name": schema["name"], "parameters": schema["schema"]}
        body["tools"] = [{"type": "function", "function": function}]
        body["tool_choice"] = {"type": "function", "function": {"name": schema["name"]}}
    if schema is not None:  # else it is in the prompt
        first, *rest = body["messages"]
        words = f"{first['content']}{BY_WORDS}{json.dumps(schema['schema'], ensure_ascii=False)}"
        body["messages"] = [{**first, "content": words}, *rest]
    return body


def read_completion(edge: Edge, reply: HttpReply) -> Reply:
    """A chat completion. Raises JudgeError."""
    completion = edge.object(reply)
    spent, is_counted = read_usage(completion.get("usage"), OPENAI_TOKENS)
    with edge.reading(reply, spent):
        choice = completion.first("choices")
        message, finish = choice.object("message"), choice.text("finish_reason")
        served = completion.name("model")
        ending = ending_of("error" if choice.get("error") else finish, spent)
        if message.text("refusal") or ending == "refused":
            return Reply("", spent, "refused", is_counted, served)
        content = message.get("content")
        if isinstance(content, list):  # Mistral's, with thinking in other parts
            content = "".join(part.text("text") for part in message.objects("content"))
        elif isinstance(content, dict):
            content = json.dumps(content)
        else:
            content = message.text("content")
        # The last object is the verdict: what a model calls a tool to think with is none
        text = "\n".join(filter(None, (_tool_text(message), content)))
        thoughts = valid_text(thoughts_in(message))
        return Reply(text, spent, ending, is_counted, served, thoughts)


def _tool_text(message: JsonObject) -> str:
    """What a message's calls of tools were called with."""
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls or () if isinstance(call, Mapping)]
    called = [of for of in (*functions, message.get("function_call")) if isinstance(of, Mapping)]
    arguments = [of.get("arguments") or "" for of in called]
    return "\n".join(valid_text(it) if isinstance(it, str) else json.dumps(it) for it in arguments)


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
    """The SDK's client for live calls and batches."""
    return openai_sdk.open_client(spec.key, spec.base_url, spec.timeout_s, **transport)


open_adapter = OpenAIAdapter
