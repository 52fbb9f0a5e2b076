"""The limits of a provider hold in every minute, whoever asks how; what they allow is used; what is
not known is found."""

import asyncio
import math
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.rate_limiter import (
    CANARY_S,
    FREE_S,
    MEMBER_S,
    Grant,
    Limiter,
    Reservation,
)
from memray_eval.judges.limits.rate_pacer import (
    FIRST_FOUND_PER_MIN,
    HORIZON_S,
    LATE_S,
    WINDOW_S,
    CallCost,
    RatePacer,
)

pytestmark = pytest.mark.heavy  # simulates many thousands of calls

T = TypeVar("T")
EPOCH = 1_700_000_000.0
TICK = 1e-6  # below what an epoch time resolves
CALL = CallCost(1000, 300)
NO_LIMITS = RateLimits()


class _NoWait(selectors.DefaultSelector):
    """Where a loop would wait for its next timer, time passes at once."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that will never happen"
            self.passed_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A real event loop whose time is free: hours take as long as what happens in them."""

    def __init__(self) -> None:
        self._virtual = _NoWait()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed_s


LOOP = VirtualLoop


def clock() -> float:
    """The time of the virtual loop that runs, as an epoch time."""
    return EPOCH + asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Slot(NamedTuple):
    at: float
    cost: CallCost = CALL


def most(
    slots: Iterable[Slot], amount: Callable[[CallCost], float], span_s: float = 60.0 + LATE_S
) -> float:
    """The largest sum over the slots of any stretch: that of 60.5 s bounds what is sent in any 60
    s, however late each is."""
    inside, total, largest = deque[tuple[float, float]](), 0.0, 0.0
    for slot in sorted(slots):
        inside.append((slot.at, amount(slot.cost)))
        total += inside[-1][1]
        while inside[0][0] < slot.at - span_s - TICK:
            total -= inside.popleft()[1]
        largest = max(largest, total)
    return largest


def one_request(_: CallCost) -> float:
    return 1.0


def saturate(
    pace: RatePacer, costs: Iterator[CallCost], until: float, now: float = EPOCH, chunk: int = 25
) -> list[Slot]:
    """The slots up to a time, asked for as soon as there are some."""
    slots: list[Slot] = []
    wanted = [next(costs) for _ in range(chunk)]
    while not slots or slots[-1].at < until:
        now = max(now, pace.opens_at(now, wanted[0]) + TICK)
        times = pace.reserve(wanted, now)
        assert times, "opens_at said that there is room"
        slots += map(Slot, times, wanted)
        wanted = wanted[len(times) :] + [next(costs) for _ in times]
    return [slot for slot in slots if slot.at < until]


def of_any_size(largest: float, seed: int) -> Iterator[CallCost]:
    """Costs of which a few are as large as can be, and most are small."""
    chance = random.Random(seed)
    while True:
        tokens = largest * chance.random() ** 3
        yield CallCost(0.7 * tokens, 0.3 * tokens)


STEP = st.tuples(
    st.sampled_from([0.0, 0.001, 0.1, 1.0, 4.0, 20.0, 70.0]),  # seconds before it
    st.integers(1, 60),  # calls
)


LIMITS = st.builds(
    RateLimits,
    requests_per_min=st.none() | st.sampled_from([1, 2, 7, 60, 61, 300]),
    tokens_per_min=st.none() | st.sampled_from([3e4, 1e5]),
    input_tokens_per_min=st.none() | st.just(3e4),
    output_tokens_per_min=st.none() | st.sampled_from([8e3, 5e4]),
)


