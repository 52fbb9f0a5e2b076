"""A judge behind a provider's API, and one call of it (read `JudgeCall.run` first): what all
providers share. What differs is in one adapter a provider (providers/)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ValidationError

from memray_eval.errors import (
    Declined,
    JudgeError,
    Malformed,
    Refused,
    Throttled,
    Truncated,
    Unavailable,
    Unreadable,
)
from memray_eval.judges.adapter import (
    InvalidVerdict,
    JudgeSpec,
    ProviderAdapter,
    Reply,
    parse_judgment,
    reads_text,
)
from memray_eval.judges.call_cache import CachedCall, Lease, call_key, schema_digest
from memray_eval.judges.call_metrics import CallObserver, Outcome, outcome_of
from memray_eval.judges.limits.admission import AdmissionController, CallPermit
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prices import Spent
from memray_eval.judges.prompt_cache import SharedStart, StartQueue, most_tokens, tokens_of
from memray_eval.log_once import log_once
from memray_eval.ports import CURRENT_UNIT, Verdict
from memray_eval.provider_http import IDEMPOTENCY_KEY
from memray_eval.provider_http.parameters import Attempt, ParameterNegotiator, signature_of
from memray_eval.provider_http.replies import cut_prompt, failed_generation, valid_text
from memray_eval.provider_http.retry import Retries, RetryPolicy, whole_reply
from memray_eval.text_processing.judge_prompts import VERSIONS, JudgePrompt
from memray_eval.types import Message, Usage

logger = logging.getLogger(__name__)

REASKS = 2  # a malformed verdict is asked for again, at most twice
POLL_S = 0.5  # between two looks for a verdict that another run is asking for
SHARED_FIRST = f"shared_first {VERSIONS['shared_first']}"


class CallStore(Protocol):
    """The calls that were paid, near or far. Whoever will ask for one claims it first, and puts or
    releases it. `put` returns whether it is kept; if not, the run is stopping."""

    async def get(self, key: str) -> CachedCall | None: ...

    async def claim(self, key: str) -> CachedCall | Lease: ...

    async def release(self, key: str) -> None: ...

    async def put(self, call: CachedCall) -> bool: ...


class _AskedElsewhere(Exception):
    """Another run is asking for the verdict, or has just done so."""


@dataclass(frozen=True)
class CallPolicy:
    """How a judge is reached: when calls are tried again, their admission, where they are
    remembered (None: nowhere), their observer, the id of the `run`, and what finds out which
    parameters the model takes."""

    policy: RetryPolicy
    admission: AdmissionController
    calls: CallStore | None = None
    observer: CallObserver = field(default_factory=CallObserver)
    run: str = ""
    parameters: ParameterNegotiator = field(default_factory=ParameterNegotiator)


class Prepared(NamedTuple):
    """What all calls with a judgment and a rubric have in common, made once: the request, the
    schema's digest, and about how many tokens the schema takes, and at most."""

    request: dict[str, Any]
    schema: str
    tokens: float
    most_tokens: float


