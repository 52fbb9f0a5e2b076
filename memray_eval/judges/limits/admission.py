"""The way of one judge actor to one judge: so many calls in flight, each in a time slot of the
cluster's limiter, within the run's budget, and none while the judge is down."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol

from memray_eval.config.sections import RateLimits
from memray_eval.errors import JudgeError, QuotaExhausted, ServiceLost, Stopped, Throttled
from memray_eval.judges.call_metrics import NO_OBSERVER, CallObserver
from memray_eval.judges.limits.breaker import Breaker
from memray_eval.judges.limits.rate_limiter import (
    LANES,
    LATE_S,
    CallCost,
    HeldBy,
    LimiterPort,
    Reservation,
    Standing,
)

CHUNK = 25  # slots are asked for so many at a time, and only for calls that wait
NOTHING = CallCost()
FIRST_OUTPUT_TOKENS = 300.0  # of a verdict, until some have been seen
MEMORY = 0.05  # how much a new call moves the averages that estimates are corrected by
REPORT_S = 2.0  # what calls took is reported after so long, where no reservation took it along
LATE_AT_START_S, START_S = (
    0.1,
    12.0,
)  # so long after a limit was learnt even a short burst of late calls is avoided
LOOK_S = 1.0  # so often a gate whose calls wait looks whether the judge still lets any through
LET_THROUGH_S = 3.0  # a call that is under way for so long was not refused: a 429 comes at once
QUIET_S = 10.0  # without an answer for so long, and with nothing but 429s, it says so
LONGEST_BACKOFF_S = (
    60.0  # a call that was refused comes back within so long, where the provider does not say when
)
# a judge that let nothing through is asked again after so long, where the run goes on without it
PROBE_S = 60.0
LONGEST_RETRY_AFTER_S = (
    86_400.0  # a provider that says to wait for longer than a day is not believed
)
LEAST_REQUESTS_PER_MIN, LEAST_TOKENS_PER_MIN, MOST_PER_MIN = (
    0.1,
    1.0,
    1e15,
)  # nor is a limit outside of these
_HEADERS = {
    "x-ratelimit-limit-requests": "requests_per_min",
    "x-ratelimit-limit-tokens": "tokens_per_min",
    "anthropic-ratelimit-requests-limit": "requests_per_min",
    "anthropic-ratelimit-input-tokens-limit": "input_tokens_per_min",
    "anthropic-ratelimit-output-tokens-limit": "output_tokens_per_min",
}


class JudgeBudget(Protocol):
    """The run's money, for one judge: a ticket for what a call may cost, settled with what it did.
    Raises BudgetSpent where a call does not fit any more."""

    async def draw(self, most: CallCost) -> int: ...

    async def settle(self, ticket: int, spent: CallCost) -> None: ...


@dataclass(eq=False)
class CallPermit:
    """One call that may be made now. The caller says what it used; a call that failed used nothing
    that is known of."""

    raw_input: float
    estimate: CallCost
    sent_at: float = 0.0
    used: CallCost = NOTHING
    is_counted: bool = False  # among those that ended, beforehand
    is_answered: bool = False


class AdmissionController:
    """Build it on the event loop that will use it. `limits` are what is known beforehand, firm when
    the user set them; `members` is how many judge actors share them. A judge that has let no call
    through for `patience_s`, waiting included, fails the calls that wait for it. `say` gets lines
    that a person should read, each once."""

    def __init__(
        self,
        judge: str,
        limiter: LimiterPort,
        breaker: Breaker,
        *,
        member: str,
        members: int = 1,
        limits: RateLimits = RateLimits(),
        is_firm: bool = False,
        max_in_flight: int = 64,
        max_output_tokens: int = 2048,
        budget: JudgeBudget | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        watch: CallObserver = NO_OBSERVER,
        patience_s: float = 600.0,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._judge, self._limiter, self._breaker, self._purse = judge, limiter, breaker, budget
        self._member, self._members, self._limits, self._is_firm = member, members, limits, is_firm
        self._is_stopping, self._watching = is_stopping, watch
        self._max_output, self._clock, self._sleep = float(max_output_tokens), clock, sleep
        even = max(1, limits.concurrency // members) if limits.concurrency else max_in_flight
        self._places, self._most_places = (
            ResizableSemaphore(min(max_in_flight, even)),
            max_in_flight,
        )
        self._waiting: deque[tuple[CallCost, asyncio.Future[float]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None
        self._free_until = self._paused_until = 0.0
        self._owed, self._done = CallCost(), 0
        self._in_flight: dict[CallPermit, None] = {}  # in the order of their sending
        self._ratio: float | None = None
        self._output = FIRST_OUTPUT_TOKENS
        self._said: RateLimits | None = (
            None  # this and `_found_per_min` are for a limiter that is restarted
        )
        self._name, self._patience_s, self._say, self._noted = (
            judge.partition(" ")[0],
            patience_s,
            say,
            set[str](),
        )
        self._answered, self._answered_at, self._refusal = 0, -math.inf, ""
        self._stalled: tuple[str, float] | None = None
        self._learnt_at = self._asleep_until = -math.inf
        self._tending: asyncio.Task[None] | None = None
        self._found_per_min: float | None = None

    @asynccontextmanager
    async def turn(self, input_tokens: float) -> AsyncIterator[CallPermit]:
        """Waits for its turn, however long that takes, and holds a place in flight to the end of
        the block. `input_tokens` is a rough figure, corrected by what earlier calls turned out to
        take.

        Raises Unavailable, Unauthorised, UnknownModel or QuotaExhausted while the judge is out of
        reach, Throttled that is marked as stalled where it lets no call through, BudgetSpent at the
        end of the money, Stopped when the run ends."""
        async with self._places:
            if self._is_stopping():
                raise Stopped("the run is stopping")
            self._check_stalled()
            turn = CallPermit(
                input_tokens, CallCost(input_tokens * (self._ratio or 1.0), self._output)
            )
            async with self._paid(turn):
                with self._watching.waiting():
                    turn.sent_at = await self._moment(turn.estimate)
                is_throttled, self._in_flight[turn] = False, None
                try:
                    yield turn
                except Throttled as error:
                    is_throttled = True
                    self._breaker.failed(error)
                    error.retry_after_s = self._plausible(error.retry_after_s)
                    self._refusal = str(error) + _retry_after(error.retry_after_s)
                    await self._throttled(turn, error.retry_after_s)
                    raise
                except JudgeError as error:
                    turn.is_answered = turn.used != NOTHING
                    self._breaker.failed(error)
                    error.is_stalled = (
                        isinstance(error, QuotaExhausted) and self._breaker.is_given_up
                    )
                    raise
                except (
                    BaseException
                ):  # cancelled, or a reply that does not fit: whoever used tokens has answered
                    turn.is_answered = turn.used != NOTHING
                    self._breaker.abandoned() if turn.used == NOTHING else self._breaker.succeeded()
                    raise
                else:
                    turn.is_answered = True
                    self._breaker.succeeded()
                finally:
                    del self._in_flight[turn]
                    self._reconcile_estimate(turn, is_throttled)

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Learns the limits in an answer's headers; tells the limiter what is new. Never raises:
        the answer was paid."""
        for header in implausible_limits(headers):
            self._note(
                f"{self._name}: its header {header}: {headers[header][:40]!r} is no plausible "
                f"limit and is ignored"
            )
        if (said := limits_from_headers(headers)) is None:
            return
        if (said := _merge_limits(self._said or RateLimits(), said)) == self._said:
            return
        if self._said is None:
            self._learnt_at = self._clock()
        self._said = said
        self._note_kept(said)
        try:
            await self._limiter.learn(self._judge, said)
        except Exception:  # out of reach: it is told again with the next answer
            self._said = None

    async def aclose(self) -> None:
        for task in (self._pump, self._watch, self._report, self._tending):
            if task is not None:
                task.cancel()

    async def _moment(self, cost: CallCost) -> float:
        """When the call may be sent: now, in a slot of its own and with the judge not known to be
        down."""
        while True:
            sent_at = await self._slot(cost)
            try:
                wait_s = self._breaker.admit()
            except QuotaExhausted as error:
                error.is_stalled = True
                raise
            if wait_s <= 0:
                return sent_at
            await self._sleep(wait_s)

    @asynccontextmanager
    async def _paid(self, turn: CallPermit) -> AsyncIterator[None]:
        if self._purse is None:
            yield
            return
        most = CallCost(turn.estimate.input_tokens * 1.2, self._max_output)
        ticket = await self._purse.draw(most)
        try:
            yield
        finally:
            await self._purse.settle(ticket, turn.used)

    async def _slot(self, cost: CallCost) -> float:
        """When the call may be sent: now. Slots that came too late, or before a pause, are dropped
        and asked for anew."""
        while True:
            now = self._clock()
            if now < self._free_until:
                return now
            granted: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting.append((cost, granted))
            if self._pump is None or self._pump.done():
                self._pump = asyncio.create_task(self._reserve())
            at = await granted
            if (ahead_s := at - self._clock()) > 0:
                await self._sleep(ahead_s)
            now = self._clock()
            late_s = LATE_AT_START_S if now - self._learnt_at < START_S else LATE_S
            if now - at <= late_s and self._paused_until <= at:
                return now

    async def _reserve(self) -> None:
        """Asks for slots as long as calls wait; while one request is on its way, the next batch
        gathers."""
        while costs := self._costs_waiting():
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._watch_pauses())
            if self._tending is None or self._tending.done():
                self._tending = asyncio.create_task(self._tend())
            try:
                grant = await self._limiter.reserve(self._wanted(costs))
            except Exception as error:  # the calls must hear of it, or they would wait for ever
                text = f"the rate limiter cannot be reached: {type(error).__name__}"
                self._fail_waiting(
                    partial(type(error), str(error))
                    if isinstance(error, ServiceLost)
                    else partial(JudgeError, text)
                )
                return
            if grant.held_by is not None:
                self._note_held(grant.held_by)
            is_paused = self._clock() < self._paused_until  # what was free before a 429 is no more
            self._free_until, self._found_per_min = (
                0.0 if is_paused else grant.free_until,
                grant.found_per_min,
            )
            self._places.resize(min(self._most_places, grant.share or self._most_places))
            times = grant.times or (self._clock(),) * (
                len(self._waiting) if grant.free_until else 0
            )
            for at in times[: len(self._waiting)]:  # fewer wait where they were failed meanwhile
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(at)

    def _costs_waiting(self) -> tuple[CallCost, ...]:
        """Of the calls that wait, up to a chunk; those that were cancelled take no slot."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].done())
        return tuple(cost for cost, _ in islice(self._waiting, CHUNK))

    async def _settle(self, after_s: float) -> None:
        """Reports what calls took when no reservation takes it along, as while one waits at the
        limiter: others may go sooner for it."""
        while True:
            if after_s:
                await self._sleep(after_s)
            if not self._done and not self._answered and self._owed == NOTHING:
                return
            with suppress(
                Exception
            ):  # a limiter that starts anew has no use for what it would have heard
                await self._limiter.reserve(self._wanted(()))
            after_s = REPORT_S

    def _wanted(self, costs: tuple[CallCost, ...]) -> Reservation:
        owed, done, answered = self._owed, self._done, self._answered
        self._owed, self._done, self._answered = NOTHING, 0, 0
        return Reservation(
            self._judge,
            self._member,
            costs,
            self._limits,
            self._is_firm,
            owed,
            done,
            self._members,
            self._found_per_min,
            self._said,
            answered,
        )

    async def _watch_pauses(self) -> None:
        """Hears of a 429 that another member got, so that nobody sends into a closed window. Ends
        when the limiter is out of reach; the next reservation begins anew."""
        with suppress(Exception):
            while True:
                until = await self._limiter.pause(self._judge, self._paused_until)
                self._pause(until)

    async def _tend(self) -> None:
        """While calls wait, or will be tried again: says that the judge has let none through for a
        while, fails those that wait when that lasts, and ends their waiting when the run stops."""
        began = self._clock()
        while self._waiting or self._in_flight or self._clock() <= self._asleep_until:
            await self._sleep(LOOK_S)
            if self._is_stopping():
                self._fail_waiting(lambda: Stopped("the run is stopping"))
                continue
            if (now := self._clock()) - max(began, self._answered_at) < QUIET_S:
                continue
            with suppress(
                Exception
            ):  # a limiter that is out of reach fails the calls that wait, elsewhere
                self._judge_standing(await self._limiter.standing(self._judge), began, now)

    def _judge_standing(self, standing: Standing, began: float, now: float) -> None:
        refused_s, slotless_s = (  # of this run: the limiter may know of an earlier one
            0.0 if since is None else now - max(since, began)
            for since in (standing.refused_since, standing.slotless_since)
        )
        why = self._refusal or "429: too many requests"
        if any(now - turn.sent_at > LET_THROUGH_S for turn in self._in_flight):
            refused_s = 0.0  # slow, not refused
        if refused_s >= QUIET_S:
            self._note(
                f"{self._name}: no call has been let through for {QUIET_S:g} s "
                f"({why.partition(';')[0]}); the others wait. "
                f"After {self._patience_s:g} s without one (judging.ceiling_s) the run stops, to "
                f"be resumed"
            )
        if refused_s >= self._patience_s:
            self._stall(
                f"no call has been let through for {self._patience_s:g} s (judging.ceiling_s): "
                f"{why}",
                now,
            )
        elif standing.held_by is not None and not self._is_own(standing.held_by.lane):
            limit = _limit_text(standing.held_by)
            if slotless_s >= QUIET_S and not standing.held_by.is_assumed:
                self._note(
                    f"{self._name}: calls wait for {limit}, which the provider told, by headers "
                    f"or by its 429s"
                )
            if slotless_s >= self._patience_s:
                self._stall(
                    f"no call could be sent for {self._patience_s:g} s (judging.ceiling_s): they "
                    f"wait for {limit}",
                    now,
                )

    def _is_own(self, lane: str) -> bool:
        """Whether the user has set this limit."""
        return self._is_firm and getattr(self._limits, lane) is not None

    def _stall(self, reason: str, now: float) -> None:
        if self._stalled is not None and self._stalled[1] <= now < self._stalled[1] + QUIET_S:
            return  # those that came after the pause have their try
        if self._stalled is None or now >= self._stalled[1]:
            self._stalled = reason, now + PROBE_S
        self._fail_waiting(lambda: _stalled_error(reason))

    def _check_stalled(self) -> None:
        """Raises Throttled while the judge is given up; after a pause a few calls try again."""
        if self._stalled is not None and self._clock() < self._stalled[1]:
            raise _stalled_error(self._stalled[0])

    def _fail_waiting(self, error: Callable[[], Exception]) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error())

    def _note(self, line: str) -> None:
        """Says a line, once."""
        if line not in self._noted:
            self._noted.add(line)
            self._say(line)

    def _note_held(self, held_by: HeldBy) -> None:
        if held_by.is_assumed:
            self._note(
                f"{self._name}: calls wait for {_limit_text(held_by)}, which is only assumed (the "
                f"judge table's, of a "
                "beginner's account): the provider has not told its own. If yours allows more, "
                "raise it: "
                f"--set 'judging.limits={{{self._name}: {{{held_by.lane}: NUMBER}}}}', also with "
                f"`memray-eval resume`"
            )

    def _note_kept(self, said: RateLimits) -> None:
        """Says where the provider tells of less than what the user has set, which stands."""
        for lane in LANES if self._is_firm else ():
            told, own = getattr(said, lane), getattr(self._limits, lane)
            if own is not None and told is not None and told < own:
                self._note(
                    f"{self._name}: its headers tell of {_limit_text(HeldBy(lane, told, False))}, "
                    f"less than judging.limits "
                    f"({own:,.10g}), which is kept"
                )

    def _plausible(self, retry_after_s: float | None) -> float | None:
        if retry_after_s is None or retry_after_s <= LONGEST_RETRY_AFTER_S:
            return retry_after_s
        self._note(
            f"{self._name}: its Retry-After of {retry_after_s:.10g} s is not plausible and is "
            f"ignored"
        )
        return None

    def _pause(self, until: float) -> None:
        if until > self._paused_until:
            self._paused_until, self._free_until = until, 0.0

    async def _throttled(self, turn: CallPermit, retry_after_s: float | None) -> None:
        is_told = retry_after_s is not None and retry_after_s <= self._patience_s
        self._asleep_until = (
            self._clock() + LOOK_S + ((retry_after_s or 0.0) if is_told else LONGEST_BACKOFF_S)
        )
        self._done += self._outlived(turn) - turn.is_counted
        done, self._done = self._done, 0
        try:
            until = await self._limiter.throttled(self._judge, turn.sent_at, retry_after_s, done)
        except Exception:  # out of reach: the caller must hear of the 429, not of that
            until = self._clock() + (1.0 if retry_after_s is None else retry_after_s)
        self._pause(until)

    def _outlived(self, turn: CallPermit) -> int:
        """Counts calls that were sent no later than a refused one and are still in flight: most
        will be answered. Refusals come back first, and without those others the few of a burst
        would look like all of it."""
        others = (
            other
            for other in self._in_flight
            if other is not turn and other.sent_at <= turn.sent_at
        )
        outlived = [other for other in others if not other.is_counted]
        for other in outlived:
            other.is_counted = True
        return len(outlived)

    def _reconcile_estimate(self, turn: CallPermit, is_throttled: bool) -> None:
        if (
            is_throttled or turn.used != NOTHING
        ):  # else it failed, and the provider may have counted it: the estimate stands
            self._owed = self._owed.plus(turn.used.minus(turn.estimate))
        self._done += not (is_throttled or turn.is_counted)
        if turn.is_answered:
            self._answered, self._answered_at, self._refusal, self._stalled = (
                self._answered + 1,
                self._clock(),
                "",
                None,
            )
        if self._report is None or self._report.done():
            # The first at once: the limiter waits for one call before it lets more go.
            self._report = asyncio.create_task(
                self._settle(0.0 if self._report is None else REPORT_S)
            )
        if turn.used.input_tokens:
            ratio = turn.used.input_tokens / max(1.0, turn.raw_input)
            if self._ratio is None:
                self._ratio, self._output = ratio, turn.used.output_tokens
            else:
                self._ratio += MEMORY * (ratio - self._ratio)
                self._output += MEMORY * (turn.used.output_tokens - self._output)


class ResizableSemaphore:
    """Places in flight whose number may change: asyncio's semaphore has a fixed one."""

    def __init__(self, places: int) -> None:
        self._places, self._taken = places, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, places: int) -> None:
        self._places = places
        self._let_in()

    async def __aenter__(self) -> None:
        if self._taken < self._places:
            self._taken += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._taken < self._places:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)


