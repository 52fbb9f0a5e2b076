"""A thousand judge actors on the limiter, in free time: what is let go in any minute, how evenly,
and how much of the limit.

    python -m tests.bench.many_judges [--members 1000] [--minutes 10] [--per-min 5000] [--seed 1]

Simulated are the members (each with up to 64 calls under way and always more to ask), their calls,
what they cost and how late they are sent; the limiter is the real one, on a clock that stands still
but for the events. Four stories: all go on to the end; the same where tokens bind; a tenth dies in
the middle with slots in hand and the limiter restarts later; 50 members that ask once in a while
are among others that always do. Nobody refuses a call: that no limit is passed is counted here."""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.limiter_member import CHUNK
from memray_eval.judges.limits.rate_limiter import Grant, Limiter, Reservation
from memray_eval.judges.limits.rate_pacer import HORIZON_S, LATE_S, CallCost
from tests.unit.judges.limits.test_rate_limiter import EPOCH, clock, run

MOST_UNDER_WAY = 64  # calls of one member that hold a slot or are being answered
CALL_S = 3.0
SETTLED_S = 60.0  # figures are of what comes after it: by then all members have come up


class Sent(NamedTuple):
    """A call that was sent: when, by whom, and its tokens."""

    at: float
    member: str
    tokens: float


class Told(NamedTuple):
    """What came of a simulation. `granted` slots, used or not; `waits` are those of the members
    that ask once in a while."""

    granted: list[Sent]
    sent: list[Sent]
    waits: list[float]
    reservations: int
    steady: tuple[str, ...]  # the members that always ask and live to the end


class Fleet:
    """Members at work on one limiter, which may be restarted: what was asked of the one before is
    asked again."""

    def __init__(self, limits: RateLimits, members: int, mean_tokens: float, seed: int) -> None:
        self.limits, self.members, self.mean_tokens = limits, members, mean_tokens
        self.chance = random.Random(seed)
        self.granted, self.sent, self.waits = list[Sent](), list[Sent](), list[float]()
        self.reservations = 0
        self._limiter, self._asking = Limiter(clock=clock), set[asyncio.Task[Grant]]()

    def restart(self) -> None:
        """The limiter forgets all it knew; grants on their way are lost."""
        self._limiter = Limiter(HORIZON_S, clock)
        for asking in list(self._asking):
            asking.cancel()

    async def reserve(self, member: str, costs: Sequence[CallCost]) -> tuple[float, ...]:
        wanted = Reservation(
            "judge", member, tuple(costs), self.limits, is_firm=True, members=self.members
        )
        while True:
            self.reservations += 1
            asking = asyncio.create_task(self._limiter.reserve(wanted))
            self._asking.add(asking)
            try:
                times = (await asking).times
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                continue  # it was the limiter that died
            finally:
                self._asking.discard(asking)
            self.granted += [
                Sent(at, member, sum(cost)) for at, cost in zip(times, costs, strict=False)
            ]
            return times

    def costs(self, calls: int) -> list[CallCost]:
        """Calls of any size, a few of them large."""
        sizes = [self.mean_tokens * self.chance.expovariate(1.0) for _ in range(calls)]
        return [CallCost(0.75 * tokens, 0.25 * tokens) for tokens in sizes]

    async def call(self, member: str, at: float, cost: CallCost) -> None:
        """One call in its slot, a little late."""
        await asyncio.sleep(max(0.0, at - clock()) + LATE_S * self.chance.random() ** 4)
        self.sent.append(Sent(clock(), member, sum(cost)))
        await asyncio.sleep(CALL_S * self.chance.lognormvariate(0.0, 0.4))


async def always_asks(fleet: Fleet, member: str) -> None:
    """What a gate does with more calls than it may send: slots for as many as find a place under
    way."""
    await asyncio.sleep(fleet.chance.uniform(0.0, 10.0))  # actors come up one after another
    under_way = set[asyncio.Task[None]]()
    try:
        while True:
            while len(under_way) >= MOST_UNDER_WAY:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            under_way = {task for task in under_way if not task.done()}
            costs = fleet.costs(min(CHUNK, MOST_UNDER_WAY - len(under_way)))
            times = await fleet.reserve(member, costs)
            under_way |= {
                asyncio.create_task(fleet.call(member, at, cost))
                for at, cost in zip(times, costs, strict=False)
            }
    finally:
        for task in under_way:
            task.cancel()


async def asks_now_and_then(fleet: Fleet, member: str, every_s: float) -> None:
    await asyncio.sleep(fleet.chance.uniform(0.0, every_s))
    while True:
        (cost,), asked_at = fleet.costs(1), clock()
        (at,) = await fleet.reserve(member, [cost])
        fleet.waits.append(at - asked_at)
        await fleet.call(member, at, cost)
        await asyncio.sleep(fleet.chance.uniform(0.0, 2 * every_s))


