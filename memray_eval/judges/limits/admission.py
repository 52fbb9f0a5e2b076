"""Admission control for one judge in one actor: calls in flight, time slots of the cluster's
limiter, the run's budget, and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from memray_eval.config.sections import RateLimits
from memray_eval.errors import BudgetSpent, JudgeError, QuotaExhausted, Stopped, Throttled
from memray_eval.judges.call_metrics import (
    IN_FLIGHT,
    OUTAGE,
    REFUSALS,
    BindingLimit,
    CallObserver,
    LimitSource,
)
from memray_eval.judges.limits.breaker import Breaker
from memray_eval.judges.limits.budget import NO_MONEY, BudgetPort, spending_of
from memray_eval.judges.limits.limiter_member import (
    AdmissionOptions,
    CallPermit,
    LimiterMember,
    RunHooks,
    StallWatch,
    describe_rate,
    read_headers,
)
from memray_eval.judges.limits.rate_limiter import Grant, LimiterPort
from memray_eval.judges.limits.rate_pacer import NOTHING, CallCost, HeldBy, known_lanes
from memray_eval.judges.prices import Price
from memray_eval.provider_http.retry import DAY_S

FIRST_OUTPUT_TOKENS = 300.0  # of a verdict, until some have been seen
MEMORY = 0.05  # how much a new call moves the averages that estimates are corrected by


class AdmissionController:
    """Lets calls to one judge through, each when its turn comes, on one event loop. `key` is the
    limiter's name for it, by server and account; a person reads the `name` only."""

    def __init__(
        self,
        name: str,
        limiter: LimiterPort,
        breaker: Breaker,
        options: AdmissionOptions,
        *,
        key: str = "",
        budget: BudgetPort | None = None,
        price: Price | None = None,
        observer: CallObserver | None = None,
        hooks: RunHooks = RunHooks(),
    ) -> None:
        self._breaker, self._observer = breaker, observer or CallObserver()
        self._budget, self._price = budget, price
        self._options, self._hooks = options, hooks
        self._estimator = _CostEstimator()
        self._name, self._texts = name, set[str]()
        self._places = ResizableSemaphore(options.first_places)
        self._member = LimiterMember(
            key or name, limiter, options, hooks, lambda: self._stalls.start(), self._apply_grant
        )
        self._stalls = StallWatch(self._member, self._say_once, options, hooks)
        self._held_by: HeldBy | None = None
        self._observer.binding = self.binding_limit

    def binding_limit(self) -> BindingLimit | None:
        """What keeps this actor's next call back now; None: nothing does, or it is not known yet.
        A call that waits for its slot holds a place, so rates come before places."""
        if self._breaker.is_open:
            return BindingLimit(what=OUTAGE, amount=0.0, source="told")
        if (left_s := self._member.paused_until - self._hooks.clock()) > 0.0:
            return BindingLimit(what=REFUSALS, amount=left_s, source="told")
        held, options = self._held_by, self._options
        source: LimitSource
        if held is not None and self._member.n_waiting:
            is_set = options.is_set_by_user(held.lane)
            source = "set" if is_set else "assumed" if held.is_assumed else "told"
            return BindingLimit(what=held.lane, amount=held.per_min, source=source)
        places = self._places.places
        if self._places.locked() and len(self._member.in_flight) >= places:
            source = "set" if places == options.max_in_flight or options.is_firm else "assumed"
            return BindingLimit(what=IN_FLIGHT, amount=places, source=source)
        return None

    @asynccontextmanager
    async def permit(
        self, input_tokens: float, cached_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        """Waits until the call may go, and holds a place in flight to the end of the block. The
        tokens, and how many of them a cache may have, are rough: earlier calls correct them.

        Raises Unavailable, Unauthorised, UnknownModel or QuotaExhausted while the judge is out of
        reach, Throttled that is stalled if it lets none through, BudgetSpent, Stopped."""
        async with self._places:
            if self._hooks.is_stopping():
                raise Stopped("the run is stopping")
            self._stalls.check()
            permit = CallPermit(input_tokens, self._estimator.estimate(input_tokens, cached_tokens))
            async with self._reserve_budget(permit):
                with self._observer.waiting():
                    permit.sent_at = await self._wait_until_sendable(permit.estimate)
                async with self._account_for(permit):
                    yield permit

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Learns the limits in an answer's headers, and tells the limiter. Never raises."""
        in_headers, odd = read_headers(headers)
        for header in odd:
            text = f"its header {header}: {headers[header][:40]!r}"
            self._say_once(f"{text} is no plausible limit and is ignored")
        before = self._member.provider_limits or RateLimits()
        stated = before.model_copy(update=in_headers)
        if not in_headers or stated == self._member.provider_limits:
            return
        for lane, per_min in known_lanes(stated).items():
            own = getattr(self._options.limits, lane)
            if self._options.is_set_by_user(lane) and per_min < own:
                self._say_once(
                    f"its headers tell of a limit of {describe_rate(lane, per_min)}, less than "
                    f"judging.limits ({own:,.10g}), which is kept"
                )
        await self._member.learn(stated)

    def _say_once(self, text: str) -> None:
        if text not in self._texts:
            self._texts.add(text)
            self._hooks.say(f"{self._name}: {text}")

    async def aclose(self) -> None:
        self._member.close()
        self._stalls.close()

    @asynccontextmanager
    async def _reserve_budget(self, permit: CallPermit) -> AsyncIterator[None]:
        """Reserves what the call may cost at most, and settles it with what it did."""
        if self._budget is None:
            yield
            return
        most = CallCost(permit.estimate.input_tokens * 1.2, float(self._options.max_output_tokens))
        if not (ticket := await self._budget.reserve(spending_of(most, self._price))):
            raise BudgetSpent(f"the next judge call {NO_MONEY}")
        try:
            yield
        finally:
            await self._budget.settle(ticket, spending_of(permit.used, self._price))

    async def _wait_until_sendable(self, cost: CallCost) -> float:
        """Waits for a slot of its own, with the judge not known to be down."""
        while True:
            sent_at = await self._member.wait(cost)
            try:
                wait_s = self._breaker.admit()
            except JudgeError as error:
                is_quota = isinstance(error, QuotaExhausted)
                error.is_stalled = is_quota or self._breaker.is_unreached
                raise
            if wait_s <= 0:
                return sent_at
            await self._hooks.sleep(wait_s)

    @asynccontextmanager
    async def _account_for(self, permit: CallPermit) -> AsyncIterator[None]:
        """Around a call in flight: reports its end to breaker, limiter and estimates."""
        is_throttled = False
        self._member.begin(permit)
        try:
            yield
            permit.is_answered = True
            self._breaker.record_success()
        except JudgeError as error:
            self._breaker.record_failure(error)
            if is_throttled := isinstance(error, Throttled):
                if (wait_s := error.retry_after_s or 0.0) > DAY_S:
                    self._say_once(
                        f"its Retry-After of {wait_s:.10g} s is not plausible and is ignored; a "
                        f"call waits for {self._options.patience_s:g} s in all (judging.ceiling_s)"
                    )
                    error.retry_after_s = None
                self._stalls.note_refusal(error)
                self._member.pause(await self._member.report_throttle(permit, error.retry_after_s))
            else:
                permit.is_answered = permit.used != NOTHING
                is_quota = isinstance(error, QuotaExhausted)
                error.is_stalled = is_quota and self._breaker.is_given_up
            raise
        except BaseException:
            # Cancelled, or a reply that does not fit: whoever used tokens has answered.
            permit.is_answered = permit.used != NOTHING
            if permit.is_answered:
                self._breaker.record_success()
            else:
                self._breaker.record_abandoned()
            raise
        finally:
            self._member.end(permit, is_throttled)
            if permit.is_answered:
                self._stalls.note_answer()
            if permit.used.input_tokens:
                self._estimator.learn(permit)

    def _apply_grant(self, grant: Grant) -> None:
        """Takes over the calls in flight and what they wait for; reports an assumed limit."""
        self._held_by = held_by = grant.held_by
        if held_by is not None and held_by.is_assumed:
            limit = f"a limit of {describe_rate(held_by.lane, held_by.per_min)}"
            self._say_once(
                f"calls wait for {limit}, which is only assumed (the judge table's, of a "
                "beginner's account): the provider has not told its own. If yours allows more, "
                f"raise it: --set 'judging.limits={{{self._name}: {{{held_by.lane}: NUMBER}}}}', "
                "also with `memray-eval resume latest`"
            )
        most = self._options.max_in_flight
        self._places.resize(min(most, grant.share or most))


class _CostEstimator:
    """What a call will take, corrected by what the calls before it took."""

    def __init__(self) -> None:
        self._ratio: float | None = None  # of real input tokens to those of the rough figure
        self._output_tokens = FIRST_OUTPUT_TOKENS

    def estimate(self, input_tokens: float, cached_tokens: float = 0.0) -> CallCost:
        ratio = self._ratio or 1.0
        return CallCost(input_tokens * ratio, self._output_tokens, cached_tokens * ratio)

    def learn(self, permit: CallPermit) -> None:
        ratio = permit.used.input_tokens / max(1.0, permit.raw_input)
        if self._ratio is None:
            self._ratio, self._output_tokens = ratio, permit.used.output_tokens
        else:
            self._ratio += MEMORY * (ratio - self._ratio)
            self._output_tokens += MEMORY * (permit.used.output_tokens - self._output_tokens)


class ResizableSemaphore(asyncio.Semaphore):
    """Calls in flight, at most a number that may change: asyncio's own semaphore has a fixed one.
    Places that are taken away are swallowed as they come free."""

    def __init__(self, places: int) -> None:
        super().__init__(places)
        self.places, self._n_owed = places, 0

    def resize(self, places: int) -> None:
        self._n_owed += self.places - places
        self.places = places
        while self._n_owed < 0:
            self._n_owed += 1
            super().release()

    async def acquire(self) -> Literal[True]:
        await super().acquire()
        while self._n_owed > 0:
            self._n_owed -= 1
            await super().acquire()
        return True

    def release(self) -> None:
        if self._n_owed > 0:
            self._n_owed -= 1
        else:
            super().release()
