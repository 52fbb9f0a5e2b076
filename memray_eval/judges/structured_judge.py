"""A judge behind a provider's API: instructor turns the judgment model into the provider's
structured output.

What all providers share is here: one attempt, the typed outcome of a failed one, asking again with
the validation error, usage summed over every attempt, the price, and the memory of calls that were
paid. What differs stands in one file a provider (openai, anthropic, google).

A judgment class may bring `from_text(text) -> judgment | None`, which reads a reply that is no
JSON. Where a judge of such a judgment says nothing that can be read, also when asked again, it has
abstained: that is Refused, not Malformed, and remembered as a refusal is, for the metrics that
share the judgment would pay for the same silence one after the other."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from instructor import Mode
from instructor.utils.providers import Provider
from instructor.v2.core.registry import mode_registry
from pydantic import BaseModel, ValidationError

from memray_eval.config.environment import api_key, required_key, server_key
from memray_eval.errors import JudgeError, Malformed, Refused, Truncated
from memray_eval.judges.call_cache import CachedCall, call_key, schema_digest
from memray_eval.judges.call_metrics import NO_OBSERVER, CallObserver, Outcome, outcome_of
from memray_eval.judges.limits.admission import CallPermit
from memray_eval.judges.limits.rate_limiter import CallCost
from memray_eval.judges.prices import FREE, Price
from memray_eval.log_once import log_once
from memray_eval.ports import Verdict
from memray_eval.provider_http.replies import valid_text
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Message, Usage

logger = logging.getLogger(__name__)

REASKS = 2  # a malformed verdict is asked for again, at most twice
_OR_UNREADABLE = ", or said nothing that could be read"
# In JSON: an escaped backslash, a whole surrogate pair, or (group 1) half of one, which no parser
# takes.
_HALF = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")
CHARACTERS_A_TOKEN = (
    4.0  # a rough start for how large a prompt is; the gate corrects it by what calls really take
)


class Reply(NamedTuple):
    """A raw completion, read: its text, its tokens, and how it ended. `is_counted`: the provider
    told all of its tokens."""

    text: str
    usage: Usage
    ending: Literal["done", "refused", "truncated"]
    is_counted: bool = True


class ProviderAdapter(Protocol):
    """One provider's way of speaking. `assistant_role` is what it calls its own turns; `parameters`
    are those of every call, as far as they shape the verdict."""

    assistant_role: str
    parameters: Mapping[str, Any]

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        """What every call with this rubric and judgment has in common: model, parameters, schema.
        Built once."""
        ...

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> Any:
        """Sends the turns of a talk, system first, and returns the provider's completion."""
        ...

    def read(self, completion: Any) -> Reply:
        """What the completion says. Raises JudgeError: Unreadable where it is none."""
        ...

    def translate(self, error: BaseException) -> JudgeError | None:
        """An SDK's exception as ours, by what happened; never with a prompt or a key in the text.
        None: not the SDK's."""
        ...


def build_request(
    provider: Provider, mode: Mode, judgment: type[BaseModel], request: dict[str, Any]
) -> dict[str, Any]:
    """A request with the judgment's schema put in, by instructor's handler of a provider's mode."""
    _, arguments = mode_registry.get_handlers(provider, mode).request_handler(
        response_model=judgment, kwargs=request
    )
    return dict(arguments)


class AdmissionPort(Protocol):
    """What lets a call through: see judges/limits/admission.py."""

    def turn(self, input_tokens: float) -> AbstractAsyncContextManager[CallPermit]: ...

    async def observe_headers(self, headers: Mapping[str, str]) -> None: ...


class CallStore(Protocol):
    """The calls that were paid, near or far. What `put` has returned from is kept."""

    async def get(self, key: str) -> CachedCall | None: ...

    async def put(self, call: CachedCall) -> None: ...


class NoAdmission:
    """Lets every call through at once."""

    @asynccontextmanager
    async def turn(self, input_tokens: float) -> AsyncIterator[CallPermit]:
        yield CallPermit(input_tokens, CallCost(input_tokens))

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        return


