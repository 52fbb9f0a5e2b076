"""A judge behind a provider's API: instructor turns the judgment model into the provider's structured output and back.

What all providers share is here: one attempt, the typed outcome of a failed one, asking again with the validation error, usage
summed over every attempt, and the price. What differs stands in one file a provider (openai, anthropic, google).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import httpx
from instructor.core.exceptions import InstructorRetryException
from instructor.core.hooks import Hooks
from pydantic import BaseModel, ValidationError

from memray_eval.clients.policy import RetryPolicy, parse_retry_after
from memray_eval.errors import (
    JudgeError,
    Malformed,
    Refused,
    Throttled,
    Truncated,
    Unauthorised,
    Unavailable,
    UnknownModel,
)
from memray_eval.ports import Verdict
from memray_eval.types import Message, Usage

REASKS = 2  # a malformed verdict is asked for again, at most twice
logging.getLogger("instructor").setLevel(logging.CRITICAL)  # its error lines hold whole prompts


class Reply(NamedTuple):
    """A raw completion, read: its text, its tokens, and how it ended."""

    text: str
    usage: Usage
    ending: Literal["done", "refused", "truncated"]


class Wire(Protocol):
    """One provider's way of speaking. `assistant_role` is what it calls its own turns."""

    assistant_role: str

    def arguments(self, judgment: type[BaseModel]) -> dict[str, Any]:
        """What instructor's create takes beside messages and response_model: model, parameters, native schema."""
        ...

    def read(self, completion: Any) -> Reply: ...

    def translate(self, error: BaseException) -> JudgeError | None:
        """An SDK's exception as ours, by its type; never with a prompt, a reply or a key in the text. None: not the SDK's."""
        ...


class Price(NamedTuple):
    """US dollars per million tokens."""

    input_usd: float = 0.0
    output_usd: float = 0.0

    def of(self, usage: Usage) -> float:
        return (usage.input_tokens * self.input_usd + usage.output_tokens * self.output_usd) / 1e6


FREE = Price()
Close: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which model judges, where, and with what parameters. `api_key_env` None: the provider's usual variable, and none at a
    base_url of one's own."""

    name: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    timeout_s: float = 120.0
    max_output_tokens: int = 2048
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price = FREE


def by_status(status: int, retry_after: str | None) -> JudgeError:
    """The error of an HTTP status."""
    if status == 429:
        return Throttled("429: too many requests", retry_after_s=parse_retry_after(retry_after))
    if status in (401, 403):
        return Unauthorised(f"{status}: the key is wrong or may not use this model")
    if status == 404:
        return UnknownModel("404: the provider has no such model")
    if status == 408 or status >= 500:
        return Unavailable(f"the provider answered {status}")
    return JudgeError(f"the provider answered {status}")


class InstructedJudge:
    """Asks one model. Build it on the event loop that will use it: no client can be sent to another process."""

    def __init__(self, spec: JudgeSpec, client: Any, wire: Wire, policy: RetryPolicy, close: Close) -> None:
        self.name, self.aclose = spec.name, close
        self._client, self._wire, self._policy, self._price = client, wire, policy, spec.price

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        """The filled-in judgment. Raises JudgeError, which carries the tokens that were spent all the same."""
        started, spent = time.perf_counter(), _Spent()
        try:
            filled = await self._asked([message.model_dump() for message in messages], judgment, spent)
        except JudgeError as error:
            error.input_tokens, error.output_tokens = spent.usage.input_tokens, spent.usage.output_tokens
            error.cost_usd = self._price.of(spent.usage)
            raise
        return Verdict(
            judgment=filled,
            judge=self.name,
            usage=spent.usage,
            cost_usd=self._price.of(spent.usage),
            latency_s=time.perf_counter() - started,
        )

    async def _asked(self, talk: list[dict[str, Any]], judgment: type[BaseModel], spent: _Spent) -> BaseModel:
        """Asks, and asks again with what was wrong, until the judgment fits."""
        problem, role = "", self._wire.assistant_role
        for _ in range(REASKS + 1):
            try:
                return await self._policy.run(partial(self._attempt, talk, judgment, spent))
            except _Misfit as misfit:
                problem = misfit.problem
                wrong = f"That did not fit the schema: {problem} Give the whole JSON again, corrected."
                talk = [*talk, {"role": role, "content": misfit.text or "(empty)"}, {"role": "user", "content": wrong}]
        raise Malformed(f"the verdict did not fit its schema in {REASKS + 1} attempts: {problem}")

    async def _attempt(self, talk: list[dict[str, Any]], judgment: type[BaseModel], spent: _Spent) -> BaseModel:
        seen: list[Any] = []
        hooks = Hooks()
        hooks.on("completion:response", seen.append)
        try:
            filled: BaseModel = await self._client.create(
                response_model=judgment, messages=list(talk), max_retries=0, hooks=hooks, **self._wire.arguments(judgment)
            )
        except Exception as error:  # whatever SDK and instructor raise becomes ours here, by what was received
            if not seen:
                raise self._translated(error) from None
            reply = spent.add(self._wire.read(seen[-1]))
            if reply.ending == "done" and (unwrapped := _unwrapped(reply.text, judgment)) is not None:
                return unwrapped
            raise _outcome(reply, error) from None
        reply = spent.add(self._wire.read(seen[-1]))
        if reply.ending != "done":
            raise _outcome(reply, None)
        return filled

    def _translated(self, error: Exception) -> JudgeError:
        """instructor wraps what the SDK raised; the SDK's own exception says what happened."""
        inner = error.__cause__ if isinstance(error, InstructorRetryException) and error.__cause__ else error
        if isinstance(inner, TimeoutError | httpx.TimeoutException):
            return Unavailable("no answer in time")
        if isinstance(inner, OSError | httpx.TransportError):
            return Unavailable(f"no answer: {type(inner).__name__}")
        return self._wire.translate(inner) or JudgeError(f"the call could not be made: {type(inner).__name__}")


def _unwrapped(text: str, judgment: type[BaseModel]) -> BaseModel | None:
    """The judgment in a reply that wraps its JSON in a fence or in words, if there is one."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return judgment.model_validate_json(text[start : end + 1]) if 0 <= start < end else None
    except ValidationError:
        return None


class _Spent:
    """Tokens so far, over every attempt of one call."""

    def __init__(self) -> None:
        self.usage = Usage()

    def add(self, reply: Reply) -> Reply:
        self.usage = Usage(
            input_tokens=self.usage.input_tokens + reply.usage.input_tokens,
            output_tokens=self.usage.output_tokens + reply.usage.output_tokens,
        )
        return reply


class _Misfit(Exception):
    """A reply that is no judgment: what it said and what was wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text, self.problem = text, problem


def _outcome(reply: Reply, error: Exception | None) -> Exception:
    if reply.ending == "refused":
        return Refused("the judge or its content filter declined")
    if reply.ending == "truncated":
        return Truncated("the verdict was cut off at the output limit; raise judging.max_output_tokens")
    return _Misfit(reply.text, _problem(error))


def _problem(error: Exception | None) -> str:
    """What was wrong, field by field, without the values: they may quote what is judged."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ValidationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return "it was not the JSON that was asked for."
    problems = cause.errors(include_input=False)[:5]
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in problems) + "."
