"""The queue in which one actor's calls wait for their time slots."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from memray_eval.errors import JudgeError, ServiceLost
from memray_eval.judges.limits.admission_options import MemberRests, RunHooks
from memray_eval.judges.limits.limiter_member import LimiterMember
from memray_eval.judges.limits.rate_limiter import LATE_S, CallCost, Grant

CHUNK = 25  # slots are asked for so many at a time, and only for calls that wait
# Where calls are to be gathered, for more, and where they are sent at once, also for those that are
# expected before the next request; as long as a slot may be late, but for some leeway.
LARGE_CHUNK, SPARE_LIFE = 250, 0.8
# For START_S after a limit was learnt, even a short burst of late calls is avoided.
LATE_AT_START_S, START_S = 0.1, 12.0


class SlotQueue:
    """Gets slots from the limiter as long as calls wait; while one request is on its way, and where
    the limiter says so for longer, the next batch gathers. Where calls go without a wait, it keeps
    a few spare slots, so that not each of them is a request. `on_queued` is called when a call has
    to wait, `on_grant` with every grant. With `moves_on` a pause fails the calls that wait with
    MemberRests."""

    def __init__(
        self,
        member: LimiterMember,
        hooks: RunHooks,
        on_queued: Callable[[], None],
        on_grant: Callable[[Grant], None],
        moves_on: bool = False,
    ) -> None:
        self._member, self._hooks, self._moves_on = member, hooks, moves_on
        self._on_queued, self._on_grant = on_queued, on_grant
        self._waiting: deque[tuple[CallCost, asyncio.Future[float]]] = deque()
        self._free_until = self._paused_until = 0.0
        self._pump: asyncio.Task[None] | None = None
        self._pause_watch: asyncio.Task[None] | None = None
        self._spare = deque[tuple[float, CallCost]]()
        # Of the last request and its grant: when it was made, calls since, how far ahead the slots
        # were, and what to gather
        self._asked_at, self._n_arrived = -math.inf, 0
        self._lead_s = self._gather_s = 0.0

    @property
    def paused_until(self) -> float:
        """Until when the judge refuses calls, as its 429s have told (epoch seconds)."""
        return self._paused_until

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    async def wait(self, cost: CallCost) -> float:
        """When the call may be sent: now. Slots that came too late, or before a pause, are dropped
        and asked for anew."""
        clock = self._hooks.clock
        while True:
            now = clock()
            if now < self._free_until:
                return now
            self._n_arrived += 1
            if (spare := self._take_spare(cost, now)) is not None:
                at = spare
            else:
                slot: asyncio.Future[float] = asyncio.get_running_loop().create_future()
                self._waiting.append((cost, slot))
                self._on_queued()
                if self._pump is None or self._pump.done():
                    self._pump = asyncio.create_task(self._reserve_slots())
                at = await slot
            if (ahead_s := at - clock()) > 0:
                await self._hooks.sleep(ahead_s)
            now = clock()
            if now - at <= self._late_s(now) and self._paused_until <= at:
                return now
            if self._moves_on and self._paused_until > now:
                raise MemberRests

    def pause(self, until: float) -> None:
        """Drops the slots before `until`: the judge refuses calls until then."""
        if until > self._paused_until:
            self._paused_until, self._free_until = until, 0.0
            if self._moves_on:
                self.fail_waiting(MemberRests)

    def fail_waiting(self, error: Callable[[], Exception]) -> None:
        """Fails every call that waits, each with an error of its own."""
        while self._waiting:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_exception(error())

    def close(self) -> None:
        for task in (self._pump, self._pause_watch):
            if task is not None:
                task.cancel()

    async def _reserve_slots(self) -> None:
        clock = self._hooks.clock
        while costs := self._waiting_costs():
            if self._pause_watch is None or self._pause_watch.done():
                self._pause_watch = asyncio.create_task(self._watch_pauses())
            # No call is held up by it: the slots of the last request are later.
            gather_s = self._asked_at + min(self._gather_s, self._lead_s) - clock()
            if gather_s > 0:
                await self._hooks.sleep(gather_s)
                costs = self._waiting_costs()
            asked = costs + self._spare_costs(costs, clock())
            if not asked:
                return
            self._asked_at, self._n_arrived = clock(), 0
            try:
                grant = await self._member.reserve(asked)
            except ServiceLost as error:  # the calls must hear of it, or they would wait for ever
                self.fail_waiting(partial(type(error), str(error)))
                return
            except Exception as error:
                text = f"the rate limiter cannot be reached: {type(error).__name__}"
                self.fail_waiting(partial(JudgeError, text))
                return
            self._on_grant(grant)
            self._hand_out(grant, asked)

    def _waiting_costs(self) -> tuple[CallCost, ...]:
        """Of the calls that wait, up to a chunk; those that were cancelled take no slot."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].done())
        most = LARGE_CHUNK if self._gather_s else CHUNK
        return tuple(cost for cost, _ in islice(self._waiting, most))

    def _spare_costs(self, costs: tuple[CallCost, ...], now: float) -> tuple[CallCost, ...]:
        """Costs, those of the last call, for as many calls as are expected while spare slots last;
        none where calls wait anyway."""
        lasts_s = min(self._gather_s, SPARE_LIFE * self._late_s(now)) - self._lead_s
        period_s = now - self._asked_at
        if not costs or lasts_s <= 0 or self._paused_until > now:
            return ()
        expected = self._n_arrived * lasts_s / max(period_s, lasts_s)
        return costs[-1:] * min(int(expected), LARGE_CHUNK - len(costs))

    def _take_spare(self, cost: CallCost, now: float) -> float | None:
        """A spare slot that may still be used, where there is one; what its call takes beyond the
        slot's cost is reported."""
        latest = max(now - self._late_s(now), self._paused_until)
        while self._spare:
            at, reserved = self._spare.popleft()
            if at >= latest:
                self._member.correct(cost.minus(reserved))
                return at
        return None

    def _late_s(self, now: float) -> float:
        """How late a slot may be used."""
        is_start = now - self._member.learnt_at < START_S
        return LATE_AT_START_S if is_start else LATE_S

    def _hand_out(self, grant: Grant, asked: Sequence[CallCost]) -> None:
        """Gives the slots of a grant to the calls that have waited longest; freedom lets all go."""
        now = self._hooks.clock()
        # What was free before a 429 is no more.
        self._free_until = 0.0 if now < self._paused_until else grant.free_until
        times = grant.times
        self._gather_s = grant.gather_s
        self._lead_s = max(0.0, times[0] - now) if times else 0.0
        if not times and grant.free_until:
            times = (now,) * len(self._waiting)
        n_used = min(len(times), len(self._waiting))  # fewer wait where they were failed meanwhile
        for at in times[:n_used]:
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(at)
        if grant.gather_s:
            self._spare.extend(zip(times[n_used:], asked[n_used:], strict=False))

    async def _watch_pauses(self) -> None:
        """Hears of a 429 that another member got, so that nobody sends into a closed window. Ends
        when the limiter is out of reach; the next reservation begins anew."""
        with suppress(Exception):
            while True:
                self.pause(await self._member.wait_for_pause(self._paused_until))