Close: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which model judges, where, and with what parameters. `api_key_env` None: the provider's usual
    variable, and none at a base_url of one's own. `environment_url` is the server that the SDK
    finds in the environment where there is no `base_url`. `served` names what a server of the run's
    own serves, whose address is another every time."""

    name: str
    model: str
    base_url: str | None = None
    environment_url: str | None = None
    served: str = ""
    api_key_env: str | None = None
    timeout_s: float = 120.0
    max_output_tokens: int = 2048
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price = FREE


def judge_key(spec: JudgeSpec, variable: str) -> str:
    """The key that a judge is asked with: from `api_key_env`, else the provider's usual `variable`,
    whose key goes to the server that the environment names beside it, if it is set. Raises
    ConfigError where a key is needed and not set."""
    if spec.environment_url is not None:
        return api_key(spec.api_key_env or variable) or "none"
    if spec.base_url is not None and variable == "OPENAI_API_KEY":  # it goes to OpenAI only
        return server_key(spec.base_url, spec.api_key_env, f"judge {spec.name}")
    return required_key(spec.api_key_env or variable, f"judge {spec.name}")


@dataclass(frozen=True)
class CallPolicy:
    """How a judge is reached: when calls are tried again, what lets them through, where they are
    remembered (None: nowhere), and who hears of them."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    gate: AdmissionPort = field(default_factory=NoAdmission)
    calls: CallStore | None = None
    watch: CallObserver = NO_OBSERVER


@dataclass(frozen=True)
class _Prepared:
    """A judgment with a rubric, made ready once: the request, the schema's digest, and about how
    many tokens both take."""

    request: dict[str, Any]
    schema: str
    tokens: float


