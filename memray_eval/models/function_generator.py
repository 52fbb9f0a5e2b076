"""Candidates that are a user's function: of the prompt's messages, or of a Request, to a text or a
Response."""

import asyncio
import inspect
import time
from contextlib import suppress
from typing import Any

from memray_eval.config.sections import ServerConfig
from memray_eval.errors import describe_error
from memray_eval.extensions import OwnObject, call_own
from memray_eval.provider_http.replies import valid_text
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.types import Candidate, Prompt, Response


class FunctionGenerator:
    """Asks a function, at most `at_once` calls at a time (None: `max_in_flight`), on one event
    loop. Whatever becomes of a call is a Response. Raises ConfigError if the function does not
    exist."""

    def __init__(self, code: OwnObject, config: ServerConfig, at_once: int | None = None) -> None:
        self._answer, self._timeout_s = code.load(), config.timeout_s
        self._takes_request = takes_request(self._answer)
        self._slots = asyncio.Semaphore(at_once or config.max_in_flight)

    async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
        async with self._slots:
            started = time.perf_counter()
            response = await self._ask(prompt)
            times = {"duration_s": time.perf_counter() - started, "ended_s": time.time()}
            form = "chat" if prompt.is_chat else "plain"
            return response.model_copy(update={"prompt_form": form, **times})

    async def _ask(self, prompt: Prompt) -> Response:
        messages: Any = [message.model_dump() for message in prompt.messages]
        if self._takes_request and prompt.request is not None:
            messages = prompt.request.model_copy(update={"messages": prompt.messages})
        try:
            answer = await asyncio.wait_for(call_own(self._answer, messages), self._timeout_s)
        except TimeoutError:
            return Response(error=f"TimeoutError: no answer within {self._timeout_s:g} s")
        except Exception as error:  # of the user's: this answer's own
            return Response(error=describe_error(error))
        return to_response(answer)


def to_response(answer: Any) -> Response:
    """What a function returned, a text or a Response, as a Response with the reason if it is not an
    answer; anything else is its error."""
    if isinstance(answer, Response):
        return answer.with_cause()
    if not isinstance(answer, str):
        return Response(error=f"TypeError: returned {type(answer).__name__}, not a text")
    return Response(**split_thinking(valid_text(answer))._asdict()).with_cause()


def takes_request(function: Any) -> bool:
    """True if a function's first parameter is called `request`, or annotated as a Request."""
    with suppress(TypeError, ValueError):  # of some builtins nothing is known
        for parameter in inspect.signature(function).parameters.values():
            kind = getattr(parameter.annotation, "__name__", parameter.annotation)
            return parameter.name == "request" or str(kind).endswith("Request")
    return False