@given(
    limits=LIMITS,
    steps=st.lists(STEP, min_size=20, max_size=100),
    largest=st.sampled_from([100, 2000, 20_000]),
    seed=st.integers(),
)
def test_no_stretch_has_more_than_the_limits_however_calls_are_asked_for(
    limits: RateLimits, steps: list[tuple[float, int]], largest: float, seed: int
) -> None:
    pace, now, slots = RatePacer(limits, is_firm=True), EPOCH, list[Slot]()
    costs = of_any_size(largest, seed)
    for pause_s, calls in steps:
        now += pause_s
        wanted = [next(costs) for _ in range(calls)]
        times = pace.reserve(wanted, now)
        assert all(now <= at <= now + HORIZON_S for at in times), "beyond the horizon"
        slots += map(Slot, times, wanted)
    assert [slot.at for slot in slots] == sorted(slot.at for slot in slots)
    for lane, limit in limits.model_dump(exclude_none=True).items():
        assert most(slots, lambda cost, lane=lane: cost.in_lane(lane)) <= limit * (1 + TICK)


def test_a_call_that_is_larger_than_the_limit_goes_alone() -> None:
    pace = RatePacer(RateLimits(tokens_per_min=1000), is_firm=True)
    slots = saturate(pace, repeat(CALL), EPOCH + 600)
    assert [later.at - earlier.at for earlier, later in pairwise(slots)] == pytest.approx(
        [1.3 * WINDOW_S] * (len(slots) - 1), abs=0.01
    )


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("limits", "largest", "at_least"),
    [
        *((RateLimits(requests_per_min=per_min), 1000, 0.98) for per_min in (50, 600, 3000)),
        *(
            (RateLimits(tokens_per_min=60_000), largest, at_least)
            for largest, at_least in ((100, 0.98), (500, 0.98), (5000, 0.93), (20_000, 0.7))
        ),
    ],
)
def test_all_but_two_percent_of_a_limit_is_used_by_calls_that_are_small_beside_it(
    limits: RateLimits, largest: float, at_least: float
) -> None:
    """Large ones leave gaps that nothing fits into: a minute that holds no more of them is not
    full."""
    slots = saturate(RatePacer(limits, True), of_any_size(largest, seed=1), EPOCH + 600)
    ((lane, limit),) = limits.model_dump(exclude_none=True).items()
    assert sum(slot.cost.in_lane(lane) for slot in slots) >= at_least * 10 * limit


def settled_slots(
    pace: RatePacer, actual_of: Callable[[CallCost], CallCost], seconds: float
) -> list[Slot]:
    """Slots with what their calls, of a second each, really took. Ten times a second what has ended
    is settled, and all is asked for that is to be had."""
    slots, under_way = list[Slot](), deque[Slot]()
    for tick in range(int(10 * seconds)):
        now, correction, done = EPOCH + tick / 10, CallCost(), 0
        while under_way and under_way[0].at + 1.0 <= now:
            correction = correction.plus(under_way.popleft().cost.minus(CALL))
            done += 1
        pace.settle(correction, done, now)
        while times := pace.reserve([CALL] * 25, now):
            granted = [Slot(at, actual_of(CALL)) for at in times]
            assert not slots or times[0] >= slots[-1].at, "in order, also after refunds"
            slots += granted
            under_way += granted
    return slots


@pytest.mark.parametrize(
    ("factor", "excess"), [(0.5, 0.02), (0.8, 0.02), (1.25, 0.02), (2.0, 0.02), (None, 0.07)]
)
def test_wrong_estimates_are_made_good_by_settling(factor: float | None, excess: float) -> None:
    """Always wrong in one way, or each call in its own, of which large ones may come together."""
    limit, chance = 300_000, random.Random(1)
    pace = RatePacer(RateLimits(tokens_per_min=limit), is_firm=True)

    def actual_of(estimate: CallCost) -> CallCost:
        wrong = factor or chance.choice([0.5, 2.0])
        return CallCost(estimate.input_tokens * wrong, estimate.output_tokens * wrong)

    later = [slot for slot in settled_slots(pace, actual_of, 600) if slot.at >= EPOCH + 60]
    assert most(later, sum) <= (1 + excess) * limit
    assert sum(sum(slot.cost) for slot in later) >= 0.95 * 9 * limit