@dataclass(eq=False)
class JudgeCall:
    """One verdict that is asked for, with the start of its prompt for the provider's cache (None:
    without). `remembered_by` are the messages without a secret nonce. `run` asks at once; a
    batch takes `key`, `most_tokens`, `request()`, and `StructuredJudge.read_batched` reads it."""

    judge: StructuredJudge
    judgment: type[BaseModel]
    messages: list[dict[str, str]]
    remembered_by: Sequence[Message]
    prepared: Prepared
    repeat: int = 0
    layout: str = ""
    start: SharedStart | None = None
    version: int = 0
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self._access, self._began = self.judge.access, time.perf_counter()
        self._retries, self._n_invalid = Retries(self._access.policy), 0
        self._is_ours = self._is_outdated = False
        negotiable, signature = self.judge.adapter.negotiable, self.judge.signature
        forms = self.judge.adapter.forms
        self._attempt = Attempt(self._access.parameters, negotiable, signature, forms)

    @cached_property
    def key(self) -> str:
        """What the verdict is remembered by."""
        return call_key(
            self.judge.identity,
            self.remembered_by,
            self.prepared.schema,
            self.judge.adapter.parameters,
            self.repeat,
            self.layout,
            self.version,
        )

    @property
    def tokens(self) -> float:
        """About how long the prompt is, as far as it was asked."""
        return self.prepared.tokens + sum(tokens_of(turn["content"]) for turn in self.messages)

    @property
    def most_tokens(self) -> float:
        """About how long it is at most: what a budget reserves."""
        most = sum(most_tokens(turn["content"]) for turn in self.messages)
        return self.prepared.most_tokens + most

    async def request(self) -> dict[str, Any]:
        """The request of a batch: what `run` would send."""
        adapter, changes = self.judge.adapter, await self._access.parameters.learn()
        request = adapter.adjust(self.prepared.request, changes)
        return await adapter.body(request, self.messages, self.start)

    async def run(self) -> Verdict:
        """The verdict, which costs nothing if it was paid before. It is stored before its turn
        ends. Raises JudgeError, which carries what was spent all the same."""
        # Of calls with one key one goes after the other: the first will do for all of them
        is_kept = self._access.calls is not None
        async with self.judge.under_way.follow(self.key) if is_kept else nullcontext():
            verdict = await self.recall(is_first=True)
            while verdict is None:
                try:
                    return await self._ask()
                except _AskedElsewhere:
                    verdict = await self._wait_for_other()
            return verdict

    async def _ask(self) -> Verdict:
        async with self._accounted():
            while True:
                try:
                    async with self._admitted() as permit:
                        # A run that remembers nothing wants another answer each time
                        IDEMPOTENCY_KEY.set("" if self._access.calls is None else self.key)
                        judgment = self._parse(await self._send(permit))
                        await self._store(judgment)
                        return self._verdict(judgment)
                except InvalidVerdict as invalid:
                    await self._ask_again(invalid)
                except JudgeError as error:
                    await self._try_again(error)

    async def _claim(self) -> None:
        """Before the first request. Raises _AskedElsewhere if another run asks."""
        if (calls := self._access.calls) is None or self._is_ours:
            return
        claimed = await calls.claim(self.key)
        if claimed == "held" or (isinstance(claimed, CachedCall) and not self._is_outdated):
            raise _AskedElsewhere
        self._is_ours = True
        if claimed == "again":
            self._access.observer.count("repeated")

    async def _wait_for_other(self) -> Verdict | None:
        """The verdict that another run asks for; None if that came to nothing: it is ours then."""
        while True:
            if (verdict := await self.recall()) is not None:
                return verdict
            with suppress(_AskedElsewhere):
                await self._claim()
                return None
            await self._access.policy.sleep(POLL_S)

    async def recall(self, is_first: bool = False) -> Verdict | None:
        """The verdict if it was paid before. Raises Refused if that call brought none."""
        if (calls := self._access.calls) is None:
            return None
        call = await calls.get(self.key)
        if is_first:
            self._access.observer.count("missed" if call is None else "cached")
        try:
            return None if call is None else self.judge.recall(call, self.judgment)
        except ValidationError:  # its rules have changed since
            self._is_outdated = True
            kind, name = self.judgment.__name__, self.judge.name
            message = "a remembered verdict of %s is no %s any more: it is asked for again"
            log_once(logger, logging.INFO, f"cache {name}/{kind}", message, name, kind)
            return None

    @asynccontextmanager
    async def _accounted(self) -> AsyncIterator[None]:
        """Around all tries: an error takes what they have spent, and the observer hears the end."""
        self._began, calls = time.perf_counter(), self._access.calls
        try:
            await self._attempt.start()
            yield
        except Exception as error:  # a cancelled call keeps its lease: it may have been paid
            if isinstance(error, JudgeError):
                self._note_failure(error)
            if calls is not None and self._is_ours:
                await calls.release(self.key)
            raise
        finally:
            await self._attempt.end("failed")
        self._access.observer.on_verdict(self.spent.sent, is_failed=False)

    def _note_failure(self, error: JudgeError) -> None:
        self.spent.put_on(error)
        is_failed = not isinstance(error, Refused)
        kind, judge = type(error).__name__, self.judge.name
        details = f"{kind}, status {error.status}, code {error.code or 'none'}, "
        details += f"type {error.kind or 'none'}, param {error.param or 'none'}"
        level, cause = logging.WARNING if is_failed else logging.DEBUG, f"{kind}/{error.status}"
        text = "judge %s gave no verdict: %s"  # the first of its kind
        log_once(logger, level, f"judge {judge}/{cause}", text, judge, details)
        self._access.observer.on_verdict(self.spent.sent, is_failed=is_failed)

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[CallPermit]:
        """Waits until the call may go, behind the call that caches its start."""
        start, starts, answered = self.start, self.judge.starts, self.spent.answered
        turn = nullcontext(False) if start is None else starts.follow(start.key)
        async with turn as is_cached:
            cached = start.tokens if start is not None and is_cached else 0.0
            permitted = self._access.admission.permit(self.tokens, cached, self.most_tokens)
            try:
                async with permitted as permit, self._retries.timed():
                    await self._claim()
                    with self._observed():
                        yield permit
            finally:
                if start is not None and self.spent.answered > answered:
                    starts.keep(start.key)

    @contextmanager
    def _observed(self) -> Iterator[None]:
        """Around a call: the observer hears that it was sent, and its outcome."""
        observer, spent = self._access.observer, self.spent
        observer.on_sent(is_again=spent.sent > 0)
        spent.sent += 1
        before, uncounted, paid_usd = spent.usage, spent.uncounted, spent.cost_usd
        outcome: Outcome = "abandoned"
        try:
            yield
            outcome = "ok"
        except (InvalidVerdict, JudgeError) as error:
            outcome = "malformed" if isinstance(error, InvalidVerdict) else outcome_of(error)
            raise
        finally:
            used, cost_usd = spent.usage - before, spent.cost_usd - paid_usd
            is_counted = spent.uncounted == uncounted
            observer.on_ended(outcome, used, cost_usd, is_counted=is_counted)

    async def _send(self, permit: CallPermit) -> Reply:
        """One request. Raises JudgeError, also over an odd reply, which may be paid for."""
        adapter = self.judge.adapter
        try:
            request = adapter.adjust(self.prepared.request, self._attempt.latest())
            request = self._attempt.fit(request)
            async with whole_reply(self.judge.timeout_s, "judging.timeout_s"):
                sent = await adapter.send(request, self.messages, self.start)
            reply = adapter.read(sent)
        except Exception as raised:
            error = raised if isinstance(raised, JudgeError) else adapter.translate(raised)
            if (usage := Usage.of(error)) != Usage():
                permit.used = CallCost.from_usage(usage)
                self.spent.add(usage, self.judge.price)
            if isinstance(error, Throttled | Unavailable):
                await self._attempt.end("failed")
            if (written := failed_generation(error)) is None:
                raise error from None
            reply = Reply(written, Usage(), "done", is_counted=False)
            try:
                parse_judgment(written, self.judgment)
            except InvalidVerdict:  # the same request may well bring another answer
                raise Unreadable(str(error), status=error.status) from None
        await self._attempt.end("taken")
        self.spent.add(reply.usage, self.judge.price)
        self.spent.served_model = reply.served_model
        self.spent.uncounted += not reply.is_counted
        permit.used = CallCost.from_usage(reply.usage)
        if not reply.is_counted:  # limiter and budget go by the estimate
            permit.used = permit.used._replace(
                input_tokens=permit.used.input_tokens or permit.estimate.input_tokens,
                output_tokens=permit.used.output_tokens or permit.estimate.output_tokens,
            )
        texts = (message["content"] for message in self.messages)
        if (cut := cut_prompt(texts, reply.usage.input_tokens)) is not None:
            raise cut
        return reply

    def _parse(self, reply: Reply) -> BaseModel | None:
        """The judgment in a reply; None: the judge declined. Raises InvalidVerdict, Truncated."""
        if reply.ending == "refused":
            return None
        if reply.ending == "truncated":
            raise Truncated(
                "the verdict was cut off at the output limit; raise judging.max_output_tokens"
            )
        return parse_judgment(reply.text, self.judgment, reply.thoughts)

    async def _store(self, judgment: BaseModel | None) -> None:
        if (calls := self._access.calls) is not None:
            if not await calls.put(self.judge.as_paid(self.key, judgment, self.spent)):
                self._access.observer.count("unkept")
            self._is_ours = False

    def _verdict(self, judgment: BaseModel | None) -> Verdict:
        if judgment is None:
            raise Declined("the judge or its content filter declined")
        latency_s = time.perf_counter() - self._began
        return self.spent.verdict(judgment, self.judge.name, latency_s=latency_s)

    async def _ask_again(self, invalid: InvalidVerdict) -> None:
        """Adds what was wrong to the messages. After REASKS times a judgment that could have been
        read from any text is an abstention: Refused, and stored as such, for the metrics that share
        it would pay for the same silence again. Of any other it raises Malformed."""
        self._n_invalid += 1
        if self._n_invalid <= REASKS:
            wrong = f"That did not fit the schema: {invalid.problem} "
            wrong += "Give the whole JSON again, corrected."
            self.messages = [
                *self.messages,
                {"role": self.judge.adapter.assistant_role, "content": invalid.text or "(empty)"},
                {"role": "user", "content": wrong},
            ]
            await self._start_again()
            return
        attempts = f"in {REASKS + 1} attempts: {invalid.problem}"
        if reads_text(self.judgment):
            await self._store(None)
            raise Refused(f"the verdict could not be read {attempts}") from None
        raise Malformed(f"the verdict did not fit its schema {attempts}") from None

    async def _try_again(self, error: JudgeError) -> None:
        """Waits, or sends what the server takes instead. Raises the error if neither helps."""
        if await self._attempt.adapts_to(error):
            await self._start_again()
        elif isinstance(error, Throttled | Unavailable):
            await self._retries.wait_after(error)
        else:
            raise error

    async def _start_again(self) -> None:
        """Another request than the last has tries of its own."""
        self._retries = Retries(self._access.policy)
        await self._attempt.start()


