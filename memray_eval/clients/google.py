"""Judges behind Google's generateContent API. instructor switches Gemini's safety thresholds off for its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from google import genai
from google.genai import errors, types
from instructor import Mode
from instructor.utils.providers import Provider
from pydantic import BaseModel

from memray_eval.clients.instructed import Access, InstructedJudge, JudgeSpec, Reply, by_status, instructed_request, judge_key
from memray_eval.clients.quota import quota_error
from memray_eval.errors import JudgeError
from memray_eval.types import Usage

_REFUSALS = {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"}


class GoogleWire:
    assistant_role = "model"

    def __init__(self, client: genai.Client, model: str, parameters: Mapping[str, Any]) -> None:
        self._client, self._model = client, model
        self.parameters: Mapping[str, Any] = dict(parameters)

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self._model, "generation_config": dict(self.parameters)}
        any_question = {"role": "user", "content": "?"}  # instructor wants one; the real ones come with each call
        request["messages"] = [{"role": "system", "content": system}, any_question] if system else [any_question]
        arguments = instructed_request(Provider.GENAI, Mode.JSON, judgment, request)
        return {"model": arguments["model"], "config": arguments["config"]}

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> Any:
        turns = [
            types.Content(role=turn["role"], parts=[types.Part.from_text(text=turn["content"])])
            for turn in talk
            if turn["role"] != "system"
        ]
        return await self._client.aio.models.generate_content(contents=turns, **prepared)

    def read(self, completion: Any) -> Reply:
        spent = completion.usage_metadata
        usage = Usage(
            input_tokens=(spent.prompt_token_count or 0) if spent else 0,
            output_tokens=((spent.candidates_token_count or 0) + (spent.thoughts_token_count or 0)) if spent else 0,
        )
        candidate = completion.candidates[0] if completion.candidates else None
        if candidate is None:  # the prompt itself was blocked
            return Reply("", usage, "refused")
        parts = candidate.content.parts if candidate.content and candidate.content.parts else []
        text = "".join(part.text or "" for part in parts)
        reason = candidate.finish_reason.name if candidate.finish_reason else ""
        if reason in _REFUSALS:
            return Reply(text, usage, "refused")
        return Reply(text, usage, "truncated" if reason == "MAX_TOKENS" else "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        if isinstance(error, errors.APIError):
            headers = getattr(error.response, "headers", None) or {}
            return quota_error(error.code, error.details) or by_status(error.code, headers.get("retry-after"))
        return None


def google_judge(spec: JudgeSpec, access: Access) -> InstructedJudge:
    key = judge_key(spec, "GOOGLE_API_KEY")
    http = httpx.AsyncClient(timeout=spec.timeout_s)  # over aiohttp the SDK sends a lost call a second time by itself
    options = types.HttpOptions(base_url=spec.base_url, timeout=int(spec.timeout_s * 1000), httpx_async_client=http)
    client = genai.Client(api_key=key, http_options=options)
    wire = GoogleWire(client, spec.model, {"max_tokens": spec.max_output_tokens, **spec.parameters})
    return InstructedJudge(spec, wire, access, http.aclose)