def overrun(pace: RatePacer, sent_at: float, retry_after_s: float | None, now: float) -> int:
    """429s until they are taken for a sign of the limit; how many that takes."""
    for n_throttles in range(1, 100):
        pace.throttled(sent_at, retry_after_s, now)
        if pace.blocked_until > now:
            return n_throttles
    raise AssertionError("429s without end are no sign")


@given(retry_after_s=st.none() | st.floats(0, 3) | st.just(20.0))
def test_after_429s_no_slot_that_was_given_at_the_old_pace_is_used(
    retry_after_s: float | None,
) -> None:
    """Members drop what is before the pause: the old slots reach as far as the horizon."""
    pace = RatePacer(RateLimits(requests_per_min=600), is_firm=True)
    slots = saturate(pace, repeat(CALL), EPOCH + 15)
    overrun(pace, sent_at=EPOCH + 10, retry_after_s=retry_after_s, now=EPOCH + 10)
    assert sum(slot.at > pace.blocked_until for slot in slots) == 0
    pause_s = 1.0 if retry_after_s is None else retry_after_s
    assert EPOCH + 10 + pause_s <= pace.blocked_until
    assert pace.blocked_until <= EPOCH + 10 + max(pause_s, HORIZON_S + 0.1)
    assert pause_s < 20.0 or pace.reserve([CALL], EPOCH + 11) == ()
    assert saturate(pace, repeat(CALL), EPOCH + 40, now=EPOCH + 11)[0].at >= pace.blocked_until


def rate_per_min(pace: RatePacer, start: float, seconds: float) -> float:
    slots = saturate(pace, repeat(CALL), start + seconds, now=start - HORIZON_S)
    return sum(slot.at >= start for slot in slots) * 60 / seconds


def throttled_pace(times: Sequence[float]) -> RatePacer:
    """After calls that were sent at these times and got a 429 at once, at 600 a minute."""
    pace = RatePacer(RateLimits(requests_per_min=600), is_firm=True)
    for sent_at in times:
        pace.throttled(sent_at, retry_after_s=1.0, now=max(times))
    return pace


def test_a_burst_of_429s_halves_the_pace_once_and_it_recovers_in_half_a_minute() -> None:
    pace = throttled_pace([EPOCH - 1 - call / 100 for call in range(64)])
    assert rate_per_min(pace, EPOCH, 4) == pytest.approx(300, rel=0.15)
    assert rate_per_min(pace, EPOCH + 14, 2) == pytest.approx(450, rel=0.1)
    assert rate_per_min(pace, EPOCH + 31, 20) == pytest.approx(600, rel=0.03)


def test_a_429_of_a_call_that_was_sent_after_the_cut_halves_the_pace_again() -> None:
    pace = throttled_pace([EPOCH - 1] * 20)
    pace.throttled(sent_at=EPOCH + 0.5, retry_after_s=1.0, now=EPOCH + 0.5)
    assert rate_per_min(pace, EPOCH + 1.5, 4) == pytest.approx(150 + 20, rel=0.15)
    assert rate_per_min(pace, EPOCH + 48, 20) == pytest.approx(600, rel=0.03)


def test_a_row_of_cuts_is_forgotten_within_a_minute() -> None:
    """Not as slowly as the pace of its deepest point would let the next call go."""
    pace = RatePacer(RateLimits(requests_per_min=30), is_firm=True)
    for call in range(20):
        pace.throttled(EPOCH + call, retry_after_s=0.0, now=EPOCH + call)
    slots = saturate(pace, repeat(CALL), EPOCH + 120, now=EPOCH + 20)
    early = sum(slot.at < EPOCH + 80 for slot in slots)
    assert early == pytest.approx(15, abs=2), "half of it in the minute"
    assert len(slots) - early == pytest.approx(20, abs=1)