class StructuredJudge:
    """Asks one model. Build it on the event loop that will use it: no client can be sent to another
    process."""

    def __init__(
        self, spec: JudgeSpec, wire: ProviderAdapter, access: CallPolicy, close: Close
    ) -> None:
        self.name, self.aclose = spec.name, close
        self._identity = (
            f"{spec.name} {spec.served or spec.base_url or spec.environment_url or ''}".strip()
        )
        self._wire, self._price = wire, spec.price
        self._policy, self._gate, self._calls, self._watch = (
            access.policy,
            access.gate,
            access.calls,
            access.watch,
        )
        self._prepared: dict[tuple[type[BaseModel], str], _Prepared] = {}
        self._asking: dict[str, asyncio.Future[None]] = {}

    async def judge(
        self, messages: Sequence[Message], judgment: type[BaseModel], repeat: int = 0
    ) -> Verdict:
        """The filled-in judgment; a call that was paid before costs nothing and is marked. Raises
        JudgeError, which carries the tokens that were spent all the same."""
        messages = [_sendable(message) for message in messages]
        prepared = self._prepare(
            judgment, messages[0].content if messages[0].role == "system" else ""
        )
        if self._calls is None:
            return await self._ask(messages, judgment, prepared, None)
        key = call_key(self._identity, messages, prepared.schema, self._wire.parameters, repeat)
        while (
            same := self._asking.get(key)
        ) is not None:  # the same question is under way: one call will do
            await asyncio.wait([same])
        self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            call = await self._calls.get(key)
            self._watch.looked_up(call is not None)
            if call is not None:
                try:
                    return self._remembered(call, judgment)
                except ValidationError:  # its rules have changed since: asked anew
                    kind = judgment.__name__
                    message = "a remembered verdict of %s is no %s any more: it is asked for anew"
                    log_once(
                        logger, logging.INFO, f"cache {self.name}/{kind}", message, self.name, kind
                    )
            return await self._ask(messages, judgment, prepared, key)
        finally:
            self._asking.pop(key).set_result(None)

    def _prepare(self, judgment: type[BaseModel], system: str) -> _Prepared:
        if (judgment, system) not in self._prepared:
            schema = judgment.model_json_schema()
            tokens = (len(system) + len(str(schema))) / CHARACTERS_A_TOKEN
            self._prepared[judgment, system] = _Prepared(
                self._wire.prepare(judgment, system), schema_digest(schema), tokens
            )
        return self._prepared[judgment, system]

    def _remembered(self, call: CachedCall, judgment: type[BaseModel]) -> Verdict:
        if call.judgment is None:
            raise Refused(
                "the judge or its content filter declined" + _OR_UNREADABLE * _reads_text(judgment)
            )
        return Verdict(
            judgment=judgment.model_validate_json(call.judgment),
            judge=self.name,
            cached=True,
            calls=0,
        )

    async def _ask(
        self,
        messages: Sequence[Message],
        judgment: type[BaseModel],
        prepared: _Prepared,
        key: str | None,
    ) -> Verdict:
        started, spent = time.perf_counter(), _Spent(self._price)
        remember = partial(self._remember, key, spent)
        try:
            filled = await self._asked(
                [message.model_dump() for message in messages], judgment, prepared, spent, remember
            )
        except JudgeError as error:
            error.input_tokens, error.output_tokens = (
                spent.usage.input_tokens,
                spent.usage.output_tokens,
            )
            error.cost_usd, error.calls = spent.cost_usd, spent.answered
            _log_failed_call(self.name, error)
            self._watch.settled(spent.calls, is_failed=not isinstance(error, Refused))
            raise
        self._watch.settled(spent.calls, is_failed=False)
        return Verdict(
            judgment=filled,
            judge=self.name,
            usage=spent.usage,
            cost_usd=spent.cost_usd,
            latency_s=time.perf_counter() - started,
            calls=spent.answered,
        )

    async def _remember(self, key: str | None, spent: _Spent, judgment: str | None) -> None:
        if key is not None and self._calls is not None:
            call = CachedCall(
                key=key,
                judge=self.name,
                judgment=judgment,
                cost_usd=spent.cost_usd,
                created=time.time(),
                **dict(spent.usage),
            )
            await self._calls.put(call)

    async def _asked(
        self,
        talk: list[dict[str, str]],
        judgment: type[BaseModel],
        prepared: _Prepared,
        spent: _Spent,
        remember: Callable[[str | None], Awaitable[None]],
    ) -> BaseModel:
        """Asks, and asks again with what was wrong, until the judgment fits."""
        problem, role = "", self._wire.assistant_role
        for _ in range(REASKS + 1):
            tokens = (
                prepared.tokens
                + sum(len(turn["content"]) for turn in talk[1:]) / CHARACTERS_A_TOKEN
            )
            try:
                return await self._policy.run(
                    partial(self._attempt, talk, judgment, prepared.request, spent, remember),
                    partial(self._gate.turn, tokens),
                )
            except InvalidVerdict as misfit:
                problem = misfit.problem
                wrong = (
                    f"That did not fit the schema: {problem} Give the whole JSON again, corrected."
                )
                talk = [
                    *talk,
                    {"role": role, "content": misfit.text or "(empty)"},
                    {"role": "user", "content": wrong},
                ]
        if _reads_text(judgment):
            await remember(None)
            raise Refused(f"the verdict could not be read in {REASKS + 1} attempts: {problem}")
        raise Malformed(f"the verdict did not fit its schema in {REASKS + 1} attempts: {problem}")

    async def _attempt(
        self,
        talk: list[dict[str, str]],
        judgment: type[BaseModel],
        request: dict[str, Any],
        spent: _Spent,
        remember: Callable[[str | None], Awaitable[None]],
        turn: CallPermit,
    ) -> BaseModel:
        """One call. Its verdict is remembered before its turn ends: what is in flight is all that a
        kill can lose."""
        with self._watched(turn, spent):
            reply = spent.add(await self._replied(request, talk, turn, spent))
            turn.used = _used(reply.usage, turn, reply.is_counted)
            return await self._read(reply, judgment, remember)

    @contextmanager
    def _watched(self, turn: CallPermit, spent: _Spent) -> Iterator[None]:
        self._watch.sent(is_again=spent.calls > 0)
        spent.calls += 1
        before, uncounted = spent.usage, spent.uncounted
        outcome: Outcome = "abandoned"
        try:
            yield
            outcome = "ok"
        except InvalidVerdict:
            outcome = "malformed"
            raise
        except JudgeError as error:
            outcome = outcome_of(error)
            raise
        finally:
            used = CallCost(
                spent.usage.input_tokens - before.input_tokens,
                spent.usage.output_tokens - before.output_tokens,
            )
            self._watch.ended(
                outcome, used, self._price.of(*used), is_counted=spent.uncounted == uncounted
            )

    async def _replied(
        self, request: dict[str, Any], talk: list[dict[str, str]], turn: CallPermit, spent: _Spent
    ) -> Reply:
        """The call and what it says. Whatever is raised by the SDK, or over an odd reply, is a
        JudgeError from here on."""
        try:
            return self._wire.read(await self._wire.send(request, talk))
        except Exception as raised:
            error = self._translated(raised)
            usage = Usage(input_tokens=error.input_tokens, output_tokens=error.output_tokens)
            if usage != Usage():  # an odd reply may be paid for
                turn.used, spent.usage = _used(usage, turn), spent.usage + usage
                spent.answered += 1
            raise error from None

    async def _read(
        self,
        reply: Reply,
        judgment: type[BaseModel],
        remember: Callable[[str | None], Awaitable[None]],
    ) -> BaseModel:
        if reply.ending == "refused":
            await remember(None)
            raise Refused("the judge or its content filter declined")
        if reply.ending == "truncated":
            raise Truncated(
                "the verdict was cut off at the output limit; raise judging.max_output_tokens"
            )
        filled = _filled(reply.text, judgment)
        await remember(filled.model_dump_json())
        return filled

    def _translated(self, error: Exception) -> JudgeError:
        if isinstance(error, JudgeError):
            return error
        return self._wire.translate(error) or JudgeError(
            f"the call could not be made: {type(error).__name__}"
        )


