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
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from pydantic import BaseModel, ValidationError

from memray_eval.config.environment import api_key, required_key, server_key
from memray_eval.config.sections import Provider
from memray_eval.errors import (
    JudgeError,
    Malformed,
    Refused,
    Throttled,
    Truncated,
    Unavailable,
)
from memray_eval.judges.call_cache import CachedCall, call_key, schema_digest
from memray_eval.judges.call_metrics import NO_OBSERVER, CallObserver, Outcome, outcome_of
from memray_eval.judges.limits.admission import CallPermit
from memray_eval.judges.limits.rate_limiter import CallCost
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import (
    CHARACTERS_A_TOKEN,
    PromptCache,
    SharedStart,
    StartQueue,
)
from memray_eval.judges.router import KEYS
from memray_eval.log_once import log_once
from memray_eval.ports import PAYER, Verdict
from memray_eval.provider_http.parameters import (
    Attempt,
    Changes,
    ParameterNegotiator,
    asked_set,
)
from memray_eval.provider_http.replies import valid_text
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.text_processing.judge_prompts import VERSIONS, JudgePrompt
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.types import Message, Usage

logger = logging.getLogger(__name__)

MOST_OBJECTS = 200  # braces of a reply that are looked at
REASKS = 2  # a malformed verdict is asked for again, at most twice
_OR_UNREADABLE = ", or said nothing that could be read"
# In JSON: an escaped backslash, a whole surrogate pair, or (group 1) half of one, which no parser
# takes.
_HALF = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")
SHARED_FIRST = f"shared_first {VERSIONS['shared_first']}"


class Reply(NamedTuple):
    """A raw completion, read: its text, its tokens, and how it ended. `is_counted`: the provider
    told all of its tokens. `served_model` is the model that it names as its own."""

    text: str
    usage: Usage
    ending: Literal["done", "refused", "truncated"]
    is_counted: bool = True
    served_model: str = ""


class ProviderAdapter(Protocol):
    """One provider's way of speaking. `assistant_role` is what it calls its own turns; `parameters`
    are those of every call, as far as they shape the verdict. Of these it can do without the
    `negotiable` ones, by the names that requests have for them."""

    assistant_role: str
    parameters: Mapping[str, Any]
    negotiable: Mapping[str, Any]

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        """What every call with this rubric and judgment has in common: model, parameters, schema.
        Built once."""
        ...

    def adjust(self, prepared: dict[str, Any], changes: Changes) -> dict[str, Any]:
        """What was prepared, with the parameters that the model takes."""
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


class BatchableAdapter(ProviderAdapter, Protocol):
    """One that can be asked in batches too."""

    async def batch_request(
        self,
        prepared: Mapping[str, Any],
        talk: Sequence[Mapping[str, str]],
        start: SharedStart | None = None,
    ) -> dict[str, Any]:
        """What `send` would send, to the letter."""
        ...

    def refusal(self, status: int, body: bytes) -> JudgeError:
        """The error that a status and the provider's words stand for."""
        ...


class PlannedCall(NamedTuple):
    """A call that is not made yet: what it is remembered by, the request, about how many tokens its
    prompt has."""

    key: str
    request: Callable[[], Awaitable[dict[str, Any]]]
    tokens: float


class BatchedVerdict(NamedTuple):
    """What a call of a batch came to, and cost; `call` is what is to be remembered of it."""

    outcome: Literal["verdict", "refused", "malformed", "truncated", "error"]
    usage: Usage
    cost_usd: float
    error: JudgeError | None = None
    call: CachedCall | None = None