def test_a_limit_that_is_learnt_holds_for_what_was_planned_before() -> None:
    """Also in the minute that it is learnt in: what was sent at the old pace counts."""
    for before, after in ((600, 60), (60, 600)):
        pace = RatePacer(RateLimits(requests_per_min=before), is_firm=False)
        slots = saturate(pace, repeat(CALL), EPOCH + 30)
        pace.learn(RateLimits(requests_per_min=after), EPOCH + 30)
        later = saturate(pace, repeat(CALL), EPOCH + 300, now=EPOCH + 30)
        assert most(later, one_request) <= after
        if after < before:
            assert later[0].at >= slots[-1].at + 50, "the minute is full already"
        else:
            assert later[0].at <= EPOCH + 31


@pytest.mark.heavy
@given(
    per_min=st.sampled_from([1, 3, 60, 601]), killed_s=st.floats(0.5, 150),
    down_s=st.sampled_from([0.0, 0.3, 4.0]),
    tokens=st.booleans(),
)  # fmt: skip
def test_slots_of_a_limiter_that_was_killed_and_of_the_next_stay_within_the_limit_together(
    per_min: int, killed_s: float, down_s: float, tokens: bool
) -> None:
    lane, size = ("tokens_per_min", 1300) if tokens else ("requests_per_min", 1)
    limits = RateLimits(**{lane: size * per_min})
    before = saturate(RatePacer(limits, is_firm=True), repeat(CALL), EPOCH + killed_s + HORIZON_S)
    restart = EPOCH + killed_s + down_s
    after = saturate(
        RatePacer(limits, True, restart + HORIZON_S), repeat(CALL), restart + 200, now=restart
    )
    assert after == [] or after[0].at >= restart + HORIZON_S
    one_call = 1 if tokens else 0  # how large the last call before the kill was is not known
    assert most(chain(before, after), one_request) <= per_min + one_call


def reservation(
    *,
    calls: int = 25,
    member: str = "a",
    limits: RateLimits = NO_LIMITS,
    firm: bool = False,
    done: int = 0,
    **more: Any,
) -> Reservation:
    return Reservation("judge", member, (CALL,) * calls, limits, firm, done=done, **more)


async def within(seconds: float, waiting: Coroutine[Any, Any, T]) -> T | None:
    """None when it takes longer."""
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        return None


async def test_while_nothing_is_known_one_call_goes_first() -> None:
    limiter = Limiter(clock=clock)
    first = await limiter.reserve(reservation(member="a"))
    assert first == Grant((clock(),), now=clock())
    second = asyncio.create_task(limiter.reserve(reservation(member="b")))
    assert await within(CANARY_S / 2, asyncio.shield(second)) is None, "the first has not come back"
    await limiter.reserve(reservation(member="a", calls=0, done=1, answered=1))
    assert await within(TICK, second) == Grant(free_until=clock() + FREE_S, now=clock())


@pytest.mark.parametrize("is_throttled", [False, True])
async def test_headers_and_429s_prove_a_judge_too(is_throttled: bool) -> None:
    limiter, limits = Limiter(clock=clock), RateLimits(requests_per_min=60)
    assert len((await limiter.reserve(reservation(limits=limits))).times) == 1
    second = asyncio.create_task(limiter.reserve(reservation(limits=limits)))
    await asyncio.sleep(2)
    assert not second.done()
    if is_throttled:
        paused_until = await limiter.throttled("judge", clock() - 2, 3.0, done=0)
        assert paused_until <= clock(), "one is no reason for a pause"
    else:
        stated = RateLimits(requests_per_min=600)
        await limiter.reserve(reservation(calls=0, limits=limits, provider_limits=stated))
    times = (await second).times
    assert len(times) >= (1 if is_throttled else 25)
    assert times[0] >= EPOCH + 2
    firm = await Limiter(clock=clock).reserve(reservation(limits=limits, firm=True))
    assert len(firm.times) > 1, "what the user says needs no proof"


async def test_a_first_call_that_hangs_is_followed_by_another() -> None:
    limiter = Limiter(clock=clock)
    grants = [await limiter.reserve(reservation()) for _ in range(4)]
    times = [at - EPOCH for grant in grants for at in grant.times]
    assert times == pytest.approx([0, CANARY_S, 2 * CANARY_S, 3 * CANARY_S], abs=3.0)


