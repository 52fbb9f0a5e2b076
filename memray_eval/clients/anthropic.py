"""Judges behind Anthropic's messages API, with its native structured output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anthropic
from instructor import Mode
from instructor.utils.providers import Provider
from pydantic import BaseModel

from memray_eval.clients.instructed import Access, InstructedJudge, JudgeSpec, Reply, by_status, instructed_request, judge_key
from memray_eval.clients.quota import quota_error
from memray_eval.errors import JudgeError, Unavailable
from memray_eval.types import Usage


class AnthropicWire:
    assistant_role = "assistant"

    def __init__(self, client: anthropic.AsyncAnthropic, model: str, parameters: Mapping[str, Any]) -> None:
        self._client, self._model = client, model
        self.parameters: Mapping[str, Any] = dict(parameters)

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        schema = {"type": "json_schema", "schema": anthropic.transform_schema(judgment)}
        request = {"model": self._model, "output_config": {"format": schema}, **self.parameters}
        request["messages"] = [{"role": "system", "content": system}] if system else []
        arguments = instructed_request(Provider.ANTHROPIC, Mode.JSON, judgment, request)
        del arguments["messages"]
        return arguments

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> Any:
        turns = [turn for turn in talk if turn["role"] != "system"]
        # As an extra body: what the SDK takes by name it walks through, type by type, at every call.
        body = {**prepared, "messages": turns}
        return await self._client.messages.create(
            model=self._model, max_tokens=prepared["max_tokens"], messages=[], extra_body=body
        )

    def read(self, completion: Any) -> Reply:
        usage = Usage(input_tokens=completion.usage.input_tokens, output_tokens=completion.usage.output_tokens)
        text = "".join(block.text for block in completion.content if block.type == "text")
        if completion.stop_reason == "refusal":
            return Reply(text, usage, "refused")
        return Reply(text, usage, "truncated" if completion.stop_reason == "max_tokens" else "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        if isinstance(error, anthropic.APIStatusError):
            quota = quota_error(error.status_code, error.body)
            return quota or by_status(error.status_code, error.response.headers.get("retry-after"))
        if isinstance(error, anthropic.APITimeoutError):
            return Unavailable("no answer in time")
        return Unavailable("the connection was lost") if isinstance(error, anthropic.APIConnectionError) else None


def anthropic_judge(spec: JudgeSpec, access: Access) -> InstructedJudge:
    key = judge_key(spec, "ANTHROPIC_API_KEY")

    async def hear(response: Any) -> None:
        await access.gate.heard(response.headers)

    http = anthropic.DefaultAioHttpClient(timeout=spec.timeout_s, event_hooks={"response": [hear]})
    client = anthropic.AsyncAnthropic(
        api_key=key, base_url=spec.base_url, timeout=spec.timeout_s, max_retries=0, http_client=http
    )
    wire = AnthropicWire(client, spec.model, {"max_tokens": spec.max_output_tokens, **spec.parameters})
    return InstructedJudge(spec, wire, access, client.close)