def _log_failed_call(judge: str, error: JudgeError) -> None:
    """Logs a call that got no verdict for good: the first of its kind as a warning."""
    told = f"{type(error).__name__}, status {error.status}, code {error.code or 'none'}, "
    told += f"type {error.kind or 'none'}, param {error.param or 'none'}"
    level = logging.DEBUG if isinstance(error, Refused) else logging.WARNING
    log_once(logger, level, f"judge {judge}/{told}", "judge %s gave no verdict: %s", judge, told)


def _sendable(message: Message) -> Message:
    """The message as UTF-8 can carry it: a candidate may have answered with half a character."""
    text = valid_text(message.content)
    return message if text is message.content else message.model_copy(update={"content": text})


def _used(usage: Usage, turn: CallPermit, is_counted: bool = True) -> CallCost:
    """What limiter and budget reckon with: the estimate stands for tokens that the provider did not
    tell."""
    known = CallCost(usage.input_tokens, usage.output_tokens)
    return (
        known
        if is_counted
        else CallCost(known[0] or turn.estimate[0], known[1] or turn.estimate[1])
    )


class RepeatedJudge:
    """One of several askings of the same judge: remembered apart from the others."""

    def __init__(self, judge: StructuredJudge, repeat: int) -> None:
        self.name, self._judge, self._repeat = judge.name, judge, repeat

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        return await self._judge.judge(messages, judgment, self._repeat)


def _filled(text: str, judgment: type[BaseModel]) -> BaseModel:
    """The judgment in a reply, which may wrap its JSON in a fence or in words, or hold none that
    parses and be read as free text, where the judgment can be. Raises _Misfit."""
    text = (
        _HALF.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
        if "\\u" in text
        else text
    )
    start, end = text.find("{"), text.rfind("}") + 1
    wrapped = [text[start:end]] if 0 <= start < end - 1 and (start, end) != (0, len(text)) else []
    for candidate in (text, *wrapped):
        try:
            return judgment.model_validate_json(candidate)
        except ValidationError as error:
            misfit = error
    if misfit.errors()[0]["type"] == "json_invalid" and _reads_text(judgment):
        read: BaseModel | None = judgment.from_text(text)  # type: ignore[attr-defined]
        if read is not None:
            return read
    raise InvalidVerdict(text, _problem(misfit)) from None


def _reads_text(judgment: type[BaseModel]) -> bool:
    return hasattr(judgment, "from_text")


class _Spent:
    """Calls so far for one verdict, how many of them were `answered`, and the tokens of them all;
    `uncounted` of the calls did not tell theirs."""

    def __init__(self, price: Price) -> None:
        self.usage, self.calls, self.answered, self.uncounted, self._price = Usage(), 0, 0, 0, price

    @property
    def cost_usd(self) -> float:
        return self._price.of(self.usage.input_tokens, self.usage.output_tokens)

    def add(self, reply: Reply) -> Reply:
        self.usage, self.uncounted = (
            self.usage + reply.usage,
            self.uncounted + (not reply.is_counted),
        )
        self.answered += 1
        return reply


class InvalidVerdict(Exception):
    """A reply that is no judgment: what it said and what was wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text, self.problem = text, problem


def _problem(error: ValidationError) -> str:
    """What was wrong, field by field, without the values: they may quote what is judged."""
    problems = error.errors(include_input=False)[:5]
    return (
        "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in problems
        )
        + "."
    )
