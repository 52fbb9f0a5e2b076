"""Servers that refuse parameters, each in its own words, as read in public issues (2026-11)."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.servers.judgments import judgment_reply
from tests.servers.provider import Outcome, Raw, Reply


def _openai(name: str) -> Any:
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    if name == "max_tokens":
        message += " Use 'max_completion_tokens' instead."
    if name == "temperature":
        message = (
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default "
            "(1) value is supported."
        )
    code = "unsupported_value" if name == "temperature" else "unsupported_parameter"
    error = {"message": message, "type": "invalid_request_error", "param": name, "code": code}
    return {"error": error}


def _azure(name: str) -> Any:
    message = f"Unrecognized request argument supplied: {name} (request id: 2)"
    return {"error": {"message": message, "type": "invalid_request_error", "param": None}}


def _anthropic(name: str) -> Any:
    message = f"{name}: Extra inputs are not permitted"
    if name == "temperature":
        message = "`temperature` is deprecated for this model."
    error = {"type": "invalid_request_error", "message": message}
    return {"type": "error", "error": error, "request_id": "req_011"}


def _google(name: str) -> Any:
    message = f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config'."
    if name == "thinkingConfig":
        message = "Thinking budget is not supported for this model."
    if name == "seed":
        message = "Unable to submit request because seed is not supported by this model."
    return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


def _vllm(name: str) -> Any:
    details = [
        {
            "type": "extra_forbidden",
            "loc": ("body", name),
            "msg": "Extra inputs are not permitted",
            "input": {"temperature": 0, "top_p": 1, "seed": 0, "stop": []},
        }
    ]
    return {"object": "error", "message": str(details), "type": "BadRequestError", "code": 400}


def _litellm(name: str) -> Any:
    message = (
        f"litellm.UnsupportedParamsError: openai does not support parameters: ['{name}'], for "
        "model=gpt-6. To drop these, set `litellm.drop_params=True` or for proxy:\n\n"
        "`litellm_settings:\n drop_params: true`\n. \n If you want to use these params dynamically "
        f"send allowed_openai_params=['{name}'] in your request."
    )
    return {"error": {"message": message, "type": "None", "param": "None", "code": "400"}}


def _fastapi(name: str) -> Any:
    details = {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs", "input": 0}
    return {"detail": [details]}


def _xai(name: str) -> Any:
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])
    error = f"Argument not supported on this model: {camel}"
    return {"code": "Client specified an invalid argument", "error": error}


def _groq(name: str) -> Any:
    message = f"property '{name}' is unsupported, did you mean 'messages'?"
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _gateway(name: str) -> Any:
    within = json.dumps(_anthropic(name))
    return {"error": {"message": f"litellm.BadRequestError: AnthropicException - {within}"}}


FORMS: dict[str, Callable[[str], Any]] = {
    "openai": _openai,
    "azure": _azure,
    "anthropic": _anthropic,
    "google": _google,
    "vllm": _vllm,
    "litellm": _litellm,
    "fastapi": _fastapi,
    "xai": _xai,
    "groq": _groq,
    "gateway": _gateway,
}


class RefusingServer:
    """A reply that refuses the first of `names` that a body holds, in a form's words, and counts
    its refusals; what has none of them is left to `reply`. `says_more`: a body without any of them
    is refused too, in words that name none."""

    def __init__(
        self,
        form: str,
        names: Sequence[str],
        reply: Reply = judgment_reply,
        says_more: bool = False,
    ) -> None:
        self._form, self._names, self.reply = form, tuple(names), reply
        self._says_more = says_more
        self.refusals: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any]) -> str | Outcome:
        holder = body.get("generationConfig", {}) | body
        for name in self._names:
            if name in holder:
                self.refusals[name] += 1
                return _refusal(FORMS[self._form](name), 422 if self._form == "fastapi" else 400)
        if self._says_more:
            self.refusals[""] += 1
            return _refusal({"error": {"message": "This account may not do that today."}}, 400)
        return self.reply(body)


def _refusal(error_body: Any, status: int) -> Raw:
    return Raw(json.dumps(error_body).encode(), status=status)