async def test_the_first_call_keeps_the_limits_that_are_assumed() -> None:
    limiter = Limiter(clock=clock)
    times = [
        (await limiter.reserve(reservation(limits=RateLimits(requests_per_min=1)))).times[0]
        for _ in range(3)
    ]
    assert most(map(Slot, times), one_request) == 1


async def share_of(
    limiter: Limiter, member: str, limits: RateLimits, judge: str = "judge", members: int = 1
) -> int | None:
    wanted = reservation(member=member, calls=0, limits=limits, members=members)
    return (await limiter.reserve(wanted._replace(judge=judge))).share


@given(concurrency=st.integers(1, 300), members=st.integers(1, 300), is_told=st.booleans())
def test_shares_of_the_calls_in_flight_add_up_to_what_is_allowed(
    concurrency: int, members: int, is_told: bool
) -> None:
    """Said is how many there are; else the second round knows. More members than places take one
    each."""

    async def main() -> list[int]:
        limiter, limits = Limiter(clock=clock), RateLimits(concurrency=concurrency)
        for _ in range(2):
            shares = [
                await share_of(limiter, str(number), limits, members=members if is_told else 1)
                for number in range(members)
            ]
        assert await share_of(limiter, "0", NO_LIMITS, judge="other") is None
        return [share for share in shares if share is not None]

    shares = run(main())
    assert sum(shares) == max(concurrency, members)
    assert max(shares) - min(shares) <= 1


async def test_a_member_that_is_gone_leaves_its_share_to_the_others() -> None:
    limiter, shares = Limiter(clock=clock), list[int | None]()
    for at_s, member in ((0, "a"), (0, "b"), (30, "a"), (40, "a"), (61, "a")):
        await asyncio.sleep(EPOCH + at_s - clock())
        shares.append(await share_of(limiter, member, RateLimits(concurrency=10)))
    assert shares == [10, 5, 5, 5, 10]


@pytest.mark.parametrize("firm", [False, True])
@pytest.mark.parametrize("hold_s", [0.5, HORIZON_S, 8.0])
async def test_after_a_restart_nothing_is_granted_for_a_while_and_limits_come_with_reservations(
    hold_s: float, firm: bool
) -> None:
    limiter, limits = Limiter(hold_s, clock), RateLimits(requests_per_min=60)
    wanted = reservation(limits=limits, firm=firm, done=1, answered=1)
    times = [at for _ in range(20) for at in (await limiter.reserve(wanted)).times]
    assert limiter.limits_by_judge() == {"judge": limits}
    assert times[0] >= EPOCH + hold_s
    assert times[0] <= EPOCH + hold_s + 1.1
    assert {round(later - earlier, 2) for earlier, later in pairwise(times)} == {1.01}, "no burst"


async def test_a_pause_is_heard_by_all_who_wait_for_one() -> None:
    limiter = Limiter(clock=clock)
    await limiter.reserve(reservation(done=1, answered=1))
    waiting = [asyncio.create_task(limiter.pause("judge", 0.0)) for _ in range(3)]
    await asyncio.sleep(5)
    assert await limiter.throttled("judge", clock() - 1, 7.0, done=0) <= clock()
    assert not any(task.done() for task in waiting), "one is none"
    for _ in range(20):
        paused_until = await limiter.throttled("judge", clock() - 1, 7.0, done=0)
    assert paused_until == EPOCH + 12
    assert await within(TICK, asyncio.gather(*waiting)) == [EPOCH + 12] * 3
    assert await limiter.pause("judge", EPOCH + 11) == EPOCH + 12, "it knows of an earlier one only"
    again = asyncio.create_task(limiter.pause("judge", EPOCH + 12))
    await asyncio.sleep(29)
    assert not again.done()
    assert await within(1.5, again) == EPOCH + 12, "and one that asks on and on"


