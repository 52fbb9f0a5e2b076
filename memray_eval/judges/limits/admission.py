"""Admission control for one judge in one actor: calls in flight, time slots of the cluster's
limiter, the limits that a provider's headers state, the run's budget, a circuit breaker, and the
watch that gives a judge up which lets no call through."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Literal

from memray_eval.config.sections import RateLimits
from memray_eval.errors import (
    BudgetSpent,
    JudgeError,
    QuotaExhausted,
    ServiceLost,
    Stopped,
    Throttled,
)
from memray_eval.judges.call_metrics import (
    IN_FLIGHT,
    OUTAGE,
    REFUSALS,
    BindingLimit,
    CallObserver,
    LimitSource,
)
from memray_eval.judges.limits.breaker import Breaker
from memray_eval.judges.limits.budget import NO_MONEY, BudgetPort, most_spending, spending_of
from memray_eval.judges.limits.rate_limiter import (
    Grant,
    Limiter,
    Reservation,
    StallStatus,
    steady_time,
)
from memray_eval.judges.limits.rate_pacer import (
    LATE_S,
    NOTHING,
    CallCost,
    describe_rate,
    known_lanes,
    read_headers,
)
from memray_eval.judges.prices import Price
from memray_eval.log_once import log_once
from memray_eval.provider_http.retry import DAY_S

FIRST_OUTPUT_TOKENS = 300.0  # of a verdict, until some have been seen
MEMORY = 0.05  # how much a new call moves the averages that estimates are corrected by
REPORT_S = 2.0  # reports go at this interval while no reservation takes them along
CHUNK = 50  # slots are asked for this many at a time, and only for calls that wait
# No message takes so long: where the limiter's clock is further off, one of the two was set.
SKEW_S = 30.0
QUIET_S = 10.0  # a judge is reported after this long without an answer and with 429s alone
LOOK_S = 1.0  # how often it looks, while calls wait, whether the judge lets any through
LET_THROUGH_S = 3.0  # a call that is under way for this long was not refused: a 429 comes at once
# A call that was refused comes back within this long, if the provider does not say when.
LONGEST_BACKOFF_S = 60.0
# A judge that was given up is asked again after this long, if the run goes on without it.
PROBE_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AdmissionOptions:
    """How one judge actor, `member` of its `run`, may ask one judge. `limits` are firm if the user
    set them. A judge that lets no call through for `patience_s` fails the calls that wait."""

    member: str
    run: str = ""
    members: int = 1
    limits: RateLimits = field(default_factory=RateLimits)
    is_firm: bool = False
    max_in_flight: int = 64
    max_output_tokens: int = 2048
    patience_s: float = 600.0

    def is_set_by_user(self, lane: str) -> bool:
        return self.is_firm and getattr(self.limits, lane) is not None


@dataclass(frozen=True, kw_only=True)
class RunHooks:
    """The run around a controller. `say` gets lines that a person should read; calls that still
    wait when `is_stopping` are not made. Clock and sleep are replaced in tests."""

    say: Callable[[str], None] = lambda line: None
    is_stopping: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = steady_time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def pause(self, seconds: float) -> None:
        """Sleeps, but not past the stop of the run."""
        until = self.clock() + seconds
        while (left_s := until - self.clock()) > 0 and not self.is_stopping():
            await self.sleep(min(left_s, 1.0))


@dataclass(eq=False)
class CallPermit:
    """One call that may be made now. The caller says what it used; a failed one: nothing."""

    raw_input: float
    estimate: CallCost
    sent_at: float = 0.0
    used: CallCost = NOTHING
    is_counted: bool = False  # among those that ended, beforehand
    is_answered: bool = False


class LimiterMember:
    """Speaks to the limiter for one actor and one judge. While a reservation is on its way the next
    batch gathers; each takes along what calls took since the last one, or else a report does.
    While calls wait it says after QUIET_S that none is let through, fails them after `patience_s`,
    and ends their waiting when the run stops."""

    def __init__(
        self,
        judge: str,
        limiter: Limiter,
        options: AdmissionOptions,
        hooks: RunHooks,
        say_once: Callable[[str], None],
        on_grant: Callable[[Grant], None],
    ) -> None:
        self._judge, self._limiter, self._options, self._hooks = judge, limiter, options, hooks
        self._say_once, self._on_grant = say_once, on_grant
        self._waiting: deque[tuple[CallCost, asyncio.Future[float]]] = deque()
        self._free_until = 0.0
        self.paused_until = 0.0  # until when the judge refuses calls, as its 429s have told
        # Of the pump, the reports and the watches for pauses and stalls, by name, while they go on
        self._tasks = dict[str, asyncio.Task[None]]()
        self._reserved_at, self._gather_s = -math.inf, 0.0
        self._skew_s = 0.0  # how far our clock is ahead of the limiter's, beyond SKEW_S
        self._empty = Reservation(
            judge=judge,
            member=options.member,
            costs=(),
            limits=options.limits,
            is_firm=options.is_firm,
            members=options.members,
            run=options.run,
        )
        self._next = self._empty  # what it takes along so far
        # The first at once: the limiter waits for one call before it lets more go.
        self._reported_at, self._report_after_s = -math.inf, 0.0
        self._n_failures = 0  # of messages to the limiter
        self.in_flight: dict[CallPermit, None] = {}  # in the order of their sending
        # Goes along with each message, also for a limiter that was restarted
        self.provider_limits: RateLimits | None = None
        self._answered_at = self._retries_until = -math.inf
        self._last_refusal = ""
        self._given_up: tuple[str, float] | None = None  # why, and until when

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins a task, if it does not go on yet."""
        task = self._tasks.get(work.__name__)
        if task is None or task.done():
            self._tasks[work.__name__] = asyncio.create_task(work())

    async def report_throttle(self, permit: CallPermit, error: Throttled) -> None:
        """Tells the limiter of a 429 at once, and drops the slots until the judge may be asked.
        Remembers for how long its call may sleep before it comes back."""
        retry_after_s, self._last_refusal = error.retry_after_s, str(error)
        if retry_after_s is not None:
            self._last_refusal += f"; Retry-After {retry_after_s:.10g} s"
        is_believed = retry_after_s is not None and retry_after_s <= self._options.patience_s
        sleeps_s = (retry_after_s or 0.0) if is_believed else LONGEST_BACKOFF_S
        self._retries_until = self._hooks.clock() + LOOK_S + sleeps_s
        done = self._next.done + self._count_outlived(permit) - permit.is_counted
        self._next = self._next._replace(done=0)
        sent_at = permit.sent_at - self._skew_s
        try:
            until = await self._limiter.throttled(self._judge, sent_at, retry_after_s, done)
            self._pause(until + self._skew_s)
        except Exception as failure:  # the caller must hear of the 429, not of this
            self._note_failure("a 429 was not reported", failure)
            self._pause(self._hooks.clock() + (1.0 if retry_after_s is None else retry_after_s))

    def _note_failure(self, effect: str, error: Exception) -> None:
        """Counts and logs a failed message to the limiter that the calls survive."""
        self._n_failures += 1
        judge = self._judge.partition("#")[0]  # without the account's digest
        text = "%s: %s, as the rate limiter failed (failure %d of this actor): %r"
        key = f"{judge}: {effect}: {type(error).__name__}"
        values = (judge, effect, self._n_failures, error)
        log_once(logger, logging.WARNING, key, text, *values, error=error)

    def end(self, permit: CallPermit, is_throttled: bool) -> None:
        """Notes what an ended call took beyond its estimate, for the next report. Where a call
        failed the estimate stands: the provider may have counted it."""
        del self.in_flight[permit]
        correction = NOTHING
        if is_throttled or permit.used != NOTHING:
            correction = permit.used.minus(permit.estimate)
        self._next = self._next._replace(
            correction=self._next.correction.plus(correction),
            done=self._next.done + (not (is_throttled or permit.is_counted)),
            answered=self._next.answered + permit.is_answered,
        )
        if permit.is_answered:
            self._answered_at, self._last_refusal = self._hooks.clock(), ""
            self._given_up = None
        self._start(self._send_reports)

    async def _send_reports(self) -> None:
        """Reports what calls took while no reservation takes it along, as while one waits at the
        limiter: others may go sooner for it."""
        after_s, self._report_after_s = self._report_after_s, REPORT_S
        while True:
            if after_s:
                await self._hooks.sleep(after_s)
            if self._next == self._empty:
                return
            left_s = self._reported_at + REPORT_S - self._hooks.clock()
            if after_s and left_s > 0:  # a reservation has taken along what there was till then
                after_s = left_s
                continue
            try:
                await self._limiter.reserve(self._reservation(()))
            except Exception as error:  # a limiter that was restarted has no use for the report
                self._note_failure("a report of ended calls was lost", error)
            after_s = REPORT_S

    def _reservation(self, costs: tuple[CallCost, ...]) -> Reservation:
        wanted, self._next = self._next, self._empty
        self._reported_at = self._hooks.clock()
        return wanted._replace(costs=costs, provider_limits=self.provider_limits)

    def _count_outlived(self, refused: CallPermit) -> int:
        """Counts calls sent no later than a refused one and still in flight: refusals come back
        first, and without those the few of a burst would look like all of it."""
        outlived = [
            other
            for other in self.in_flight
            if other is not refused and other.sent_at <= refused.sent_at and not other.is_counted
        ]
        for other in outlived:
            other.is_counted = True
        return len(outlived)

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    async def wait(self, cost: CallCost) -> float:
        """Waits until the call may be sent; outdated slots are dropped and asked for again."""
        clock = self._hooks.clock
        while True:
            now = clock()
            if now < self._free_until:
                return now
            slot: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting.append((cost, slot))
            self._start(self._watch_stalls)
            self._start(self._reserve_slots)
            at = await slot
            if (ahead_s := at - clock()) > 0:
                await self._hooks.sleep(ahead_s)
            now = clock()
            if now - at <= LATE_S and self.paused_until <= at:
                return now

    def _pause(self, until: float) -> None:
        """Drops the slots before `until`: the judge refuses calls until then."""
        if until > self.paused_until:
            self.paused_until, self._free_until = until, 0.0

    def _fail_waiting(self, error: Callable[[], Exception]) -> None:
        """Fails every call that waits, each with an error of its own."""
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_exception(error())

    async def _reserve_slots(self) -> None:
        clock = self._hooks.clock
        while costs := self._waiting_costs():
            self._start(self._watch_pauses)
            if (gather_s := self._reserved_at + self._gather_s - clock()) > 0:
                await self._hooks.sleep(gather_s)
                if not (costs := self._waiting_costs()):
                    return
            self._reserved_at = clock()
            try:
                grant = await self._limiter.reserve(self._reservation(costs))
            except ServiceLost as error:  # the calls must hear of it, or they would wait for ever
                self._fail_waiting(partial(type(error), str(error)))
                return
            except Exception as error:
                self._note_failure("no time slots were reserved", error)
                text = f"the rate limiter cannot be reached: {type(error).__name__}"
                self._fail_waiting(partial(JudgeError, text))
                return
            self._on_grant(grant)
            self._hand_out(grant)

    def _waiting_costs(self) -> tuple[CallCost, ...]:
        """Of the calls that wait, up to a chunk; those that were cancelled take no slot."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].done())
        return tuple(cost for cost, _ in islice(self._waiting, CHUNK))

    def _hand_out(self, grant: Grant) -> None:
        """Gives the slots of a grant to the calls that have waited longest; freedom lets all go."""
        now = self._hooks.clock()
        skew_s = 0.0 if grant.now is None else now - grant.now
        self._skew_s = skew_s if abs(skew_s) > SKEW_S else 0.0
        # What was free before a 429 is no more.
        self._free_until = 0.0 if now < self.paused_until else grant.free_until + self._skew_s
        self._gather_s, times = grant.gather_s, [at + self._skew_s for at in grant.times]
        if not times and grant.free_until:
            times = [now] * len(self._waiting)
        for at in times[: len(self._waiting)]:  # fewer wait if they were failed meanwhile
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(at)

    async def _watch_pauses(self) -> None:
        """Hears of a 429 that another member got. The next reservation begins it again."""
        try:
            while True:
                known_until, member = self.paused_until - self._skew_s, self._options.member
                until = await self._limiter.pause(self._judge, known_until, member)
                self._pause(until + self._skew_s)
        except Exception as error:
            self._note_failure("pauses of other members are not followed", error)

    def check(self) -> None:
        """Raises Throttled while the judge is given up; after a pause a few calls try again."""
        if self._given_up is not None and self._hooks.clock() < self._given_up[1]:
            raise _stalled_error(self._given_up[0])

    async def _watch_stalls(self) -> None:
        clock = self._hooks.clock
        began = clock()
        while self._waiting or self.in_flight or clock() <= self._retries_until:
            await self._hooks.sleep(LOOK_S)
            if self._hooks.is_stopping():
                self._fail_waiting(lambda: Stopped("the run is stopping"))
                continue
            if (now := clock()) - max(began, self._answered_at) < QUIET_S:
                continue
            try:
                standing = await self._limiter.standing(self._judge)
            except Exception as error:  # the queue fails the calls that wait
                self._note_failure("stalled calls were not looked for", error)
            else:
                self._assess(standing, began, now)

    def _assess(self, standing: StallStatus, began: float, now: float) -> None:
        """Reports or gives up a judge by how long it has refused all calls, or held all back."""
        refused_s, slotless_s = (  # of this run: the limiter may know of an earlier one
            0.0 if since is None else now - max(since, began)
            for since in (standing.refused_since, standing.slotless_since)
        )
        if any(now - permit.sent_at > LET_THROUGH_S for permit in self.in_flight):
            refused_s = 0.0  # slow, not refused
        refusal = self._last_refusal or "429: too many requests"
        held_by, patience_s = standing.held_by, self._options.patience_s
        if refused_s >= QUIET_S:
            self._say_once(
                f"no call has been let through for {QUIET_S:g} s ({refusal.partition(';')[0]}); "
                f"the others wait. After {patience_s:g} s without one (judging.ceiling_s) the run "
                "stops, to be resumed"
            )
        if refused_s >= patience_s:
            self._give_up(
                f"no call has been let through for {patience_s:g} s (judging.ceiling_s): {refusal}",
                now,
            )
        elif held_by is not None and not self._options.is_set_by_user(held_by.what):
            # One that the user has set is waited for, however long that takes
            limit = f"a limit of {describe_rate(held_by.what, held_by.amount)}"
            if slotless_s >= QUIET_S and held_by.source == "told":
                by = "which the provider told, by headers or by its 429s"
                self._say_once(f"calls wait for {limit}, {by}")
            if slotless_s >= patience_s:
                why = f"no call could be sent for {patience_s:g} s (judging.ceiling_s)"
                self._give_up(f"{why}: they wait for {limit}", now)

    def _give_up(self, reason: str, now: float) -> None:
        """Fails the calls that wait. Those that came after the last pause have QUIET_S to try."""
        if self._given_up is None or now >= self._given_up[1] + QUIET_S:
            self._given_up = reason, now + PROBE_S
        elif now >= self._given_up[1]:
            return
        self._fail_waiting(lambda: _stalled_error(reason))


def _stalled_error(reason: str) -> Throttled:
    error = Throttled(reason)
    error.is_stalled = True
    return error


class AdmissionController:
    """Lets calls to one judge through, each when its turn comes, on one event loop. `key` is the
    limiter's name for it, by server and account; a person reads the `name` only."""

    def __init__(
        self,
        name: str,
        limiter: Limiter,
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
        # Of real input tokens to those of the rough figure, and the output of a verdict
        self._ratio: float | None = None
        self._output_tokens = FIRST_OUTPUT_TOKENS
        self._name, self._texts = name, set[str]()
        # Until the limiter says how many this member may have
        share = max(1.0, (options.limits.concurrency or math.inf) / options.members)
        self._places = ResizableSemaphore(int(min(options.max_in_flight, share)))
        self._member = LimiterMember(
            key or name, limiter, options, hooks, self._say_once, self._apply_grant
        )
        self._held_by: BindingLimit | None = None
        self._observer.binding = self.binding_limit

    def binding_limit(self) -> BindingLimit | None:
        """What keeps this actor's next call back now; None: nothing does, or it is not known yet.
        A call that waits for its slot holds a place, so rates come before places."""
        if self._breaker.is_open:
            return BindingLimit(what=OUTAGE, amount=0.0, source="told")
        if (left_s := self._member.paused_until - self._hooks.clock()) > 0.0:
            return BindingLimit(what=REFUSALS, amount=left_s, source="told")
        held, options = self._held_by, self._options
        if held is not None and self._member.n_waiting:
            is_set = options.is_set_by_user(held.what)
            return held.model_copy(update={"source": "set"}) if is_set else held
        places = self._places.places
        if self._places.locked() and len(self._member.in_flight) >= places:
            is_set = places == options.max_in_flight or options.is_firm
            source: LimitSource = "set" if is_set else "assumed"
            return BindingLimit(what=IN_FLIGHT, amount=places, source=source)
        return None

    @asynccontextmanager
    async def permit(
        self, input_tokens: float, cached_tokens: float = 0.0, most_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        """Waits until the call may go, and holds a place in flight to the end of the block. The
        tokens, and how many of them a cache may have, are rough: earlier calls correct them. The
        budget reserves `most_tokens` if those are more.

        Raises Unavailable, Unauthorised, UnknownModel or QuotaExhausted while the judge is out of
        reach, Throttled that is stalled if it lets none through, BudgetSpent, Stopped."""
        async with self._places:
            if self._hooks.is_stopping():
                raise Stopped("the run is stopping")
            self._member.check()
            ratio = self._ratio or 1.0  # corrected by what the calls before it took
            estimate = CallCost(input_tokens * ratio, self._output_tokens, cached_tokens * ratio)
            permit = CallPermit(input_tokens, estimate)
            async with self._reserve_budget(permit, most_tokens):
                with self._observer.waiting():
                    permit.sent_at = await self._wait_until_sendable(permit.estimate)
                async with self._account_for(permit):
                    yield permit

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Learns the limits in an answer's headers, for the limiter. Never raises."""
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
        self._member.provider_limits = stated

    def _say_once(self, text: str) -> None:
        if text not in self._texts:
            self._texts.add(text)
            self._hooks.say(f"{self._name}: {text}")

    async def aclose(self) -> None:
        self._member.close()

    @asynccontextmanager
    async def _reserve_budget(self, permit: CallPermit, most_tokens: float) -> AsyncIterator[None]:
        """Reserves what the call may cost at most, and settles it with what it did."""
        if self._budget is None:
            yield
            return
        most_input = max(most_tokens, permit.estimate.input_tokens)
        most = most_spending(most_input, self._options.max_output_tokens, self._price)
        if not (ticket := await self._budget.reserve(most)):
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
        self._member.in_flight[permit] = None
        try:
            yield
            permit.is_answered = True
            self._breaker.record_success()
        except JudgeError as error:
            self._breaker.record_failure(error)
            error.is_probe = self._breaker.is_open
            if is_throttled := isinstance(error, Throttled):
                if (wait_s := error.retry_after_s or 0.0) > DAY_S:
                    self._say_once(
                        f"its Retry-After of {wait_s:.10g} s is not plausible and is ignored; a "
                        f"call waits for {self._options.patience_s:g} s in all (judging.ceiling_s)"
                    )
                    error.retry_after_s = None
                await self._member.report_throttle(permit, error)
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
            if permit.used.input_tokens:
                self._learn_cost(permit)

    def _apply_grant(self, grant: Grant) -> None:
        """Takes over the calls in flight and what they wait for; reports an assumed limit."""
        self._held_by = held_by = grant.held_by
        if held_by is not None and held_by.source == "assumed":
            limit = f"a limit of {describe_rate(held_by.what, held_by.amount)}"
            self._say_once(
                f"calls wait for {limit}, which is only assumed (the judge table's, of a "
                "beginner's account): the provider has not told its own. If yours allows more, "
                f"raise it: --set 'judging.limits={{{self._name}: {{{held_by.what}: NUMBER}}}}', "
                "also with `memray-eval resume latest`"
            )
        most = self._options.max_in_flight
        self._places.resize(min(most, grant.share or most))

    def _learn_cost(self, permit: CallPermit) -> None:
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
