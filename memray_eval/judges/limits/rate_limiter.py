"""The cluster-wide rate limiter: hands out time slots for calls to each judge, in chunks, as its
`RatePacer` plans them. A slot that comes too late to be used is given back."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from memray_eval.config.sections import RateLimits
from memray_eval.judges.call_metrics import BindingLimit
from memray_eval.judges.limits.rate_pacer import HORIZON_S, NEVER, NOTHING, CallCost, RatePacer

FREE_S = 2.0  # without a limit a member need not ask again for this long
# If more calls than that may go, members ask this often a second all together, each for the
# calls that it makes meanwhile: an actor takes some 0.8 ms a message. None waits for longer.
MESSAGES_PER_S, LONGEST_GATHER_S = 100.0, 0.5
LEAST_TURN = 25  # slots that a member may have at a time, if nobody else waits
# Until a judge has answered, one call goes at a time; another if it has not come back for so long.
CANARY_S = 10.0
# The first in the queue waits at least GATHER_S, for more than one slot, and looks every LOOK_S.
GATHER_S, LOOK_S = 0.1, 1.0
# A member not heard of for this long is gone; one that waits is heard of in half of it.
MEMBER_S = 60.0


_STARTED = time.time() - time.monotonic()


def steady_time() -> float:
    """Epoch seconds of a clock that nobody sets while this process lives."""
    return _STARTED + time.monotonic()


class Reservation(NamedTuple):
    """A member's (a judge actor's) request for slots of these costs; with all limits that it knows,
    for a restarted limiter, and what its last calls took: `correction`, actual minus estimated
    tokens; `done`, how many ended, those with a 429 apart; `answered`, how many by an answer."""

    judge: str
    member: str
    costs: tuple[CallCost, ...]
    limits: RateLimits
    is_firm: bool
    correction: CallCost = CallCost()
    done: int = 0
    members: int = 1
    provider_limits: RateLimits | None = None
    answered: int = 0
    run: str = ""


class StallStatus(NamedTuple):
    """Since when (epoch seconds) a judge refuses all calls; since when none got a slot, and why."""

    refused_since: float | None = None
    slotless_since: float | None = None
    held_by: BindingLimit | None = None


class Grant(NamedTuple):
    """When the first calls of a reservation may be sent (epoch seconds), or until when any may;
    calls in flight of the member (None: any number); the limit that these calls wait for.
    `gather_s` is to pass before the member asks again. `now` is what the limiter's clock says."""

    times: tuple[float, ...] = ()
    free_until: float = 0.0
    share: int | None = None
    held_by: BindingLimit | None = None
    gather_s: float = 0.0
    now: float | None = None


def _lowest_limits(limits: Collection[RateLimits]) -> RateLimits:
    """The limits that all of these keep to: the lowest of each kind."""
    known = [of_member.model_dump(exclude_none=True) for of_member in limits]
    kinds = set[str]().union(*known)
    return RateLimits(**{kind: min(of[kind] for of in known if kind in of) for kind in kinds})