async def test_judges_do_not_wait_for_each_other() -> None:
    limiter = Limiter(clock=clock)
    slow = reservation(limits=RateLimits(requests_per_min=1), firm=True)
    await limiter.reserve(slow)
    waiting = asyncio.create_task(limiter.reserve(slow))
    other = slow._replace(judge="other", limits=RateLimits(requests_per_min=600))
    assert await within(TICK, limiter.reserve(other)) is not None
    assert not waiting.done()
    assert (await waiting).times[0] == pytest.approx(EPOCH + WINDOW_S, abs=0.01)


@pytest.mark.parametrize("done", [0, 5, 20, 600])
def test_a_limit_that_is_met_is_known_by_its_first_429s(done: int) -> None:
    pace = RatePacer(NO_LIMITS, is_firm=False)
    pace.settle(CallCost(), done, EPOCH)
    assert 10 <= overrun(pace, EPOCH + 2, 1.0, EPOCH + 2) <= 20
    assert pace.found_per_min == max(FIRST_FOUND_PER_MIN, done)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(20))
def test_a_tenth_of_429s_at_random_is_no_limit(seed: int) -> None:
    chance, pace = random.Random(seed), RatePacer(NO_LIMITS, is_firm=False)
    for call in range(5000):
        now = EPOCH + call / 50
        if chance.random() < 0.1:
            pace.throttled(now, retry_after_s=1.0, now=now)
        else:
            pace.settle(CallCost(), 1, now)
    assert pace.found_per_min is None
    assert pace.blocked_until == 0.0


@pytest.mark.parametrize("n_throttles", [51, 460])
def test_refusals_that_come_in_a_row_are_held_against_the_whole_burst(n_throttles: int) -> None:
    """Its other calls are counted with the first of them, and taken off again where they are
    refused as well."""
    pace, first = RatePacer(NO_LIMITS, is_firm=False), 511
    for done in [first, *repeat(-1, n_throttles - 1)]:
        pace.settle(CallCost(), done, EPOCH)
        pace.throttled(EPOCH, retry_after_s=1.0, now=EPOCH)
    assert (pace.found_per_min is not None) == (n_throttles > 0.25 * first)
    assert (pace.blocked_until > EPOCH) == (n_throttles > 0.25 * first)


async def slots_of(limiter: Limiter, wanted: Reservation, for_s: float) -> list[Slot]:
    """What a member gets that always asks for more, as a judge actor does: it is heard of by its
    watch for pauses too."""
    slots, until = list[Slot](), clock() + for_s

    async def listen() -> None:
        while True:
            await limiter.pause(wanted.judge, math.inf, wanted.member)

    listening = asyncio.create_task(listen())
    while clock() < until:
        grant = await within(until - clock(), limiter.reserve(wanted))
        slots += map(Slot, grant.times if grant is not None else ())
    listening.cancel()
    return [slot for slot in slots if slot.at < until]


def limited(per_min: float, member: str, run: str = "", **more: Any) -> Reservation:
    limits = RateLimits(requests_per_min=per_min, **more)
    return reservation(member=member, limits=limits, firm=True, run=run or f"run of {member}")


@pytest.mark.parametrize("says_goodbye", [True, False])
@pytest.mark.parametrize(("first", "second"), [(60, 1200), (1200, 60)])
async def test_a_run_that_is_over_leaves_the_next_one_its_own_limits(
    first: int, second: int, says_goodbye: bool
) -> None:
    """Also one that was killed, once it has been silent for a minute."""
    limiter = Limiter(clock=clock)
    before = await slots_of(limiter, limited(first, "a"), 180)
    if says_goodbye:
        await limiter.leave("run of a")
    else:
        await asyncio.sleep(MEMBER_S + 1)
    after = await slots_of(limiter, limited(second, "b"), 300)
    assert limiter.limits_by_judge()["judge"].requests_per_min == second
    assert 0.97 * 3 * first <= len(before) <= 3.1 * first
    # What the run before has sent counts in the first minute of a lower limit
    waits_s = WINDOW_S + HORIZON_S if second < first and says_goodbye else 0.0
    assert 0.97 * second * (300 - waits_s) / 60 <= len(after) <= 5.1 * second
    assert most(after, one_request) <= second


