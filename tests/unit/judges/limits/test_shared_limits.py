"""Limiters of several clusters on one account: together they keep its limits, use them, and know
of each other's limits, refusals and members."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.limiter_member import (
    AdmissionOptions,
    LimiterMember,
    RunHooks,
    SlotQueue,
)
from memray_eval.judges.limits.rate_limiter import Limiter, Reservation, _Judge
from memray_eval.judges.limits.rate_pacer import (
    HORIZON_S,
    CallCost,
    LateSlot,
    RatePacer,
    SlidingWindow,
)
from tests.unit.judges.limits.test_rate_limiter import (
    CALL,
    EPOCH,
    Slot,
    clock,
    most,
    one_request,
    run,
)

T = TypeVar("T")
JUDGE, CALLS = "openai/m#account", 25
PLACES, LATENCY_S = 64, 0.2  # the default max_in_flight
FIRM = RateLimits(requests_per_min=600)


class Board:
    """SharedLimits in this process: each swap takes a while, and loses to what came between."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._chance, self.n_lost = random.Random(1), 0

    async def swap(self, judge: str, change: Callable[[bytes | None], tuple[T, bytes]]) -> T:
        while True:
            before = self._kept.get(judge)
            changed, after = change(before)
            await asyncio.sleep(0.01 * self._chance.random())
            if self._kept.get(judge) is before:
                self._kept[judge] = after
                return changed
            self.n_lost += 1

    async def close(self) -> None: ...


def wanted(member: str, limits: RateLimits = FIRM, calls: int = CALLS) -> Reservation:
    return Reservation(JUDGE, member, (CALL,) * calls, limits, is_firm=True, run=f"run of {member}")


def clusters(board: Board, n: int = 2) -> list[Limiter]:
    return [Limiter(clock=clock, shared=board) for _ in range(n)]


async def saturate(limiter: Limiter, member: str, until: float, limits: RateLimits) -> list[Slot]:
    """When the calls of an actor go that always has PLACES of them, each of LATENCY_S."""
    options = AdmissionOptions(member=member, run=member, limits=limits, is_firm=True)
    hooks = RunHooks(clock=clock)
    queue = SlotQueue(LimiterMember(JUDGE, limiter, options, hooks), hooks, int, lambda grant: None)
    slots = list[Slot]()

    async def ask() -> None:
        while (at := await queue.wait(CALL)) < until:
            slots.append(Slot(at))
            await asyncio.sleep(LATENCY_S)

    asking = [asyncio.create_task(ask()) for _ in range(PLACES)]
    await asyncio.sleep(until - clock())
    queue.close()
    for task in asking:
        task.cancel()
    return slots


def saturated(n: int, limits: RateLimits, seconds: float) -> tuple[list[list[Slot]], Board]:
    """What each of `n` clusters sends in this time."""
    board = Board()

    async def main() -> list[list[Slot]]:
        asking = (
            saturate(limiter, f"member {number}", EPOCH + seconds, limits)
            for number, limiter in enumerate(clusters(board, n))
        )
        return await asyncio.gather(*asking)

    return run(main()), board


@pytest.mark.heavy
@pytest.mark.parametrize(("n", "per_min"), [(2, 600), (2, 3000)])
def test_together_they_pass_no_limit_and_use_it(n: int, per_min: int) -> None:
    by_cluster, board = saturated(n, RateLimits(requests_per_min=per_min), 80.0)
    slots = [slot for own in by_cluster for slot in own]
    assert most(slots, one_request) <= per_min
    steady = [sum(EPOCH + 20 <= slot.at < EPOCH + 80 for slot in own) for own in by_cluster]
    assert sum(steady) >= 0.98 * per_min
    assert min(steady) >= 0.5 * max(steady)
    assert board.n_lost > 0


