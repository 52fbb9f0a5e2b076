"""The queue in which one actor's calls wait for their time slots."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice

from memray_eval.errors import JudgeError, ServiceLost
from memray_eval.judges.limits.admission_options import MemberRests, RunHooks
from memray_eval.judges.limits.limiter_member import LimiterMember
from memray_eval.judges.limits.rate_limiter import LATE_S, CallCost, Grant

CHUNK = 25  # slots are asked for so many at a time, and only for calls that wait
# For START_S after a limit was learnt, even a short burst of late calls is avoided.
LATE_AT_START_S, START_S = 0.1, 12.0


class SlotQueue:
    """Gets slots from the limiter as long as calls wait; while one request is on its way, the next
    batch gathers. `on_queued` is called when a call has to wait, `on_grant` with every grant. With
    `moves_on` a pause fails the calls that wait with MemberRests."""

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
            slot: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting.append((cost, slot))
            self._on_queued()
            if self._pump is None or self._pump.done():
                self._pump = asyncio.create_task(self._reserve_slots())
            at = await slot
            if (ahead_s := at - clock()) > 0:
                await self._hooks.sleep(ahead_s)
            now = clock()
            is_start = now - self._member.learnt_at < START_S
            late_s = LATE_AT_START_S if is_start else LATE_S
            if now - at <= late_s and self._paused_until <= at:
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
        while costs := self._waiting_costs():
            if self._pause_watch is None or self._pause_watch.done():
                self._pause_watch = asyncio.create_task(self._watch_pauses())
            try:
                grant = await self._member.reserve(costs)
            except ServiceLost as error:  # the calls must hear of it, or they would wait for ever
                self.fail_waiting(partial(type(error), str(error)))
                return
            except Exception as error:
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
        # What was free before a 429 is no more.
        self._free_until = 0.0 if now < self._paused_until else grant.free_until
        times = grant.times
        if not times and grant.free_until:
            times = (now,) * len(self._waiting)
        for at in times[: len(self._waiting)]:  # fewer wait where they were failed meanwhile
            _, slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(at)

    async def _watch_pauses(self) -> None:
        """Hears of a 429 that another member got, so that nobody sends into a closed window. Ends
        when the limiter is out of reach; the next reservation begins anew."""
        with suppress(Exception):
            while True:
                self.pause(await self._member.wait_for_pause(self._paused_until))