async def test_runs_at_the_same_time_share_the_lower_of_their_limits() -> None:
    limiter = Limiter(clock=clock)
    low, high = limited(120, "low", tokens_per_min=10**6), limited(600, "high", concurrency=8)
    together = await asyncio.gather(slots_of(limiter, low, 300), slots_of(limiter, high, 300))
    assert limiter.limits_by_judge()["judge"] == RateLimits(
        requests_per_min=120, tokens_per_min=10**6, concurrency=8
    )
    await limiter.leave("run of low")
    alone = await slots_of(limiter, high, 120)
    assert limiter.limits_by_judge()["judge"] == RateLimits(requests_per_min=600, concurrency=8)
    low, high, alone = [*together, alone]
    assert most([*low, *high], one_request) <= 120
    assert len(low) + len(high) >= 0.97 * 5 * 120
    assert 0.8 <= len(low) / len(high) <= 1.25, "neither starves"
    assert len(alone) >= 0.97 * (2 * 600 - 120), "those of the minute before count"


async def test_a_member_that_waits_longer_than_a_minute_is_heard_of_by_its_watch_for_pauses() -> (
    None
):
    """One call a minute, for two runs: the lower limit holds while its run only waits."""
    limiter = Limiter(clock=clock)
    low, high = await asyncio.gather(
        slots_of(limiter, limited(0.25, "low")._replace(costs=(CALL,)), 3600),
        slots_of(limiter, limited(600, "high")._replace(costs=(CALL,)), 3600),
    )
    assert most([*low, *high], one_request, span_s=240.0) <= 2
    assert min(len(low), len(high)) >= 6


async def test_a_reservation_of_a_run_that_is_over_takes_no_slot() -> None:
    limiter = Limiter(clock=clock)
    await limiter.reserve(limited(1, "a"))
    waiting = asyncio.create_task(limiter.reserve(limited(1, "a")))
    await asyncio.sleep(1)
    await limiter.leave("run of a")
    assert await within(TICK, waiting) == Grant(now=clock())
    await limiter.reserve(limited(1, "a")._replace(costs=(), done=1, answered=1))
    next_run = limited(600, "b")
    times = [at for _ in range(4) for at in (await limiter.reserve(next_run)).times]
    assert times[-1] < EPOCH + 30, "a late report brings no limit back"


async def test_what_was_learnt_holds_again_when_a_users_limits_are_lifted() -> None:
    table = RateLimits(requests_per_min=50, tokens_per_min=30_000)
    limiter, limits = Limiter(clock=clock), list[RateLimits]()
    for wanted, stated in (
        (reservation(limits=table, run="first"), RateLimits(requests_per_min=500)),
        (limited(100, "b"), RateLimits(output_tokens_per_min=8000)),
        (reservation(limits=table, run="third"), NO_LIMITS),
    ):
        await limiter.reserve(wanted)
        await limiter.reserve(wanted._replace(costs=(), provider_limits=stated))
        limits.append(limiter.limits_by_judge()["judge"])
        await limiter.leave(wanted.run)
    assert limits == [
        RateLimits(requests_per_min=500, tokens_per_min=30_000),
        RateLimits(requests_per_min=100, output_tokens_per_min=8000),
        RateLimits(requests_per_min=500, tokens_per_min=30_000, output_tokens_per_min=8000),
    ]


def test_a_limit_that_429s_taught_holds_again_when_a_users_limits_are_lifted() -> None:
    pace = RatePacer(NO_LIMITS, is_firm=False)
    pace.settle(CallCost(), 240, EPOCH)
    overrun(pace, EPOCH + 2, 1.0, EPOCH + 2)
    pace.set_limits(RateLimits(requests_per_min=30), NO_LIMITS, EPOCH + 10)
    assert (pace.limits().requests_per_min, pace.found_per_min) == (30, None)
    pace.set_limits(None, NO_LIMITS, EPOCH + 20)
    assert pace.limits().requests_per_min == pace.found_per_min == 240
