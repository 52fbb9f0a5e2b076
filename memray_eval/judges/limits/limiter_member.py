"""One judge actor at the cluster's limiter: its calls in flight and those that wait for slots, the
limits that a provider's headers state, and the watch that gives a judge up which lets none through.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from memray_eval.config.sections import RateLimits
from memray_eval.errors import JudgeError, ServiceLost, Stopped, Throttled
from memray_eval.judges.limits.rate_limiter import (
    Grant,
    LimiterPort,
    Reservation,
    StallStatus,
    steady_time,
)
from memray_eval.judges.limits.rate_pacer import LATE_S, NOTHING, REQUESTS, CallCost
from memray_eval.log_once import log_once

REPORT_S = 2.0  # reports go at this interval while no reservation takes them along
CHUNK = 50  # slots are asked for this many at a time, and only for calls that wait
# For START_S after a limit was learnt, even a short burst of late calls is avoided.
LATE_AT_START_S, START_S = 0.1, 12.0
# No message takes so long: where the limiter's clock is further off, one of the two was set.
SKEW_S = 30.0

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

    @property
    def first_places(self) -> int:
        """Calls in flight until the limiter says how many this member may have."""
        if not self.limits.concurrency:
            return self.max_in_flight
        return min(self.max_in_flight, max(1, self.limits.concurrency // self.members))

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
    batch gathers; each takes along what calls took since the last one, or else a report does."""

    def __init__(
        self,
        judge: str,
        limiter: LimiterPort,
        options: AdmissionOptions,
        hooks: RunHooks,
        on_queued: Callable[[], None],
        on_grant: Callable[[Grant], None],
    ) -> None:
        self._judge, self._limiter, self._options, self._hooks = judge, limiter, options, hooks
        self._on_queued, self._on_grant = on_queued, on_grant
        self._waiting: deque[tuple[CallCost, asyncio.Future[float]]] = deque()
        self._free_until = 0.0
        self.paused_until = 0.0  # until when the judge refuses calls, as its 429s have told
        self._pump: asyncio.Task[None] | None = None
        self._pause_watch: asyncio.Task[None] | None = None
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
        self._report: asyncio.Task[None] | None = None
        self._reported_at = -math.inf
        self.n_failures = 0  # of messages to the limiter
        self.in_flight: dict[CallPermit, None] = {}  # in the order of their sending
        # What was learnt goes along with each reservation, for a limiter that was restarted.
        self.provider_limits: RateLimits | None = None
        self.learnt_at = -math.inf

    async def standing(self) -> StallStatus:
        return await self._limiter.standing(self._judge)

    async def learn(self, limits: RateLimits) -> None:
        """Passes the provider's limits on to the limiter. Never raises: if the limiter is out of
        reach, the next answer passes them on."""
        if self.provider_limits is None:
            self.learnt_at = self._hooks.clock()
        self.provider_limits = limits
        try:
            await self._limiter.learn(self._judge, limits)
        except Exception as error:
            self.note_failure("a provider's limits were not passed on", error)
            self.provider_limits = None

    async def report_throttle(self, permit: CallPermit, retry_after_s: float | None) -> float:
        """Tells the limiter of a 429 at once; until when nobody may ask the judge."""
        done = self._next.done + self._count_outlived(permit) - permit.is_counted
        self._next = self._next._replace(done=0)
        sent_at = permit.sent_at - self._skew_s
        try:
            until = await self._limiter.throttled(self._judge, sent_at, retry_after_s, done)
            return until + self._skew_s
        except Exception as error:  # the caller must hear of the 429, not of this
            self.note_failure("a 429 was not reported", error)
            return self._hooks.clock() + (1.0 if retry_after_s is None else retry_after_s)

    def note_failure(self, effect: str, error: Exception) -> None:
        """Counts and logs a failed message to the limiter that the calls survive."""
        self.n_failures += 1
        judge = self._judge.partition("#")[0]  # without the account's digest
        text = "%s: %s, as the rate limiter failed (failure %d of this actor): %r"
        key = f"{judge}: {effect}: {type(error).__name__}"
        values = (judge, effect, self.n_failures, error)
        log_once(logger, logging.WARNING, key, text, *values, error=error)

    def begin(self, permit: CallPermit) -> None:
        self.in_flight[permit] = None

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
        if self._report is None or self._report.done():
            # The first at once: the limiter waits for one call before it lets more go.
            first_after_s = 0.0 if self._report is None else REPORT_S
            self._report = asyncio.create_task(self._send_reports(first_after_s))

    def close(self) -> None:
        for task in (self._report, self._pump, self._pause_watch):
            if task is not None:
                task.cancel()

    async def _send_reports(self, after_s: float) -> None:
        """Reports what calls took while no reservation takes it along, as while one waits at the
        limiter: others may go sooner for it."""
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
                self.note_failure("a report of ended calls was lost", error)
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
            self._on_queued()
            if self._pump is None or self._pump.done():
                self._pump = asyncio.create_task(self._reserve_slots())
            at = await slot
            if (ahead_s := at - clock()) > 0:
                await self._hooks.sleep(ahead_s)
            now = clock()
            is_start = now - self.learnt_at < START_S
            if now - at <= (LATE_AT_START_S if is_start else LATE_S) and self.paused_until <= at:
                return now

    def pause(self, until: float) -> None:
        """Drops the slots before `until`: the judge refuses calls until then."""
        if until > self.paused_until:
            self.paused_until, self._free_until = until, 0.0

    def fail_waiting(self, error: Callable[[], Exception]) -> None:
        """Fails every call that waits, each with an error of its own."""
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_exception(error())

    async def _reserve_slots(self) -> None:
        clock = self._hooks.clock
        while costs := self._waiting_costs():
            if self._pause_watch is None or self._pause_watch.done():
                self._pause_watch = asyncio.create_task(self._watch_pauses())
            if (gather_s := self._reserved_at + self._gather_s - clock()) > 0:
                await self._hooks.sleep(gather_s)
                if not (costs := self._waiting_costs()):
                    return
            self._reserved_at = clock()
            try:
                grant = await self._limiter.reserve(self._reservation(costs))
            except ServiceLost as error:  # the calls must hear of it, or they would wait for ever
                self.fail_waiting(partial(type(error), str(error)))
                return
            except Exception as error:
                self.note_failure("no time slots were reserved", error)
                text = f"the rate limiter cannot be reached: {type(error).__name__}"
                self.fail_waiting(partial(JudgeError, text))
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
                self.pause(until + self._skew_s)
        except Exception as error:
            self.note_failure("pauses of other members are not followed", error)