@dataclass(eq=False)
class _Judge:
    """A judge as the limiter knows it. Of each member it knows the run and the limits that it
    brings, firm or not, and when it was last heard of. `canary_at` is when the last call that goes
    first went, and `slotless` since when calls wait and none was given a slot, for which limit."""

    pace: RatePacer
    members: dict[str, tuple[str, RateLimits, bool]] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    applied_at: float = NEVER
    queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_waiting: int = 0
    canary_at: float = NEVER
    slotless: tuple[float, BindingLimit | None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_change(self, seconds: float) -> None:
        """At most this long."""
        with suppress(TimeoutError):
            # Not wait_for, which in Python 3.11 may lose a cancellation that comes with the change
            async with asyncio.timeout(seconds):
                await self.changed.wait()

    def announce(self) -> None:
        """Wakes all who wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def report(self, wanted: Reservation, is_over: bool, now: float) -> None:
        """Takes over what a member's calls took, what its provider told, and its limits unless its
        run is over."""
        if not is_over:
            before, member = self.members.get(wanted.member), wanted.member
            self.members[member] = wanted.run, wanted.limits, wanted.is_firm
            self.heard_at[member] = now
            if before != self.members[member] or now - self.applied_at >= LOOK_S:
                self.apply_limits(now)
        was_proven = self.pace.is_proven
        is_news = self.pace.learn(wanted.provider_limits or RateLimits(), now)
        self.pace.settle(wanted.correction, wanted.done, now, wanted.answered)
        if is_news or (self.pace.is_proven and not was_proven):
            self.announce()

    def look(
        self, wanted: Reservation, now: float
    ) -> tuple[Grant | None, tuple[CallCost, ...], float]:
        """What the first in the queue gets now: slots, and those of its turn's calls that have
        none yet; freedom until the given moment; while nothing is known, to be the one call that
        goes first; or nothing for these seconds."""
        pace, last_held_by = self.pace, self.slotless[1] if self.slotless else None
        if now - self.applied_at >= LOOK_S:
            self.apply_limits(now)
        if pace.is_proven and pace.is_free and pace.blocked_until <= now:
            return Grant(free_until=now + FREE_S), (), 0.0
        if not pace.is_proven and now - self.canary_at <= CANARY_S:
            return None, (), LOOK_S
        costs = wanted.costs[: self.slots_a_turn(wanted) if pace.is_proven else 1]
        if times := pace.reserve(costs, now):
            self.canary_at, left = times[0], costs[len(times) :]
            held_by = pace.held_by(left[0], now) if left else None
            return Grant(times, held_by=held_by or last_held_by), left, 0.0
        since = self.slotless[0] if self.slotless else now
        self.slotless = since, pace.held_by(costs[0], now)
        return None, (), pace.opens_at(now, costs[0]) - now

    def apply_limits(self, now: float) -> None:
        """Forgets lost members; the others' limits hold (without others the last ones')."""
        self.applied_at = now
        oldest = now - MEMBER_S
        self.heard_at = {name: at for name, at in self.heard_at.items() if at >= oldest}
        self.members = {name: m for name, m in self.members.items() if name in self.heard_at}
        firm = {limits for _, limits, is_firm in self.members.values() if is_firm}
        assumed = {limits for _, limits, is_firm in self.members.values() if not is_firm}
        if self.members:
            lowest = _lowest_limits(firm) if firm else None
            self.pace.set_limits(lowest, _lowest_limits(assumed), now)

    def gather_s(self, wanted: Reservation) -> float:
        """For how long members gather calls, so that all send MESSAGES_PER_S; 0.0: not at all."""
        if self.pace.is_free or self.pace.calls_per_s(wanted.costs) <= MESSAGES_PER_S:
            return 0.0
        return min(LONGEST_GATHER_S, len(self.members) / MESSAGES_PER_S)

    def slots_a_turn(self, wanted: Reservation) -> int:
        """How many slots a member gets before the next one's turn: so few that all who wait have
        had theirs within a horizon. With more at a time, those who ask for one call would wait for
        a round of all the others' chunks. Twice what it sends until it asks again, at most."""
        per_s, gather_s = self.pace.calls_per_s(wanted.costs), self.gather_s(wanted)
        turn = per_s * HORIZON_S / self.n_waiting
        most = LEAST_TURN
        if gather_s:
            most = max(most, int(2 * per_s * gather_s / max(1, len(self.members))))
        return max(1, int(min(turn, most, len(wanted.costs))))

    def share_of(self, wanted: Reservation) -> int | None:
        """A member's part of the calls in flight: an even one over as many members as the run has
        or were seen, the rest to those seen first. Never below one."""
        if self.pace.concurrency is None:
            return None
        seen = list(self.members)
        even, left_over = divmod(self.pace.concurrency, max(wanted.members, len(seen)))
        return max(1, even + (wanted.member in seen[:left_over]))


