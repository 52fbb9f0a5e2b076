"""Judges behind Google's generateContent API. instructor switches Gemini's safety thresholds off
for its calls."""

import json
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import BaseModel, ValidationError

from memray_eval.errors import ConfigError, JudgeError
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
from memray_eval.provider_http import keep_open, silence_payload_logs
from memray_eval.provider_http.parameters import FORM, Changes, changed_parameters
from memray_eval.provider_http.replies import (
    Edge,
    HttpReply,
    InvalidReply,
    JsonObject,
    TokenFields,
    read_usage,
)
from memray_eval.provider_http.transport import OnHeaders, client_options
from memray_eval.types import broken_off

silence_payload_logs()

_TOKENS = TokenFields(
    input=("promptTokenCount",),
    output=("candidatesTokenCount", "thoughtsTokenCount"),
    cached=("cachedContentTokenCount",),
)
_FIELDS = {"max_tokens": "max_output_tokens", "stop": "stop_sequences"}
_ADDRESS = "https://generativelanguage.googleapis.com"
_FIRST = "words before the first turn"  # Gemma takes neither a schema nor a system's instruction


class GoogleAdapter(ProviderAdapter):
    assistant_role = "model"
    forms = ("json_schema", "words")
    # No document says that a response schema is a part of the start
    schema_is_in_start = False

    def __init__(self, spec: JudgeSpec, on_headers: OnHeaders | None = None) -> None:
        """Its headers tell of no limits."""
        self._model, self.edge = spec.model, Edge(spec.base_url or _ADDRESS, spec.key)
        # Over aiohttp the SDK sends a lost call a second time by itself.
        http = keep_open(httpx2.AsyncClient(**client_options(spec.timeout_s)))
        options = types.HttpOptions(
            base_url=spec.base_url, timeout=int(spec.timeout_s * 1000), httpx_async_client=http
        )
        self._client = genai.Client(api_key=spec.key, http_options=options)
        self.parameters = {"max_tokens": spec.max_output_tokens, **spec.parameters}
        self.negotiable = {_FIELDS.get(k, k): v for k, v in self.parameters.items()}
        try:
            self._own = types.GenerateContentConfig(**self.negotiable)
        except ValidationError as error:
            name = ".".join(map(str, error.errors()[0]["loc"]))
            raise ConfigError(
                f"judging.parameters: {name} is no field of Google's GenerateContentConfig, or its "
                f"value none of it: {error.errors()[0]['msg']}"
            ) from None

    def adjust(self, prepared: Request, changes: Changes) -> Request:
        sent = changed_parameters(self.negotiable, changes)
        config = prepared["config"]
        left_out = dict.fromkeys(self.negotiable.keys() - sent.keys())
        if changes.get(FORM) != "words":
            return {**prepared, "config": config.model_copy(update=left_out)}
        left_out |= dict.fromkeys(("response_mime_type", "response_schema", "system_instruction"))
        schema = json.dumps(config.response_schema.model_json_schema(), ensure_ascii=False)
        first = f"{config.system_instruction or ''}{BY_WORDS}{schema}\n\n"
        return {**prepared, "config": config.model_copy(update=left_out), _FIRST: first}

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        request: dict[str, Any] = {"model": self._model}
        # instructor wants a question; the real ones come with each call.
        request["messages"] = [{"role": "user", "content": "?"}]
        if system:
            request["messages"].insert(0, {"role": "system", "content": system})
        arguments = build_request(Provider.GENAI, Mode.JSON, judgment, request)
        own = {name: getattr(self._own, name) for name in self._own.model_fields_set}
        own["should_return_http_response"] = True
        config = arguments["config"].model_copy(update=own)
        return {"model": arguments["model"], "config": config}

    async def send(
        self, prepared: Request, messages: Turns, start: SharedStart | None
    ) -> HttpReply:
        request = dict(prepared)
        first = request.pop(_FIRST, "")
        texts = [(turn["role"], turn["content"]) for turn in messages if turn["role"] != "system"]
        turns = [
            types.Content(role=role, parts=[types.Part.from_text(text=first * (not number) + text)])
            for number, (role, text) in enumerate(texts)
        ]
        completion = await self._client.aio.models.generate_content(contents=turns, **request)
        answer = completion.sdk_http_response  # as it came: the SDK does not check what it reads
        return HttpReply(200, (answer.body if answer is not None else None) or "")

    def read(self, completion: HttpReply) -> Reply:
        reply = self.edge.object(completion)
        usage, is_counted = read_usage(reply.get("usageMetadata"), _TOKENS)
        with self.edge.reading(completion, usage):
            served = reply.name("modelVersion")
            feedback = None if reply.get("candidates") else reply.get("promptFeedback")
            # Names the reason if the prompt itself was blocked.
            if isinstance(feedback, dict) and JsonObject(feedback).text("blockReason"):
                return Reply("", usage, "refused", is_counted, served)
            candidate = reply.first("candidates")
            if not {"content", "finishReason"} & candidate.keys():
                raise InvalidReply("candidates[0] has neither content nor finishReason")
            text = ""
            if candidate.get("content") is not None:
                content = candidate.object("content")
                parts = content.objects("parts") if content.get("parts") is not None else ()
                text = "".join(part.text("text") for part in parts if not part.get("thought"))
            finish = candidate.text("finishReason")
            is_new = broken_off(finish) and text.rstrip().endswith("}")  # a reason of after today
            ending = ending_of("" if is_new else finish, usage)
            return Reply(text, usage, ending, is_counted, served)

    def translate(self, error: BaseException) -> JudgeError:
        if isinstance(error, errors.APIError):
            headers = getattr(error.response, "headers", None) or {}
            status = getattr(error.response, "status_code", None) or error.code
            body = getattr(error.response, "content", None) or json.dumps(
                error.details, default=str
            )
            return self.edge.refusal(int(status), headers.get("retry-after"), body)
        return self.edge.lost(error)


open_adapter = GoogleAdapter