def limits_from_headers(headers: Mapping[str, str]) -> RateLimits | None:
    """The limits that OpenAI (x-ratelimit-limit-...) and Anthropic (anthropic-ratelimit-...-limit)
    send; None without any."""
    found = {
        lane: per_min
        for header, lane in _HEADERS.items()
        if (per_min := _plausible_limit(headers, header)) is not None
    }
    return RateLimits.model_validate(found) if found else None


def implausible_limits(headers: Mapping[str, str]) -> list[str]:
    """The headers that should tell a limit and tell none that can be: 0.000001 requests/min, or no
    number."""
    return [
        header
        for header in _HEADERS
        if headers.get(header) and _plausible_limit(headers, header) is None
    ]


def _plausible_limit(headers: Mapping[str, str], header: str) -> float | None:
    try:
        per_min = float(headers.get(header, ""))
    except ValueError:
        return None
    least = (
        LEAST_REQUESTS_PER_MIN if _HEADERS[header] == "requests_per_min" else LEAST_TOKENS_PER_MIN
    )
    return per_min if least <= per_min <= MOST_PER_MIN else None


def _limit_text(held_by: HeldBy) -> str:
    return (
        f"a limit of {held_by.per_min:,.10g} "
        f"{held_by.lane.replace('_per_min', '/min').replace('_', ' ')}"
    )


def _retry_after(retry_after_s: float | None) -> str:
    return "" if retry_after_s is None else f"; Retry-After {retry_after_s:.10g} s"


def _stalled_error(reason: str) -> Throttled:
    error = Throttled(reason)
    error.is_stalled = True
    return error


def _merge_limits(limits: RateLimits, said: RateLimits) -> RateLimits:
    return limits.model_copy(update=said.model_dump(exclude_none=True))
