"""The way of one judge actor to one judge: so many calls in flight, each in a time slot of the cluster's limiter, within the
run's budget, and none while the judge is down."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from memray_eval.clients.breaker import Breaker
from memray_eval.clients.limiter import LANES, LATE_S, Cost, LimiterPort, Reservation
from memray_eval.clients.watching import UNWATCHED, Watch
from memray_eval.config import RateLimits
from memray_eval.errors import JudgeError, ServiceLost, Stopped, Throttled

CHUNK = 25  # slots are asked for so many at a time, and only for calls that wait
NOTHING = Cost()
FIRST_OUTPUT_TOKENS = 300.0  # of a verdict, until some have been seen
MEMORY = 0.05  # how much a new call moves the averages that estimates are corrected by
REPORT_S = 2.0  # what calls took is reported after so long, where no reservation took it along
_HEADERS = {
    "x-ratelimit-limit-requests": "requests_per_min",
    "x-ratelimit-limit-tokens": "tokens_per_min",
    "anthropic-ratelimit-requests-limit": "requests_per_min",
    "anthropic-ratelimit-input-tokens-limit": "input_tokens_per_min",
    "anthropic-ratelimit-output-tokens-limit": "output_tokens_per_min",
}


class Purse(Protocol):
    """The run's money, for one judge: a ticket for what a call may cost, settled with what it did. Raises BudgetSpent where
    a call does not fit any more."""

    async def draw(self, most: Cost) -> int: ...

    async def settle(self, ticket: int, spent: Cost) -> None: ...


@dataclass(eq=False)
class Turn:
    """One call that may be made now. The caller says what it used; a call that failed used nothing that is known of."""

    raw_input: float
    estimate: Cost
    sent_at: float = 0.0
    used: Cost = NOTHING
    is_counted: bool = False  # among those that ended, beforehand


class Gate:
    """Build it on the event loop that will use it. `limits` are what is known beforehand, firm when the user set them;
    `members` is how many judge actors share them."""

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
        purse: Purse | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        watch: Watch = UNWATCHED,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._judge, self._limiter, self._breaker, self._purse = judge, limiter, breaker, purse
        self._member, self._members, self._limits, self._is_firm = member, members, limits, is_firm
        self._is_stopping, self._watching = is_stopping, watch
        self._max_output, self._clock, self._sleep = float(max_output_tokens), clock, sleep
        even = max(1, limits.concurrency // members) if limits.concurrency else max_in_flight
        self._places, self._most_places = _Places(min(max_in_flight, even)), max_in_flight
        self._waiting: deque[tuple[Cost, asyncio.Future[float]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None
        self._free_until = self._paused_until = 0.0
        self._owed, self._done = Cost(), 0
        self._in_flight: dict[Turn, None] = {}  # in the order of their sending
        self._ratio: float | None = None
        self._output = FIRST_OUTPUT_TOKENS
        self._said: RateLimits | None = None
        self._known = limits  # these and `_found_per_min` are for a limiter that is restarted
        self._found_per_min: float | None = None

    @asynccontextmanager
    async def turn(self, input_tokens: float) -> AsyncIterator[Turn]:
        """Waits for its turn, however long that takes, and holds a place in flight to the end of the block. `input_tokens` is a
        rough figure, corrected by what earlier calls turned out to take.

        Raises Unavailable, Unauthorised or UnknownModel while the judge is out of reach, BudgetSpent at the end of the money,
        Stopped when the run ends.
        """
        async with self._places:
            if self._is_stopping():
                raise Stopped("the run is stopping")
            turn = Turn(input_tokens, Cost(input_tokens * (self._ratio or 1.0), self._output))
            async with self._paid(turn):
                with self._watching.waiting():
                    turn.sent_at = await self._moment(turn.estimate)
                is_throttled, self._in_flight[turn] = False, None
                try:
                    yield turn
                except Throttled as error:
                    is_throttled = True
                    self._breaker.failed(error)
                    await self._throttled(turn, error.retry_after_s)
                    raise
                except JudgeError as error:
                    self._breaker.failed(error)
                    raise
                except BaseException:  # cancelled, or a reply that does not fit: whoever used tokens has answered
                    self._breaker.abandoned() if turn.used == NOTHING else self._breaker.succeeded()
                    raise
                else:
                    self._breaker.succeeded()
                finally:
                    del self._in_flight[turn]
                    self._owe(turn, is_throttled)

    async def heard(self, headers: Mapping[str, str]) -> None:
        """Learns the limits in an answer's headers; tells the limiter what is new. Never raises: the answer was paid."""
        if (said := limits_from_headers(headers)) is None:
            return
        if (said := _overlaid(self._said or RateLimits(), said)) == self._said:
            return
        self._said = said
        lowered = _lowered(said, self._limits) if self._is_firm else said
        self._known = _overlaid(self._limits, lowered)
        try:
            await self._limiter.learn(self._judge, said)
        except Exception:  # out of reach: it is told again with the next answer
            self._said = None

    async def aclose(self) -> None:
        for task in (self._pump, self._watch, self._report):
            if task is not None:
                task.cancel()

    async def _moment(self, cost: Cost) -> float:
        """When the call may be sent: now, in a slot of its own and with the judge not known to be down."""
        while True:
            sent_at = await self._slot(cost)
            if (wait_s := self._breaker.admit()) <= 0:
                return sent_at
            await self._sleep(wait_s)

    @asynccontextmanager
    async def _paid(self, turn: Turn) -> AsyncIterator[None]:
        if self._purse is None:
            yield
            return
        most = Cost(turn.estimate.input_tokens * 1.2, self._max_output)
        ticket = await self._purse.draw(most)
        try:
            yield
        finally:
            await self._purse.settle(ticket, turn.used)

    async def _slot(self, cost: Cost) -> float:
        """When the call may be sent: now. Slots that came too late, or before a pause, are dropped and asked for anew."""
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
            if now - at <= LATE_S and self._paused_until <= at:
                return now

    async def _reserve(self) -> None:
        """Asks for slots as long as calls wait; while one request is on its way, the next batch gathers."""
        while costs := self._costs_waiting():
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._watch_pauses())
            try:
                grant = await self._limiter.reserve(self._wanted(costs))
            except Exception as error:  # the calls must hear of it, or they would wait for ever
                while self._waiting:
                    _, future = self._waiting.popleft()
                    if not future.done():
                        lost = JudgeError(f"the rate limiter cannot be reached: {type(error).__name__}")
                        future.set_exception(error if isinstance(error, ServiceLost) else lost)
                return
            is_paused = self._clock() < self._paused_until  # what was free before a 429 is no more
            self._free_until, self._found_per_min = 0.0 if is_paused else grant.free_until, grant.found_per_min
            self._places.resize(min(self._most_places, grant.share or self._most_places))
            times = grant.times or (self._clock(),) * (len(self._waiting) if grant.free_until else 0)
            for at in times:
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(at)

    def _costs_waiting(self) -> tuple[Cost, ...]:
        """Of the calls that wait, up to a chunk; those that were cancelled take no slot."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].done())
        return tuple(cost for cost, _ in islice(self._waiting, CHUNK))

    async def _settle(self, after_s: float) -> None:
        """Reports what calls took when no reservation takes it along, as while one waits at the limiter: others may go sooner
        for it."""
        while True:
            if after_s:
                await self._sleep(after_s)
            if not self._done and self._owed == NOTHING:
                return
            with suppress(Exception):  # a limiter that starts anew has no use for what it would have heard
                await self._limiter.reserve(self._wanted(()))
            after_s = REPORT_S

    def _wanted(self, costs: tuple[Cost, ...]) -> Reservation:
        owed, done = self._owed, self._done
        self._owed, self._done = NOTHING, 0
        return Reservation(
            self._judge, self._member, costs, self._known, self._is_firm, owed, done, self._members, self._found_per_min
        )

    async def _watch_pauses(self) -> None:
        """Hears of a 429 that another member got, so that nobody sends into a closed window. Ends when the limiter is out of
        reach; the next reservation begins anew."""
        with suppress(Exception):
            while True:
                until = await self._limiter.pause(self._judge, self._paused_until)
                self._pause(until)

    def _pause(self, until: float) -> None:
        if until > self._paused_until:
            self._paused_until, self._free_until = until, 0.0

    async def _throttled(self, turn: Turn, retry_after_s: float | None) -> None:
        self._done += self._outlived(turn) - turn.is_counted
        done, self._done = self._done, 0
        try:
            until = await self._limiter.throttled(self._judge, turn.sent_at, retry_after_s, done)
        except Exception:  # out of reach: the caller must hear of the 429, not of that
            until = self._clock() + (1.0 if retry_after_s is None else retry_after_s)
        self._pause(until)

    def _outlived(self, turn: Turn) -> int:
        """Counts calls that were sent no later than a refused one and are still in flight: most will be answered. Refusals come
        back first, and without those others the few of a burst would look like all of it."""
        others = (other for other in self._in_flight if other is not turn and other.sent_at <= turn.sent_at)
        outlived = [other for other in others if not other.is_counted]
        for other in outlived:
            other.is_counted = True
        return len(outlived)

    def _owe(self, turn: Turn, is_throttled: bool) -> None:
        if is_throttled or turn.used != NOTHING:  # else it failed, and the provider may have counted it: the estimate stands
            self._owed = self._owed.plus(turn.used.minus(turn.estimate))
        self._done += not (is_throttled or turn.is_counted)
        if self._report is None or self._report.done():
            # The first at once: the limiter waits for one call before it lets more go.
            self._report = asyncio.create_task(self._settle(0.0 if self._report is None else REPORT_S))
        if turn.used.input_tokens:
            ratio = turn.used.input_tokens / max(1.0, turn.raw_input)
            if self._ratio is None:
                self._ratio, self._output = ratio, turn.used.output_tokens
            else:
                self._ratio += MEMORY * (ratio - self._ratio)
                self._output += MEMORY * (turn.used.output_tokens - self._output)


class _Places:
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
    """The limits that OpenAI (x-ratelimit-limit-...) and Anthropic (anthropic-ratelimit-...-limit) send; None without any."""
    found = {}
    for header, lane in _HEADERS.items():
        try:
            per_min = float(headers.get(header, ""))
        except ValueError:
            continue
        if 0 < per_min < math.inf:
            found[lane] = per_min
    return RateLimits.model_validate(found) if found else None


def _overlaid(limits: RateLimits, said: RateLimits) -> RateLimits:
    return limits.model_copy(update=said.model_dump(exclude_none=True))


def _lowered(said: RateLimits, firm: RateLimits) -> RateLimits:
    """What a provider says, where that is not above what the user set."""
    heard = {lane: [limit for limit in (getattr(said, lane), getattr(firm, lane)) if limit is not None] for lane in LANES}
    return RateLimits(**{lane: min(limits, default=None) for lane, limits in heard.items()})
