"""Judges behind Anthropic's messages API, with its native structured output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anthropic
import instructor
from pydantic import BaseModel

from memray_eval.clients.instructed import InstructedJudge, JudgeSpec, Reply, by_status
from memray_eval.clients.policy import RetryPolicy
from memray_eval.config import required_key
from memray_eval.errors import JudgeError, Unavailable
from memray_eval.types import Usage


class AnthropicWire:
    assistant_role = "assistant"

    def __init__(self, model: str, parameters: Mapping[str, Any]) -> None:
        self._model, self._parameters = model, dict(parameters)

    def arguments(self, judgment: type[BaseModel]) -> dict[str, Any]:
        schema = {"type": "json_schema", "schema": anthropic.transform_schema(judgment)}
        return {"model": self._model, "output_config": {"format": schema}, **self._parameters}

    def read(self, completion: Any) -> Reply:
        usage = Usage(input_tokens=completion.usage.input_tokens, output_tokens=completion.usage.output_tokens)
        text = "".join(block.text for block in completion.content if block.type == "text")
        if completion.stop_reason == "refusal":
            return Reply(text, usage, "refused")
        return Reply(text, usage, "truncated" if completion.stop_reason == "max_tokens" else "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        if isinstance(error, anthropic.APIStatusError):
            return by_status(error.status_code, error.response.headers.get("retry-after"))
        if isinstance(error, anthropic.APITimeoutError):
            return Unavailable("no answer in time")
        return Unavailable("the connection was lost") if isinstance(error, anthropic.APIConnectionError) else None


def anthropic_judge(spec: JudgeSpec, policy: RetryPolicy) -> InstructedJudge:
    key = required_key(spec.api_key_env or "ANTHROPIC_API_KEY", f"judge {spec.name}")
    client = anthropic.AsyncAnthropic(api_key=key, base_url=spec.base_url, timeout=spec.timeout_s, max_retries=0)
    parameters = dict(spec.parameters)
    if "temperature" in parameters:  # the SDK has no such argument since 1.0, the API still takes it
        parameters["extra_body"] = {"temperature": parameters.pop("temperature")}
    wire = AnthropicWire(spec.model, {"max_tokens": spec.max_output_tokens, **parameters})
    instructed = instructor.from_anthropic(client, mode=instructor.Mode.JSON)
    return InstructedJudge(spec, instructed, wire, policy, client.close)