QUIET_S = 10.0  # a judge is reported after this long without an answer and with 429s alone
LOOK_S = 1.0  # how often it looks, while calls wait, whether the judge lets any through
LET_THROUGH_S = 3.0  # a call that is under way for this long was not refused: a 429 comes at once
# A call that was refused comes back within this long, if the provider does not say when.
LONGEST_BACKOFF_S = 60.0
# A judge that was given up is asked again after this long, if the run goes on without it.
PROBE_S = 60.0
# A limit outside of these is not believed.
LEAST_REQUESTS_PER_MIN = 0.1
LEAST_TOKENS_PER_MIN = 1.0
MOST_PER_MIN = 1e15
_LANE_OF_HEADER = {
    "x-ratelimit-limit-requests": REQUESTS,
    "x-ratelimit-limit-tokens": "tokens_per_min",
    "anthropic-ratelimit-requests-limit": REQUESTS,
    "anthropic-ratelimit-input-tokens-limit": "input_tokens_per_min",
    "anthropic-ratelimit-output-tokens-limit": "output_tokens_per_min",
}


def read_headers(headers: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The limits in OpenAI's (x-ratelimit-limit-...) and Anthropic's headers by lane, and the
    headers that should tell one and hold none, such as 0.000001 requests/min."""
    limits, odd = dict[str, float](), list[str]()
    for header, lane in _LANE_OF_HEADER.items():
        least = LEAST_REQUESTS_PER_MIN if lane == REQUESTS else LEAST_TOKENS_PER_MIN
        if not (text := headers.get(header)):
            continue
        with suppress(ValueError):
            if least <= (per_min := float(text)) <= MOST_PER_MIN:
                limits[lane] = per_min
                continue
        odd.append(header)
    return limits, odd


def describe_rate(lane: str, per_min: float) -> str:
    """A lane's rate: 3,600 requests/min."""
    return f"{per_min:,.10g} {lane.replace('_per_min', '/min').replace('_', ' ')}"


class StallWatch:
    """Watches one judge while calls wait. Says after QUIET_S that none is let through, fails the
    waiting ones after `patience_s`, and ends their waiting when the run stops."""

    def __init__(
        self,
        member: LimiterMember,
        say_once: Callable[[str], None],
        options: AdmissionOptions,
        hooks: RunHooks,
    ) -> None:
        self._member, self._say_once = member, say_once
        self._options, self._hooks = options, hooks
        self._answered_at = self._retries_until = -math.inf
        self._last_refusal = ""
        self._given_up: tuple[str, float] | None = None  # why, and until when
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to watch, if it does not yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def check(self) -> None:
        """Raises Throttled while the judge is given up; after a pause a few calls try again."""
        if self._given_up is not None and self._hooks.clock() < self._given_up[1]:
            raise _stalled_error(self._given_up[0])

    def note_answer(self) -> None:
        self._answered_at, self._last_refusal = self._hooks.clock(), ""
        self._given_up = None

    def note_refusal(self, error: Throttled) -> None:
        """Remembers a 429, and for how long its call may sleep before it comes back."""
        retry_after_s = error.retry_after_s
        self._last_refusal = str(error)
        if retry_after_s is not None:
            self._last_refusal += f"; Retry-After {retry_after_s:.10g} s"
        is_believed = retry_after_s is not None and retry_after_s <= self._options.patience_s
        sleeps_s = (retry_after_s or 0.0) if is_believed else LONGEST_BACKOFF_S
        self._retries_until = self._hooks.clock() + LOOK_S + sleeps_s

    async def _watch(self) -> None:
        clock = self._hooks.clock
        began = clock()
        while self._member.n_waiting or self._member.in_flight or clock() <= self._retries_until:
            await self._hooks.sleep(LOOK_S)
            if self._hooks.is_stopping():
                self._member.fail_waiting(lambda: Stopped("the run is stopping"))
                continue
            if (now := clock()) - max(began, self._answered_at) < QUIET_S:
                continue
            try:
                standing = await self._member.standing()
            except Exception as error:  # the queue fails the calls that wait
                self._member.note_failure("stalled calls were not looked for", error)
            else:
                self._assess(standing, began, now)

    def _assess(self, standing: StallStatus, began: float, now: float) -> None:
        """Reports or gives up a judge by how long it has refused all calls, or held all back."""
        refused_s, slotless_s = (  # of this run: the limiter may know of an earlier one
            0.0 if since is None else now - max(since, began)
            for since in (standing.refused_since, standing.slotless_since)
        )
        if any(now - permit.sent_at > LET_THROUGH_S for permit in self._member.in_flight):
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
        elif held_by is not None and not self._options.is_set_by_user(held_by.lane):
            # One that the user has set is waited for, however long that takes
            limit = f"a limit of {describe_rate(held_by.lane, held_by.per_min)}"
            if slotless_s >= QUIET_S and not held_by.is_assumed:
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
        self._member.fail_waiting(lambda: _stalled_error(reason))


def _stalled_error(reason: str) -> Throttled:
    error = Throttled(reason)
    error.is_stalled = True
    return error
