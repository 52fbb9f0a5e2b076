"""Judges behind Anthropic's messages API, with its native structured output."""

from collections.abc import Mapping
from typing import Any

import anthropic
from pydantic import BaseModel

from memray_eval.judges.adapter import JudgeSpec, ProviderAdapter, Reply, Request, Turns, ending_of
from memray_eval.judges.prompt_cache import SharedStart
from memray_eval.judges.providers import Mode, Provider, build_request
from memray_eval.provider_http import keep_open, silence_payload_logs
from memray_eval.provider_http.parameters import FORM, Changes
from memray_eval.provider_http.replies import Edge, HttpReply, TokenFields, read_usage
from memray_eval.provider_http.transport import OnHeaders, client_options

silence_payload_logs()

# input_tokens are those that no cache had, nor took
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_TOKENS = TokenFields(
    input=("input_tokens", _READ, _WRITTEN),
    output=("output_tokens",),
    cached=(_READ,),
    written=(_WRITTEN,),
)


class AnthropicAdapter(ProviderAdapter):
    forms = ("json_schema", "words")  # which instructor has put into the system's
    schema_is_in_start = True  # another output_config is another start
    status_errors = (anthropic.APIStatusError,)

    def __init__(self, spec: JudgeSpec, on_headers: OnHeaders | None = None) -> None:
        self._client, self._model = open_client(spec, on_headers=on_headers), spec.model
        self.parameters = {"max_tokens": spec.max_output_tokens, **spec.parameters}
        fixed = ("max_tokens", "output_config")  # it insists on the one; the schema is in the other
        self.negotiable = {k: v for k, v in self.parameters.items() if k not in fixed}
        self.edge = Edge(str(self._client.base_url), spec.key)

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        if shared_first:
            return {"model": self._model, **self.parameters, "system": system}
        schema = {"type": "json_schema", "schema": anthropic.transform_schema(judgment)}
        output = {**self.parameters.get("output_config", {}), "format": schema}
        request = {"model": self._model, **self.parameters, "output_config": output}
        request["messages"] = [{"role": "system", "content": system}] if system else []
        arguments = build_request(Provider.ANTHROPIC, Mode.JSON, judgment, request)
        arguments.pop("messages", None)
        return arguments

    def adjust(self, prepared: Request, changes: Changes) -> Request:
        request = super().adjust(prepared, changes)
        if changes.get(FORM) == "words" and "output_config" in request:
            output = request.pop("output_config")
            rest = {name: value for name, value in output.items() if name != "format"}
            request |= {"output_config": rest} if rest else {}
        return request

    async def body(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Request:
        """A request's whole body. The ends of a start that is to be kept are marked: up to the
        context, which other queries have too, and up to the query."""
        sent: list[Mapping[str, Any]] = [turn for turn in messages if turn["role"] != "system"]
        if start is not None and start.is_marked:
            mark = {"type": "ephemeral", **({"ttl": "1h"} if start.lasts_1h else {})}
            sent[0] = {**sent[0], "content": start.marked({"cache_control": mark})}
        return {**prepared, "messages": sent}

    async def send(
        self, prepared: Request, messages: Turns, start: SharedStart | None
    ) -> HttpReply:
        body = await self.body(prepared, messages, start)
        # As an extra body: what the SDK takes by name it walks through, type by type, at every
        # call. Raw: the SDK does not check what it reads.
        create = self._client.messages.with_raw_response.create
        response = await create(
            model=self._model, max_tokens=prepared["max_tokens"], messages=[], extra_body=body
        )
        return HttpReply.of_sdk(response)

    def read(self, completion: HttpReply) -> Reply:
        reply = self.edge.object(completion)
        usage, is_counted = read_usage(reply.get("usage"), _TOKENS)
        with self.edge.reading(completion, usage):
            blocks = reply.objects("content")
            text = "".join(block.text("text") for block in blocks if block.get("type") == "text")
            ending = ending_of(reply.text("stop_reason"), usage)
            return Reply(text, usage, ending, is_counted, reply.name("model"))


def open_client(spec: JudgeSpec, **transport: Any) -> anthropic.AsyncAnthropic:
    """The SDK's client for live calls and batches."""
    # aiohttp below the SDK: half the CPU of a call over httpx2.
    options = client_options(spec.timeout_s, **transport)
    http = keep_open(anthropic.DefaultAioHttpClient(**options))
    timeout_s, url = spec.timeout_s, spec.base_url
    return anthropic.AsyncAnthropic(
        api_key=spec.key, base_url=url, timeout=timeout_s, max_retries=0, http_client=http
    )


open_adapter = AnthropicAdapter