def simulated(
    members: int,
    minutes: float,
    limits: RateLimits,
    *,
    mean_tokens: float = 1000.0,
    seed: int = 1,
    light: int = 0,
    light_every_s: float = 60.0,
    dying: int = 0,
    restarts: bool = False,
) -> Told:
    """So many members for so long. `light` of them ask about every `light_every_s` only; the last
    `dying` of the others die halfway, in the same moment, and the limiter restarts after two thirds
    of the time."""
    steady = [str(number) for number in range(members - light)]
    fleet = Fleet(limits, members, mean_tokens, seed)

    async def main() -> None:
        tasks = {name: asyncio.create_task(always_asks(fleet, name)) for name in steady}
        lights = [
            asyncio.create_task(asks_now_and_then(fleet, f"light {n}", light_every_s))
            for n in range(light)
        ]
        await asyncio.sleep(30 * minutes)
        for name in steady[len(steady) - dying :]:
            tasks[name].cancel()
        await asyncio.sleep(10 * minutes)
        if restarts:
            fleet.restart()
        await asyncio.sleep(20 * minutes)
        for task in (*tasks.values(), *lights):
            task.cancel()
        ended = await asyncio.gather(*tasks.values(), *lights, return_exceptions=True)
        for failure in ended:
            if not isinstance(failure, asyncio.CancelledError):
                raise AssertionError("a member failed") from failure

    run(main())
    return Told(
        fleet.granted,
        fleet.sent,
        fleet.waits,
        fleet.reservations,
        tuple(steady[: len(steady) - dying]),
    )


def most_in(sent: Iterable[Sent], span_s: float, tokens: bool = False) -> float:
    """The most calls (or tokens) of any stretch of so many seconds."""
    inside, total, largest = deque[tuple[float, float]](), 0.0, 0.0
    for one in sorted(sent):
        amount = one.tokens if tokens else 1.0
        inside.append((one.at, amount))
        total += amount
        while inside[0][0] <= one.at - span_s:
            total -= inside.popleft()[1]
        largest = max(largest, total)
    return largest


def jain(shares: Sequence[float]) -> float:
    """Jain, Chiu and Hawe's index of fairness (1984): 1 where all have the same, 1/n where one has
    all."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def shares(told: Told, minutes: float) -> list[int]:
    """What each member that always asks, and lived, has sent since all were up."""
    counts = Counter(
        one.member for one in told.sent if one.at >= EPOCH + min(SETTLED_S, 15 * minutes)
    )
    return [counts[name] for name in told.steady]


def use(told: Told, minutes: float, per_min: float, tokens: bool = False) -> float:
    """The share of a limit that was used since all were up."""
    start = EPOCH + min(SETTLED_S, 15 * minutes)
    used = sum(one.tokens if tokens else 1.0 for one in told.sent if one.at >= start)
    return used / (per_min * (minutes - (start - EPOCH) / 60.0))


def print_story(name: str, told: Told, minutes: float, limits: RateLimits, took_s: float) -> None:
    per_min, tokens = limits.requests_per_min or math.inf, limits.tokens_per_min or math.inf
    got, waits = sorted(shares(told, minutes)), sorted(told.waits)
    by_calls, by_tokens = use(told, minutes, per_min), use(told, minutes, tokens, tokens=True)
    print(f"{name} ({took_s:.0f} s of this machine)")
    print(
        f"  most calls in any 60 s: {most_in(told.sent, 60.0):,.0f} of {per_min:,.0f}; "
        f"{by_calls:.3f} of them used"
    )
    print(
        f"  most tokens in any 60 s: {most_in(told.sent, 60.0, tokens=True):,.0f} of "
        f"{tokens:,.0f}; {by_tokens:.3f} used"
    )
    print(
        f"  Jain's index of {len(got):,} members: {jain(got):.4f}; {got[0]} to {got[-1]} calls each"
    )
    print(
        f"  {len(told.granted):,} slots in {told.reservations:,} reservations, {len(told.sent):,} "
        "used"
    )
    if waits:
        median = waits[len(waits) // 2]
        print(
            f"  {len(waits):,} calls of light members: {median:.1f} s to their slot (median), "
            f"{waits[-1]:.1f} s (most)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--per-min", type=float, default=5000.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    limits = RateLimits(requests_per_min=options.per_min, tokens_per_min=1100.0 * options.per_min)
    stories: dict[str, dict[str, Any]] = {
        "all to the end": {},
        "all to the end, tokens bind": {"mean_tokens": 2000.0},
        "a tenth dies, the limiter restarts": {"dying": options.members // 10, "restarts": True},
        "50 light members among the others": {"light": min(50, options.members // 4)},
    }
    for name, changes in stories.items():
        started = time.perf_counter()
        told = simulated(options.members, options.minutes, limits, seed=options.seed, **changes)
        print_story(name, told, options.minutes, limits, time.perf_counter() - started)


if __name__ == "__main__":
    main()