class Limiter:
    """The paces of all judges of a cluster, near to judge actors or far from them. The lowest firm
    limits of living members hold for all. `hold_s` after a restart nothing is granted, as earlier
    slots may still be in use."""

    def __init__(self, hold_s: float = 0.0, clock: Callable[[], float] = steady_time) -> None:
        self._clock, self._not_before = clock, clock() + hold_s if hold_s else 0.0
        self._judges: dict[str, _Judge] = {}
        self._left_runs: deque[str] = deque(maxlen=100)

    async def reserve(self, wanted: Reservation) -> Grant:
        """At least one slot (waits for one in the horizon), or freedom without a limit."""
        if (judge := self._judges.get(wanted.judge)) is None:
            brought = wanted.limits, wanted.is_firm, self._not_before, wanted.provider_limits
            judge = self._judges[wanted.judge] = _Judge(RatePacer(*brought))
        judge.report(wanted, wanted.run in self._left_runs, self._clock())
        granted, gather_s = Grant(), 0.0
        if wanted.costs:
            gather_s = judge.gather_s(wanted)
            judge.n_waiting += 1
            try:
                async with judge.queue:
                    granted = await self._wait_for_slots(wanted, judge)
                    judge.slotless = None
            finally:
                judge.n_waiting -= 1
                if not judge.n_waiting:
                    judge.slotless = None
        share, now = judge.share_of(wanted), self._clock()
        return granted._replace(share=share, gather_s=gather_s, now=now)

    async def leave(self, run: str) -> None:
        """Ends a run: its limits hold no longer, its reservations end without a slot."""
        self._left_runs.append(run)
        for judge in list(self._judges.values()):
            judge.members = {name: m for name, m in judge.members.items() if m[0] != run}
            judge.apply_limits(self._clock())
            judge.announce()

    async def _wait_for_slots(self, wanted: Reservation, judge: _Judge) -> Grant:
        """The first in the queue waits for its slots, or for freedom."""
        while wanted.run not in self._left_runs:
            granted, left, wait_s = judge.look(wanted, self._clock())
            if granted is None:
                await judge.wait_for_change(min(LOOK_S, max(GATHER_S, wait_s)))
                continue
            if left:  # or who is the last to find some would always get less than the others
                await asyncio.sleep(GATHER_S)
                times = granted.times + judge.pace.reserve(left, self._clock())
                granted = granted._replace(times=times)
            return granted
        return Grant()

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        """Tells of a 429, and of the calls that since the last report have ended or outlived it
        (those that are refused later are taken off again); until when nobody may ask the judge."""
        if (state := self._judges.get(judge)) is None:
            return 0.0
        now = self._clock()
        state.pace.settle(NOTHING, done, now)
        state.pace.throttled(sent_at, retry_after_s, now)
        state.announce()
        return state.pace.blocked_until

    async def pause(self, judge: str, known_until: float, member: str = "") -> float:
        """Until when nobody may ask a judge, as soon as that is later than what the member knows;
        the same after a while. A member that waits for slots is heard of by it."""
        deadline = self._clock() + MEMBER_S / 2
        while (left_s := deadline - self._clock()) > 0:
            if (state := self._judges.get(judge)) is None:
                await asyncio.sleep(min(LOOK_S, left_s))  # its first reservation is on its way
                continue
            if member in state.members:
                state.heard_at[member] = self._clock()
            if (until := state.pace.blocked_until) > known_until:
                return until
            await state.wait_for_change(left_s)
        return known_until

    async def standing(self, judge: str) -> StallStatus:
        """Since when a judge's calls are refused, or wait for a slot."""
        if (state := self._judges.get(judge)) is None:
            return StallStatus()
        return StallStatus(state.pace.refused_since, *(state.slotless or (None, None)))

    def limits_by_judge(self) -> Mapping[str, RateLimits]:
        """The limits of every judge so far."""
        return {name: judge.pace.limits() for name, judge in self._judges.items()}