class StructuredJudge:
    """Asks one model. Build it on the event loop that will use it, in `closing_clients`."""

    def __init__(self, spec: JudgeSpec, adapter: ProviderAdapter, access: CallPolicy) -> None:
        self.name = spec.name
        self.identity = spec.identity or f"{spec.name} {spec.base_url or ''}".strip()
        self.adapter, self.price, self.access = adapter, spec.price, access
        self.timeout_s = spec.timeout_s
        self.starts, self.under_way = StartQueue(), StartQueue()
        self.signature = signature_of(adapter.negotiable)
        self._cache = spec.cache
        self._prepare = cache(self._make_ready)

    async def judge(
        self, messages: Sequence[Message], judgment: type[BaseModel], repeat: int = 0
    ) -> Verdict:
        """The filled-in judgment: see JudgeCall.run."""
        return await self.call(messages, judgment, repeat).run()

    def call(
        self,
        messages: Sequence[Message],
        judgment: type[BaseModel],
        repeat: int = 0,
        is_batch: bool = False,
    ) -> JudgeCall:
        """A call that is not made yet. The provider's cache keeps a batch's start for an hour."""
        if (
            isinstance(messages, JudgePrompt)
            and self._cache.pays_off(messages)
            and self.adapter.schema_is_in_start is not None
        ):
            return self._call_shared_first(messages, judgment, repeat, is_batch)
        # A candidate may have answered with half a character, which UTF-8 cannot carry.
        valid = [m.model_copy(update={"content": valid_text(m.content)}) for m in messages]
        system = valid[0].content if valid[0].role == "system" else ""
        prepared = self._prepare(judgment, system, shared_first=False)
        sent = [message.model_dump() for message in valid]
        version = messages.version if isinstance(messages, JudgePrompt) else 0
        return JudgeCall(self, judgment, sent, valid, prepared, repeat, version=version)

    def _call_shared_first(
        self, prompt: JudgePrompt, judgment: type[BaseModel], repeat: int, is_batch: bool
    ) -> JudgeCall:
        schema = None
        if self.adapter.schema_is_in_start:
            schema = json.dumps(judgment.model_json_schema(), ensure_ascii=False)
        laid = prompt.shared_first(self._cache.secret, schema)
        laid = laid._replace(blocks=tuple(map(valid_text, laid.blocks)))
        is_marked = self._cache.is_marked
        start = SharedStart(laid.blocks, laid.shared, laid.prefix, is_marked, is_batch)
        prepared = self._prepare(judgment, laid.system, shared_first=True)
        sent = [message.model_dump() for message in laid.messages]
        layout = SHARED_FIRST, start, prompt.version
        return JudgeCall(self, judgment, sent, laid.question, prepared, repeat, *layout)

    def _make_ready(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Prepared:
        schema = judgment.model_json_schema()
        request, text = self.adapter.prepare(judgment, system, shared_first), str(schema)
        return Prepared(request, schema_digest(schema), tokens_of(text), most_tokens(text))

    def recall(self, call: CachedCall, judgment: type[BaseModel]) -> Verdict:
        """The verdict of a paid call: it costs nothing, but if it was paid in a batch of this run,
        in the one score that counts it. Raises Refused if it brought none."""
        pays = bool(call.paid_for) and call.paid_for == f"{self.access.run} {CURRENT_UNIT.get()}"
        spent = Spent(answered=int(pays), served_model=call.served_model)
        if pays:
            spent.usage, spent.cost_usd = Usage.of(call), call.cost_usd
            if self.price is not None:
                spent.saved_usd = self.price.saved_on(spent.usage, is_batch=True)
        if call.judgment is None:
            unreadable = ", or said nothing that could be read" * reads_text(judgment)
            declined = Declined(f"the judge or its content filter declined{unreadable}")
            spent.put_on(declined)
            raise declined
        filled = judgment.model_validate_json(call.judgment)
        return spent.verdict(filled, self.name, cached=not pays)

    def as_paid(
        self, key: str, judgment: BaseModel | None, spent: Spent, paid_for: str = ""
    ) -> CachedCall:
        """A call as it is remembered; without a judgment, one that the judge declined."""
        return CachedCall(
            key=key,
            judge=self.name,
            judgment=None if judgment is None else judgment.model_dump_json(),
            cost_usd=spent.cost_usd,
            created=time.time(),
            paid_for=paid_for,
            served_model=spent.served_model,
            **dict(spent.usage),
        )

    def read_batched(
        self, completion: Any, judgment: type[BaseModel], key: str, paid_for: str
    ) -> tuple[str, Spent, CachedCall | None]:
        """What a call of a batch came to, of a completion or of the error that it ended with: its
        outcome ("verdict", "refused", "truncated", "malformed", "error"), its cost, and what is to
        be remembered of it. `paid_for` is the unit and metric whose score counts its cost."""
        spent, filled = Spent(), None
        outcome: str
        try:
            if isinstance(completion, JudgeError):
                raise completion
            reply = self.adapter.read(completion)
            outcome, usage, spent.served_model = reply.ending, reply.usage, reply.served_model
            if outcome == "done":
                filled = parse_judgment(reply.text, judgment, reply.thoughts)
                outcome = "verdict"
        except JudgeError as error:
            outcome, usage = "error", Usage.of(error)
        except InvalidVerdict:
            outcome = "malformed"
        if usage != Usage():  # a call that failed is not billed
            spent.add(usage, self.price, is_batch=True)
        if outcome not in ("verdict", "refused"):
            return outcome, spent, None
        return outcome, spent, self.as_paid(key, filled, spent, f"{self.access.run} {paid_for}")

    async def batch_error(self, status: int, body: bytes) -> JudgeError:
        """The error of a batch's call. A refused parameter is left out from then on."""
        error = self.adapter.edge.refusal(status, None, body)
        attempt = Attempt(self.access.parameters, self.adapter.negotiable, self.signature)
        await attempt.adapts_to(error)
        return error


class RepeatedJudge:
    """One of several askings of the same judge: remembered apart from the others."""

    def __init__(self, judge: StructuredJudge, repeat: int) -> None:
        self.name, self._judge, self._repeat = judge.name, judge, repeat

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        return await self._judge.judge(messages, judgment, self._repeat)