@pytest.mark.heavy
def test_the_lowest_limit_of_all_holds_until_its_run_leaves() -> None:
    board = Board()

    async def main() -> list[float | None]:
        low, high = clusters(board)
        await low.reserve(wanted("low", RateLimits(requests_per_min=60), 1))
        await high.reserve(wanted("high", FIRM, 1))
        known = [high.limits_by_judge()[JUDGE].requests_per_min]
        await low.leave("run of low")
        await high.reserve(wanted("high", FIRM, 1))
        return [*known, high.limits_by_judge()[JUDGE].requests_per_min]

    assert run(main()) == [60, 600]


def test_a_refusal_in_one_cluster_holds_up_the_others() -> None:
    async def main() -> tuple[float, float]:
        refused, other = clusters(Board())
        for limiter, member in ((refused, "a"), (other, "b")):
            await limiter.reserve(wanted(member, RateLimits(), 1)._replace(answered=1, done=1))
        watching = asyncio.create_task(other.pause(JUDGE, 0.0, "b"))
        for _ in range(60):  # of few calls a share is no chance any more
            until = await refused.throttled(JUDGE, clock(), 30.0, 0)
        times = (await other.reserve(wanted("b", RateLimits(), 1))).times
        assert await watching == until
        return until, times[0]

    until, at = run(main())
    assert at >= until > EPOCH + 29


def test_calls_in_flight_are_shared_out_over_all_clusters() -> None:
    async def main() -> list[int | None]:
        limiters = clusters(Board())
        limits = RateLimits(concurrency=10, requests_per_min=6000)
        for n in (0, 1, 0):
            grant = await limiters[n].reserve(wanted(f"member {n}", limits, 1))
        return [grant.share]

    assert run(main()) == [5]


def test_a_judge_that_was_forgotten_there_goes_on_from_what_a_limiter_knows() -> None:
    board = Board()

    async def main() -> tuple[float, float]:
        (limiter,) = clusters(board, 1)
        before = (await limiter.reserve(wanted("a"))).times
        board._kept.clear()
        after = (await limiter.reserve(wanted("a"))).times
        return before[-1], after[0]

    before, after = run(main())
    assert after - before == pytest.approx(60.7 / 600, abs=0.01)


def test_a_pace_is_the_same_after_it_was_dumped() -> None:
    """Of everything that a pace may hold, and for each call after."""
    pace = RatePacer(RateLimits(tokens_per_min=90_000, concurrency=3), False, EPOCH)
    for second in range(90):
        now = EPOCH + second
        times = pace.reserve([CALL] * 20, now)
        pace.settle(CallCost(50.0, -20.0, 10.0), 4, now, answered=3)
        pace.correct([LateSlot(at, CALL, None) for at in times[-1:]], now)
        if second == 40:
            pace.throttled(now - 1, 2.0, now)
            pace.learn(RateLimits(requests_per_min=700), now)
    kept = through_json(pace)
    assert kept.dump() == pace.dump()
    assert kept.reserve([CALL] * 20, EPOCH + 95) == pace.reserve([CALL] * 20, EPOCH + 95)


def through_json(pace: RatePacer) -> RatePacer:
    there, here = _Judge("j", pace, EPOCH), _Judge("j", RatePacer(RateLimits(), False), EPOCH)
    here.load(there.dump())
    return here.pace


@pytest.mark.parametrize(("calls_per_s", "most_kept"), [(2, 150), (50, 1300), (500, 6700)])
def test_a_window_that_is_dumped_forgets_no_call_and_frees_none_sooner(
    calls_per_s: int, most_kept: int
) -> None:
    window, per_min = SlidingWindow(), {"requests_per_min": 60.0 * calls_per_s}
    for n in range(60 * calls_per_s):
        window.add(EPOCH + n / calls_per_s, 1, CALL)
    kept = SlidingWindow.load(window.dump())
    assert len(kept.dump()) <= most_kept
    for more in (1, calls_per_s, 30 * calls_per_s):
        exact, rough = (w.room_at(CALL, per_min, more) for w in (window, kept))
        assert exact <= rough <= exact + 0.1
    kept.forget(EPOCH + 60 + HORIZON_S + 61)
    assert kept.dump() == []