@runtime_checkable
class CachingAdapter(ProviderAdapter, Protocol):
    """An adapter whose calls may begin with what they share. `schema_is_in_start`: at the provider
    a schema beside the messages is a part of their start, so that it stands in the prompt instead,
    where the start is to be shared."""

    @property
    def schema_is_in_start(self) -> bool: ...

    def prepare_shared(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        """As `prepare`, for calls that begin with what they share."""
        ...

    async def send_shared(
        self,
        prepared: Mapping[str, Any],
        talk: Sequence[Mapping[str, str]],
        start: SharedStart,
    ) -> Any:
        """As `send`, for the provider's cache."""
        ...


class AdmissionPort(Protocol):
    """What lets a call through: see judges/limits/admission.py. Of the input, `cached_tokens` are
    likely to come from the provider's cache."""

    def turn(
        self, input_tokens: float, cached_tokens: float = 0.0
    ) -> AbstractAsyncContextManager[CallPermit]: ...

    async def observe_headers(self, headers: Mapping[str, str]) -> None: ...


class CallStore(Protocol):
    """The calls that were paid, near or far. What `put` has returned from is kept."""

    async def get(self, key: str) -> CachedCall | None: ...

    async def put(self, call: CachedCall) -> None: ...


class NoAdmission:
    """Lets every call through at once."""

    @asynccontextmanager
    async def turn(
        self, input_tokens: float, cached_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        yield CallPermit(input_tokens, CallCost(input_tokens, 0.0, cached_tokens))

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        return


Close: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which model judges, where, and with what parameters. `api_key_env` None: the provider's usual
    variable, and none at a base_url of one's own. `environment_url` is the server that the SDK
    finds in the environment where there is no `base_url`. `served` names what a server of the run's
    own serves, whose address is another every time. `identity` is what calls are remembered by, in
    place of name and address: the model's own name, where it does not matter whose account asks.
    `is_providers`: the address is the provider's, also where it is given."""

    name: str
    model: str
    base_url: str | None = None
    environment_url: str | None = None
    served: str = ""
    identity: str = ""
    is_providers: bool = False
    api_key_env: str | None = None
    timeout_s: float = 120.0
    max_output_tokens: int = 2048
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = FREE
    cache: PromptCache = field(default_factory=PromptCache)


def judge_key(spec: JudgeSpec, provider: Provider) -> str:
    """The key that a judge is asked with: from `api_key_env`, else from the provider's usual
    variable, whose key goes to the server that the environment names beside it, if it is set.
    Raises ConfigError where a key is needed and not set."""
    variable = spec.api_key_env or KEYS[provider]
    if spec.environment_url is not None:
        return api_key(variable) or "none"
    if spec.base_url is not None and provider == "openai":  # OpenAI's key goes to OpenAI only
        return server_key(spec.base_url, spec.api_key_env, f"judge {spec.name}")
    return required_key(variable, f"judge {spec.name}")


@dataclass(frozen=True)
class CallPolicy:
    """How a judge is reached: when calls are tried again, what lets them through, where they are
    remembered (None: nowhere), who hears of them, the id of the `run`, and what finds out which
    parameters the model takes (None: it takes all)."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    gate: AdmissionPort = field(default_factory=NoAdmission)
    calls: CallStore | None = None
    watch: CallObserver = NO_OBSERVER
    run: str = ""
    parameters: ParameterNegotiator | None = None


@dataclass(frozen=True)
class Route:
    """A way to a judge's model, an account at an address: its client, what lets calls through, who
    hears of them, and what they cost."""

    wire: ProviderAdapter
    gate: AdmissionPort
    watch: CallObserver
    price: Price | None


class PoolPort(Protocol):
    """Which route of several a call takes: see judges/limits/pool.py."""

    def turn(
        self,
        enter: Callable[[str], AbstractAsyncContextManager[CallPermit]],
        start_key: str | None,
        failed_at: set[str],
    ) -> AbstractAsyncContextManager[CallPermit]: ...


@dataclass(frozen=True)
class _Prepared:
    """A judgment with a rubric, made ready once: the request, the schema's digest, and about how
    many tokens both take."""

    request: dict[str, Any]
    schema: str
    tokens: float


@dataclass(frozen=True)
class Question:
    """What is sent for one verdict: the messages, what every call like it has in common, the layout
    where it is not the rubric first, and the start for the provider's cache; None: it goes without.
    `known_by` is what it is remembered by: the messages without a secret nonce."""

    messages: Sequence[Message]
    known_by: Sequence[Message]
    judgment: type[BaseModel]
    prepared: _Prepared
    layout: str = ""
    start: SharedStart | None = None


@dataclass
class _PendingVerdict:
    """One verdict that is asked for, and what it has taken so far: calls `sent`, how many of them
    were `answered`, and the tokens of them all with their cost; `uncounted` of the calls did not
    tell theirs. `served_model` gave the last answer. `key` is what it is remembered by; None: it is
    not. `route` is the one of the last call, `failed_at` those where it has failed."""

    judgment: type[BaseModel]
    prepared: _Prepared
    start: SharedStart | None
    key: str | None
    route: Route
    failed_at: set[str] = field(default_factory=set)
    sent: int = 0
    answered: int = 0
    uncounted: int = 0
    served_model: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    saved_usd: float = 0.0

    def add_answer(self, usage: Usage) -> None:
        self.answered += 1
        usage, cost_usd, saved_usd = priced(usage, self.route.price)
        self.usage += usage
        self.cost_usd, self.saved_usd = self.cost_usd + cost_usd, self.saved_usd + saved_usd


def priced(usage: Usage, price: Price | None, is_batch: bool = False) -> tuple[Usage, float, float]:
    """One call's usage, with whether its price is known, its cost, and what the cache saved."""
    usd = None if price is None else price.of(usage, is_batch)
    if price is None or usd is None:
        return usage.model_copy(update={"unpriced_calls": 1}), 0.0, 0.0
    return usage, usd, price.saved_on(usage, is_batch)


class StructuredJudge:
    """Asks one model. Build it on the event loop that will use it: no client can be sent to another
    process."""

    def __init__(
        self, spec: JudgeSpec, wire: ProviderAdapter, access: CallPolicy, close: Close
    ) -> None:
        self.name, self.aclose = spec.name, close
        server = spec.served or spec.base_url or spec.environment_url or ""
        self._identity = spec.identity or f"{spec.name} {server}".strip()
        self._wire, self._price, self._access = wire, spec.price, access
        self._routes = {spec.name: Route(wire, access.gate, access.watch, spec.price)}
        self._pool: PoolPort | None = None
        self._cache, self._starts = spec.cache, StartQueue()
        self._prepared: dict[tuple[type[BaseModel], str], _Prepared] = {}
        self._asking: dict[str, asyncio.Future[None]] = {}
        self._asked = asked_set(wire.negotiable) if access.parameters else frozenset[str]()

    @classmethod
    def of_pool(
        cls,
        spec: JudgeSpec,
        members: Sequence[StructuredJudge],
        pool: PoolPort,
        access: CallPolicy,
    ) -> StructuredJudge:
        """One judge of several that ask the same model by the same protocol; `pool` says for each
        call which of them, by name, is asked."""

        async def close() -> None:
            for member in members:
                await member.aclose()

        judge = cls(spec, members[0]._wire, access, close)
        judge._pool = pool
        judge._routes = {name: one for each in members for name, one in each._routes.items()}
        return judge

    async def judge(
        self, messages: Sequence[Message], judgment: type[BaseModel], repeat: int = 0
    ) -> Verdict:
        """The filled-in judgment; a call that was paid before costs nothing and is marked. Raises
        JudgeError, which carries the tokens that were spent all the same."""
        question = self.pose(messages, judgment)
        calls = self._access.calls
        if calls is None:
            return await self._ask(question, None)

        # The same question may be under way: one call will do for both.
        key = self.key_of(question, repeat)
        while (same := self._asking.get(key)) is not None:
            await asyncio.wait([same])
        self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            call = await calls.get(key)
            self._access.watch.looked_up(call is not None)
            if call is not None:
                try:
                    return self._recall(call, judgment)
                except ValidationError:  # its rules have changed since: asked anew
                    kind = judgment.__name__
                    message = "a remembered verdict of %s is no %s any more: it is asked for anew"
                    log_once(
                        logger, logging.INFO, f"cache {self.name}/{kind}", message, self.name, kind
                    )
            return await self._ask(question, key)
        finally:
            self._asking.pop(key).set_result(None)

    async def plan(
        self, messages: Sequence[Message], judgment: type[BaseModel], repeat: int = 0
    ) -> PlannedCall:
        """The call that `judge` would make, for a batch."""
        question = self.pose(messages, judgment, is_batch=True)
        wire = cast(BatchableAdapter, self._wire)
        talk = [message.model_dump() for message in question.messages]
        characters = sum(len(turn["content"]) for turn in talk[1:])
        prepared = question.prepared
        return PlannedCall(
            self.key_of(question, repeat),
            partial(self._batch_request, wire, prepared.request, talk, question.start),
            prepared.tokens + characters / CHARACTERS_A_TOKEN,
        )

    async def _batch_request(
        self,
        wire: BatchableAdapter,
        request: dict[str, Any],
        talk: Sequence[Mapping[str, str]],
        start: SharedStart | None,
    ) -> dict[str, Any]:
        if (negotiator := self._access.parameters) is not None:
            request = wire.adjust(request, await negotiator.learn())
        return await wire.batch_request(request, talk, start)

    async def recall(self, key: str, judgment: type[BaseModel]) -> Verdict | None:
        """The verdict of a call that was paid. Raises Refused where it brought none."""
        call = await self._access.calls.get(key) if self._access.calls is not None else None
        try:
            return None if call is None else self._recall(call, judgment)
        except ValidationError:  # its rules have changed since
            return None

    def read_batched(
        self, completion: Any, judgment: type[BaseModel], key: str, paid_for: str
    ) -> BatchedVerdict:
        """What a call of a batch came to: a completion, or the error that it ended with. `paid_for`
        is the unit and metric whose score tells its cost."""
        try:
            if isinstance(completion, JudgeError):
                raise completion
            reply = self._wire.read(completion)
        except JudgeError as error:
            usage, cost_usd = self._priced_batch(Usage.of(error))
            return BatchedVerdict("error", usage, cost_usd, error)
        usage, cost_usd = self._priced_batch(reply.usage)
        filled: BaseModel | None = None
        if reply.ending == "truncated":
            return BatchedVerdict("truncated", usage, cost_usd)
        if reply.ending == "done":
            try:
                filled = _parse_judgment(reply.text, judgment)
            except InvalidVerdict:
                return BatchedVerdict("malformed", usage, cost_usd)
        call = CachedCall(
            key=key,
            judge=self.name,
            judgment=None if filled is None else filled.model_dump_json(),
            cost_usd=cost_usd,
            created=time.time(),
            paid_for=f"{self._access.run} {paid_for}",
            served_model=reply.served_model,
            **dict(usage),
        )
        return BatchedVerdict(
            "refused" if filled is None else "verdict", usage, cost_usd, call=call
        )

    async def batch_error(self, status: int, body: bytes) -> JudgeError:
        """The error of a call of a batch, from what the provider said of it. What it refuses is
        left out of the calls to come."""
        error = cast(BatchableAdapter, self._wire).refusal(status, body)
        if (negotiator := self._access.parameters) is not None:
            await negotiator.note(error, self._wire.negotiable)
        return error

    def _priced_batch(self, usage: Usage) -> tuple[Usage, float]:
        if usage == Usage():  # a call that failed is not billed
            return usage, 0.0
        return priced(usage, self._price, is_batch=True)[:2]

    def pose(
        self, messages: Sequence[Message], judgment: type[BaseModel], is_batch: bool = False
    ) -> Question:
        """A prompt as it is sent. Where its start is kept by the provider's cache, a batch's is
        kept for an hour."""
        if (
            isinstance(messages, JudgePrompt)
            and self._cache.puts_shared_first(messages)
            and isinstance(self._wire, CachingAdapter)
        ):
            return self._pose_shared_first(messages, judgment, self._wire, is_batch)
        # A candidate may have answered with half a character, which UTF-8 cannot carry.
        valid = [
            message.model_copy(update={"content": valid_text(message.content)})
            for message in messages
        ]
        system = valid[0].content if valid[0].role == "system" else ""
        prepared = self._prepare(judgment, system, self._wire.prepare)
        return Question(valid, valid, judgment, prepared)

    def key_of(self, question: Question, repeat: int = 0) -> str:
        """What the verdict on a question is remembered by."""
        return call_key(
            self._identity,
            question.known_by,
            question.prepared.schema,
            self._wire.parameters,
            repeat,
            question.layout,
        )

    def _pose_shared_first(
        self,
        prompt: JudgePrompt,
        judgment: type[BaseModel],
        wire: CachingAdapter,
        is_batch: bool,
    ) -> Question:
        schema = None
        if wire.schema_is_in_start:
            schema = json.dumps(judgment.model_json_schema(), ensure_ascii=False)
        laid = prompt.shared_first(self._cache.secret, schema)
        laid = laid._replace(blocks=tuple(map(valid_text, laid.blocks)))
        start = None
        if self._cache.pays_off(prompt):
            start = SharedStart(
                laid.blocks, laid.shared, laid.prefix, self._cache.is_marked, is_batch
            )
        prepared = self._prepare(judgment, laid.system, wire.prepare_shared)
        return Question(laid.messages, laid.question, judgment, prepared, SHARED_FIRST, start)

    def _prepare(
        self,
        judgment: type[BaseModel],
        system: str,
        prepare: Callable[[type[BaseModel], str], dict[str, Any]],
    ) -> _Prepared:
        if (judgment, system) not in self._prepared:
            schema = judgment.model_json_schema()
            tokens = (len(system) + len(str(schema))) / CHARACTERS_A_TOKEN
            self._prepared[judgment, system] = _Prepared(
                prepare(judgment, system), schema_digest(schema), tokens
            )
        return self._prepared[judgment, system]

    def _recall(self, call: CachedCall, judgment: type[BaseModel]) -> Verdict:
        """The verdict of a paid call: it costs nothing, but where it was paid in a batch of this
        run, in the one score that tells it."""
        pays = bool(call.paid_for) and call.paid_for == f"{self._access.run} {PAYER.get()}"
        usage = Usage.of(call) if pays else Usage()
        cost_usd = call.cost_usd if pays else 0.0
        saved_usd = 0.0 if self._price is None else self._price.saved_on(usage, is_batch=True)
        if call.judgment is None:
            refused = Refused(
                "the judge or its content filter declined" + _OR_UNREADABLE * _reads_text(judgment)
            )
            refused.set_tokens(usage)
            refused.cost_usd, refused.saved_usd, refused.calls = cost_usd, saved_usd, int(pays)
            raise refused
        return Verdict(
            judgment=judgment.model_validate_json(call.judgment),
            judge=self.name,
            served_model=call.served_model or None,
            usage=usage,
            cost_usd=cost_usd,
            saved_usd=saved_usd,
            cached=not pays,
            calls=int(pays),
        )

    async def _ask(self, question: Question, key: str | None) -> Verdict:
        started = time.perf_counter()
        first = next(iter(self._routes.values()))
        pending = _PendingVerdict(question.judgment, question.prepared, question.start, key, first)
        try:
            filled = await self._ask_until_it_fits(
                pending, [message.model_dump() for message in question.messages]
            )
        except JudgeError as error:
            error.set_tokens(pending.usage)
            error.cost_usd, error.saved_usd = pending.cost_usd, pending.saved_usd
            error.calls = pending.answered
            _log_failed_call(self.name, error)
            pending.route.watch.settled(pending.sent, is_failed=not isinstance(error, Refused))
            raise
        pending.route.watch.settled(pending.sent, is_failed=False)
        return Verdict(
            judgment=filled,
            judge=self.name,
            served_model=pending.served_model or None,
            usage=pending.usage,
            cost_usd=pending.cost_usd,
            saved_usd=pending.saved_usd,
            latency_s=time.perf_counter() - started,
            calls=pending.answered,
        )

    async def _ask_until_it_fits(
        self, pending: _PendingVerdict, talk: list[dict[str, str]]
    ) -> BaseModel:
        """Asks, and asks again with what was wrong, until the judgment fits."""
        problem = ""
        for _ in range(REASKS + 1):
            characters = sum(len(turn["content"]) for turn in talk[1:])
            tokens = pending.prepared.tokens + characters / CHARACTERS_A_TOKEN
            try:
                return await self._call(pending, talk, tokens)
            except InvalidVerdict as invalid:
                problem = invalid.problem
                wrong = (
                    f"That did not fit the schema: {problem} Give the whole JSON again, corrected."
                )
                talk = [
                    *talk,
                    {"role": self._wire.assistant_role, "content": invalid.text or "(empty)"},
                    {"role": "user", "content": wrong},
                ]
        if _reads_text(pending.judgment):
            await self._remember(pending, None)
            raise Refused(f"the verdict could not be read in {REASKS + 1} attempts: {problem}")
        raise Malformed(f"the verdict did not fit its schema in {REASKS + 1} attempts: {problem}")

    async def _call(
        self, pending: _PendingVerdict, talk: list[dict[str, str]], tokens: float
    ) -> BaseModel:
        """Asks once, or as often as the policy tries and the model refuses a parameter."""
        turn, run = partial(self._turn, pending, tokens), self._access.policy.run
        if (negotiator := self._access.parameters) is None:
            return await run(partial(self._attempt, pending, talk, None), turn)
        return await negotiator.ask(
            self._wire.negotiable,
            self._asked,
            lambda attempt: run(partial(self._attempt, pending, talk, attempt), turn),
        )

    def _turn(
        self, pending: _PendingVerdict, tokens: float
    ) -> AbstractAsyncContextManager[CallPermit]:
        """A call's turn at the provider; of a pool, at the member that is chosen."""
        if self._pool is None:
            return self._turn_at(pending, tokens, self.name)
        start_key = None if pending.start is None else pending.start.key
        enter = partial(self._turn_at, pending, tokens)
        return self._pool.turn(enter, start_key, pending.failed_at)

    @asynccontextmanager
    async def _turn_at(
        self, pending: _PendingVerdict, tokens: float, name: str
    ) -> AsyncIterator[CallPermit]:
        """A call's turn on one route: behind the one that puts its start into the cache there."""
        route = pending.route = self._routes[name]
        if (start := pending.start) is None:
            async with route.gate.turn(tokens) as permit:
                yield permit
            return
        key = start.key if self._pool is None else f"{start.key} {name}"
        async with self._starts.turn(key) as turn:
            cached, answered = start.tokens if turn.is_cached else 0.0, pending.answered
            try:
                async with route.gate.turn(tokens, cached) as permit:
                    yield permit
            finally:
                if pending.answered > answered:
                    turn.answered()

    async def _attempt(
        self,
        pending: _PendingVerdict,
        talk: list[dict[str, str]],
        attempt: Attempt | None,
        permit: CallPermit,
    ) -> BaseModel:
        """One call. Its verdict is remembered before its turn ends: what is in flight is all that a
        kill can lose."""
        wire = pending.route.wire
        with self._observe(pending):
            try:
                request, start = pending.prepared.request, pending.start
                if attempt is not None and (changes := attempt.latest()):
                    request = wire.adjust(request, changes)
                if start is not None and isinstance(wire, CachingAdapter):
                    completion = await wire.send_shared(request, talk, start)
                else:
                    completion = await wire.send(request, talk)
                reply = wire.read(completion)
            except Exception as raised:  # of the SDK, or over an odd reply: ours from here on
                error = raised if isinstance(raised, JudgeError) else wire.translate(raised)
                if error is None:
                    error = JudgeError(f"the call could not be made: {type(raised).__name__}")
                usage = Usage.of(error)
                if usage != Usage():  # an odd reply may be paid for
                    permit.used = CallCost.from_usage(usage)
                    pending.add_answer(usage)
                if attempt is not None and isinstance(error, Throttled | Unavailable):
                    await attempt.end("failed")
                raise error from None
            if attempt is not None:
                await attempt.end("taken")
            pending.add_answer(reply.usage)
            pending.served_model = reply.served_model
            pending.uncounted += not reply.is_counted
            permit.used = _known_cost(reply, permit.estimate)
            return await self._read_verdict(reply, pending)

    @contextmanager
    def _observe(self, pending: _PendingVerdict) -> Iterator[None]:
        """Around a call: tells the observer that it was sent, and what became of it."""
        route = pending.route
        route.watch.sent(is_again=pending.sent > 0)
        pending.sent += 1
        before, uncounted, paid_usd = pending.usage, pending.uncounted, pending.cost_usd
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
            used = pending.usage - before
            is_counted = pending.uncounted == uncounted
            cost_usd = None if used.unpriced_calls else pending.cost_usd - paid_usd
            route.watch.ended(outcome, CallCost.from_usage(used), cost_usd, is_counted=is_counted)

    async def _read_verdict(self, reply: Reply, pending: _PendingVerdict) -> BaseModel:
        if reply.ending == "refused":
            await self._remember(pending, None)
            raise Refused("the judge or its content filter declined")
        if reply.ending == "truncated":
            raise Truncated(
                "the verdict was cut off at the output limit; raise judging.max_output_tokens"
            )
        filled = _parse_judgment(reply.text, pending.judgment)
        await self._remember(pending, filled.model_dump_json())
        return filled

    async def _remember(self, pending: _PendingVerdict, judgment: str | None) -> None:
        if pending.key is None or self._access.calls is None:
            return
        call = CachedCall(
            key=pending.key,
            judge=self.name,
            judgment=judgment,
            cost_usd=pending.cost_usd,
            created=time.time(),
            served_model=pending.served_model,
            **dict(pending.usage),
        )
        await self._access.calls.put(call)


def _log_failed_call(judge: str, error: JudgeError) -> None:
    """Logs a call that got no verdict for good: the first of its kind as a warning."""
    told = f"{type(error).__name__}, status {error.status}, code {error.code or 'none'}, "
    told += f"type {error.kind or 'none'}, param {error.param or 'none'}"
    level = logging.DEBUG if isinstance(error, Refused) else logging.WARNING
    log_once(
        logger,
        level,
        f"judge {judge}/{type(error).__name__}/{error.status}",
        "judge %s gave no verdict: %s",
        judge,
        told,
    )


def _known_cost(reply: Reply, estimate: CallCost) -> CallCost:
    """What limiter and budget reckon with: the estimate stands for tokens that the provider did not
    tell."""
    known = CallCost.from_usage(reply.usage)
    if reply.is_counted:
        return known
    return known._replace(
        input_tokens=known.input_tokens or estimate.input_tokens,
        output_tokens=known.output_tokens or estimate.output_tokens,
    )


class RepeatedJudge:
    """One of several askings of the same judge: remembered apart from the others."""

    def __init__(self, judge: StructuredJudge, repeat: int) -> None:
        self.name, self._judge, self._repeat = judge.name, judge, repeat

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        return await self._judge.judge(messages, judgment, self._repeat)


def _parse_judgment(text: str, judgment: type[BaseModel]) -> BaseModel:
    """The judgment in a reply, which may think first and wrap its JSON in a fence or in words, or
    hold none that parses and be read as free text, where the judgment can be. Raises
    InvalidVerdict."""
    if "\\u" in text:
        text = _HALF.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
    try:
        return judgment.model_validate_json(text)
    except ValidationError as error:
        misfit = error
    text = split_thinking(text).text
    start, end = text.find("{"), text.rfind("}") + 1
    for candidate in dict.fromkeys([text, text[start:end], _last_object(text)]):
        try:
            return judgment.model_validate_json(candidate)
        except ValidationError as error:
            misfit = error if candidate.startswith("{") else misfit
    if misfit.errors()[0]["type"] == "json_invalid" and _reads_text(judgment):
        read: BaseModel | None = judgment.from_text(text)  # type: ignore[attr-defined]
        if read is not None:
            return read
    raise InvalidVerdict(text, _describe_problem(misfit)) from None


def _last_object(text: str) -> str:
    """The last JSON object in a text that is in no other one, "" if there is none: a judge may
    draft a verdict, or quote one, before it gives its own."""
    decoder, last, start = json.JSONDecoder(), "", text.find("{")
    for _ in range(MOST_OBJECTS):
        if start < 0:
            break
        try:
            _, end = decoder.raw_decode(text, start)
            last = text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return last


def _reads_text(judgment: type[BaseModel]) -> bool:
    return hasattr(judgment, "from_text")


class InvalidVerdict(Exception):
    """A reply that is no judgment: what it said and what was wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text, self.problem = text, problem


def _describe_problem(error: ValidationError) -> str:
    """What was wrong, field by field, without the values: they may quote what is judged."""
    problems = error.errors(include_input=False)[:5]
    return (
        "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in problems
        )
        + "."
    )
