"""Calls go one by one through places, money, slots and the breaker, and leave nothing behind,
however they end."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import BudgetSpent, JudgeError, Malformed, Throttled, Unavailable
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.limits.admission import (
    FIRST_OUTPUT_TOKENS,
    MEMORY,
    REPORT_S,
    AdmissionController,
    AdmissionOptions,
    CallPermit,
    RunHooks,
    read_headers,
)
from memray_eval.judges.limits.breaker import FAILURES, Breaker
from memray_eval.judges.limits.budget import BudgetPort, Claim, Spending
from memray_eval.judges.limits.rate_limiter import (
    FREE_S,
    Grant,
    Limiter,
    Reservation,
    StallStatus,
    steady_time,
)
from memray_eval.judges.limits.rate_pacer import HORIZON_S, LATE_S, CallCost
from memray_eval.judges.prices import FREE
from memray_eval.log_once import forget_logged
from tests.servers.provider import Limits, SlidingWindow
from tests.unit.judges.limits.test_rate_limiter import (
    EPOCH,
    NO_LIMITS,
    TICK,
    VirtualLoop,
    clock,
    run,
)

pytestmark = pytest.mark.heavy  # simulates many thousands of calls

LOOP = VirtualLoop
USED = CallCost(1000, 300)
FAST = RateLimits(requests_per_min=6000)
OPENAI = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-limit-tokens": "30000",
    "x-ratelimit-remaining-requests": "499",
}
ANTHROPIC = {
    f"anthropic-ratelimit-{lane}-limit": per_min
    for lane, per_min in (("requests", "50"), ("input-tokens", "30000"), ("output-tokens", "8000"))
}


class Scripted:
    """A limiter that answers each reservation with the next of `answers` (an exception is raised),
    then with slots for now, and keeps what it is told."""

    def __init__(self, *answers: Grant | Exception | Callable[[], Awaitable[Grant]]) -> None:
        self.answers = deque(answers)
        self.seen, self.reports = list[Reservation](), list[Reservation]()
        self.throttles = list[tuple[str, float, float | None, int]]()
        self.is_down, self.pauses = False, asyncio.Queue[float]()
        self.paused_until = 0.0  # the reply to a 429

    async def reserve(self, wanted: Reservation) -> Grant:
        self._reach()
        if not wanted.costs:
            self.reports.append(wanted)
            return Grant()
        self.seen.append(wanted)
        answer = self.answers.popleft() if self.answers else Grant((clock(),) * len(wanted.costs))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Grant) else await answer()

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        self._reach()
        self.throttles.append((judge, sent_at, retry_after_s, done))
        return self.paused_until

    async def pause(self, judge: str, known_s: float, member: str = "") -> float:
        self._reach()
        return await self.pauses.get()

    async def standing(self, judge: str) -> StallStatus:
        self._reach()
        return StallStatus()

    def _reach(self) -> None:
        if self.is_down:
            raise ConnectionError("the actor died")


def delayed(
    delay_s: float, grant: Callable[[], Grant] = lambda: Grant((clock(),))
) -> Callable[[], Awaitable[Grant]]:
    """A limiter's answer that takes so long."""

    async def answer() -> Grant:
        await asyncio.sleep(delay_s)
        return grant()

    return answer


def gate_to(
    limiter: Any,
    breaker: BreakerConfig = BreakerConfig(),
    *,
    name: str = "judge",
    budget: BudgetPort | None = None,
    hooks: RunHooks = RunHooks(clock=clock),
    observer: CallObserver | None = None,
    **options: Any,
) -> AdmissionController:
    return AdmissionController(
        name,
        limiter,
        Breaker(name, breaker, hooks.say, hooks.clock),
        AdmissionOptions(**{"member": "a", "limits": FAST, "is_firm": True} | options),
        budget=budget,
        price=FREE,
        observer=observer,
        hooks=hooks,
    )


def gates_to(
    limiter: Any, members: int, whose: object = "", **options: Any
) -> list[AdmissionController]:
    """Those of the members of one run."""
    names = (f"{whose} {number}" for number in range(members))
    return [gate_to(limiter, member=name, members=members, **options) for name in names]


class Calls:
    """Calls through gates: when they were sent, and how many were at once."""

    def __init__(self) -> None:
        self.sent, self.now, self.peak = list[float](), 0, 0

    async def __call__(
        self,
        gate: AdmissionController,
        *,
        takes_s: float = 1.0,
        used: CallCost = USED,
        fails: BaseException | None = None,
        tokens: float = 1000,
        most_tokens: float = 0.0,
    ) -> CallPermit:
        async with gate.permit(tokens, most_tokens=most_tokens) as permit:
            assert permit.sent_at == clock()
            self.sent.append(permit.sent_at - EPOCH)
            self.now += 1
            self.peak = max(self.peak, self.now)
            try:
                await asyncio.sleep(takes_s)
            finally:
                self.now -= 1
            permit.used = used
            if fails is not None:
                raise fails
        return permit


async def settled(tasks: Sequence[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def start(count: int, call: Callable[[], Awaitable[CallPermit]]) -> list[asyncio.Task[CallPermit]]:
    return [asyncio.ensure_future(call()) for _ in range(count)]


async def test_calls_are_sent_in_their_slots_which_are_asked_for_in_chunks() -> None:
    times = [EPOCH + 0.1 * slot for slot in range(40)]
    call, limiter = Calls(), Scripted(Grant(tuple(times[:20])), Grant(tuple(times[20:])))
    gate = gate_to(limiter)
    await settled(start(40, lambda: call(gate, takes_s=0)))
    assert call.sent == pytest.approx([0.1 * slot for slot in range(40)], abs=TICK)
    assert [len(wanted.costs) for wanted in limiter.seen] == [40, 20], "half of the first were left"


@pytest.mark.parametrize(
    ("late_s", "times_asked"), [(0.0, 1), (0.9 * LATE_S, 1), (1.1 * LATE_S, 2), (60.0, 2)]
)
async def test_a_slot_that_comes_too_late_is_dropped_and_asked_for_again(
    late_s: float, times_asked: int
) -> None:
    slow = delayed(late_s, lambda: Grant((EPOCH,)))
    call, limiter = Calls(), Scripted(slow, Grant((EPOCH + 100,)))
    await call(gate_to(limiter))
    sent_s = pytest.approx(late_s if times_asked == 1 else 100)
    assert (len(limiter.seen), call.sent) == (times_asked, [sent_s])


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_a_limiter_whose_clock_was_set_holds_no_call_for_that_hour(ahead_s: float) -> None:
    call, limiter = Calls(), Limiter(clock=lambda: clock() + ahead_s)
    gate = gate_to(limiter, limits=RateLimits(requests_per_min=6000))
    await call(gate)
    await settled(start(30, lambda: call(gate, fails=Throttled("429", retry_after_s=8.0))))
    await call(gate)
    assert 8.0 < call.sent[-1] < 8.0 + 2 * HORIZON_S, "as long as it was told to wait"


def test_the_clock_of_slots_is_not_the_one_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = steady_time()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0.0 <= RunHooks().clock() - before < 3600.0


async def test_where_nothing_is_limited_calls_go_at_once_after_the_first_has_come_back() -> None:
    free, call = {"limits": RateLimits(), "is_firm": False}, Calls()
    gate = gate_to(Limiter(clock=clock), **free, max_in_flight=10)
    await settled(start(91, lambda: call(gate, takes_s=0.5)))
    assert call.sent == pytest.approx([0.0, *(0.5 * n for n in range(1, 10) for _ in range(10))])


async def test_429s_of_one_member_stop_the_others() -> None:
    limiter, call = Limiter(clock=clock), Calls()
    one_gate, other = (gate_to(limiter, member=name) for name in "ab")
    calls = start(200, lambda: call(other, takes_s=0.01))
    refused = start(
        30, lambda: call(one_gate, takes_s=0.6, fails=Throttled("429", retry_after_s=8.0))
    )
    await settled([*calls, *refused])
    assert len(call.sent) == 230
    [(paused_from, paused_until)] = [gap for gap in pairwise(call.sent) if gap[1] - gap[0] > 1.0]
    assert 0.6 <= paused_from <= 1.5, "both were at work, with slots ahead"
    assert paused_until >= paused_from + 8.0


async def test_the_limiter_hears_of_a_429_with_the_time_of_its_sending() -> None:
    call, limiter = Calls(), Scripted(Grant((EPOCH + 3,)))
    gate = gate_to(limiter)
    for retry_after_s in (7.0, None):
        with pytest.raises(Throttled):
            await call(gate, takes_s=2, fails=Throttled("429", retry_after_s=retry_after_s))
        limiter.answers.append(Grant((EPOCH + 20,)))
    assert limiter.throttles == [("judge", EPOCH + 3, 7.0, 0), ("judge", EPOCH + 20, None, 0)]


async def test_calls_that_have_ended_or_outlived_it_are_counted_with_a_429_and_only_once() -> None:
    """Those sent no later; what is refused after all is taken off again."""
    limiter, call, refusal = Scripted(), Calls(), Throttled("429", retry_after_s=1.0)
    gate = gate_to(limiter)
    await call(gate, takes_s=0)
    await asyncio.sleep(2 * REPORT_S)
    assert [report.done for report in limiter.reports] == [1]
    calls = start(3, lambda: call(gate, takes_s=0.4)) + start(2, lambda: call(gate, takes_s=1.5))
    calls += start(2, lambda: call(gate, takes_s=0.5, fails=refusal)) + start(
        1, lambda: call(gate, takes_s=0.6, fails=refusal)
    )
    await asyncio.sleep(0.1)
    calls += start(1, lambda: call(gate, takes_s=1.5))
    await settled(calls)
    assert [done for *_, done in limiter.throttles] == [3 + 2 + 2, -1, -1]
    await asyncio.sleep(2 * REPORT_S)
    everything = [wanted.done for wanted in [*limiter.seen, *limiter.reports]]
    assert sum(everything) == 1 + 1, "the one that was sent later"


async def test_a_429_that_the_limiter_takes_for_a_hiccup_stops_nobody() -> None:
    limiter, call = Scripted(Grant((EPOCH,)), Grant(free_until=EPOCH + 100)), Calls()
    gate = gate_to(limiter)
    refused = asyncio.ensure_future(
        call(gate, takes_s=1, fails=Throttled("429", retry_after_s=50.0))
    )
    await asyncio.sleep(0.1)
    await settled([refused, *start(1, lambda: call(gate))])
    await settled(start(3, lambda: call(gate)))
    assert call.sent == pytest.approx([0, 0.1, 1.1, 1.1, 1.1], abs=TICK)


async def test_a_429_pauses_its_member_where_the_limiter_cannot_be_asked() -> None:
    limiter, call = Scripted(), Calls()
    gate = gate_to(limiter)
    refused = start(1, lambda: call(gate, fails=Throttled("429", retry_after_s=30.0)))
    await asyncio.sleep(0.5)
    limiter.is_down = True
    await settled(refused)
    limiter.is_down = False
    limiter.answers += [Grant((EPOCH + 5,)), Grant((EPOCH + 31.5,))]
    await call(gate)
    assert call.sent == pytest.approx([0, 31.5], abs=TICK), "the first slot was within the pause"


async def test_freedom_that_was_given_before_a_429_ends_with_it() -> None:
    slow = delayed(1.5, lambda: Grant(free_until=clock() + FREE_S))
    limiter, call = Scripted(Grant((EPOCH,)), slow), Calls()
    gate = gate_to(limiter)
    limiter.paused_until = EPOCH + 6
    refused = asyncio.ensure_future(
        call(gate, takes_s=1, fails=Throttled("429", retry_after_s=5.0))
    )
    await asyncio.sleep(0.1)
    later = start(3, lambda: call(gate))
    limiter.answers.append(Grant((EPOCH + 6.1,) * 3))
    await settled([refused, *later])
    assert call.sent == pytest.approx([0, 6.1, 6.1, 6.1], abs=TICK)


# When a call begins, and how long after it is cancelled
AT = st.tuples(st.floats(0, 4), st.none() | st.floats(0, 4))


@given(
    calls=st.lists(AT, min_size=1, max_size=40),
    max_in_flight=st.integers(1, 6),
    per_min=st.sampled_from([200, 6000]),
)
def test_calls_that_are_cancelled_anywhere_free_their_places(
    calls: list[tuple[float, float | None]], max_in_flight: int, per_min: int
) -> None:
    """Waiting for a place, for a slot, for the slot's time, or in flight."""

    async def main() -> None:
        limiter, call = Limiter(clock=clock), Calls()
        gate = gate_to(
            limiter, max_in_flight=max_in_flight, limits=RateLimits(requests_per_min=per_min)
        )

        async def begin(at_s: float, cancel_after_s: float | None) -> None:
            await asyncio.sleep(at_s)
            await asyncio.wait_for(call(gate, takes_s=0.7), cancel_after_s)

        ends = await settled([asyncio.ensure_future(begin(*call)) for call in calls])
        assert all(end is None or isinstance(end, TimeoutError) for end in ends)
        assert call.peak <= max_in_flight
        assert call.now == 0
        call.peak = 0
        await settled(start(2 * max_in_flight, lambda: call(gate, takes_s=20)))
        assert call.peak == max_in_flight, "all places are free again"

    run(main())


async def test_a_call_that_is_cancelled_as_it_gets_its_place_hands_it_on() -> None:
    call, gate = Calls(), gate_to(Limiter(clock=clock), max_in_flight=1)

    async def first() -> None:
        async with gate.permit(1000):
            await asyncio.sleep(1)
        unlucky.cancel()

    leaving = asyncio.ensure_future(first())
    await asyncio.sleep(0.5)
    [unlucky, next_one] = start(2, lambda: call(gate))
    await settled([leaving, unlucky, next_one])
    assert unlucky.cancelled()
    assert call.sent == [1.0]


async def test_calls_that_were_cancelled_while_they_waited_take_no_slots() -> None:
    limiter, call = Scripted(delayed(1)), Calls()
    gate = gate_to(limiter)
    calls = start(10, lambda: call(gate))
    await asyncio.sleep(0.5)
    for cancelled in calls[1:8]:
        cancelled.cancel()
    await settled(calls)
    assert [len(wanted.costs) for wanted in limiter.seen] == [10, 2]
    assert len(call.sent) == 3


async def test_a_judge_that_stays_down_makes_calls_fail() -> None:
    config = BreakerConfig(outage_s=30)
    call, limiter = Calls(), Scripted()
    gate = gate_to(limiter, config, max_in_flight=2)
    calls = start(FAILURES + 20, lambda: call(gate, takes_s=0.1, fails=Unavailable("503")))
    ends = await settled(calls)
    assert clock() - EPOCH < 60
    # They wait without asking for slots all the time
    assert sum(len(wanted.costs) for wanted in limiter.seen) < (FAILURES + 20) * 10
    assert {type(end) for end in ends} == {Unavailable}
    assert any("has not answered" in str(end) for end in ends)


async def test_a_judge_that_is_down_for_ten_minutes_is_asked_within_one_of_its_return() -> None:
    """A new call a second: those that are made meanwhile fail or wait, none goes for ever."""
    sent, calls = list[float](), list[asyncio.Task[None]]()
    gate = gate_to(Limiter(clock=clock))

    async def call() -> None:
        async with gate.permit(100) as permit:
            sent.append(clock() - EPOCH)
            if clock() - EPOCH < 600:
                raise Unavailable("503")
            permit.used = USED

    for _ in range(900):
        calls.append(asyncio.ensure_future(call()))
        await asyncio.sleep(1)
    ends = await settled(calls)
    probes = [at for at in sent if 60 <= at < 600]
    assert len(probes) <= 20, "only probes reach a judge that is down"
    assert min(at for at in sent if at >= 600) <= 660
    assert ends[661:] == [None] * 239, "from then on each call is answered"
    assert {type(end) for end in ends} == {Unavailable, type(None)}
    assert len(sent) - ends.count(None) == len([at for at in sent if at < 600])


@pytest.mark.parametrize("jump_s", [3600, -30])
async def test_a_clock_that_jumps_holds_calls_back_no_longer_than_it_was_set_back(
    jump_s: float,
) -> None:
    jumped, sent = 0.0, list[float]()

    def now() -> float:
        return clock() + jumped

    limits, hooks = RateLimits(requests_per_min=600), RunHooks(clock=now)
    gate = gate_to(Limiter(clock=now), hooks=hooks, limits=limits)

    async def call() -> None:
        async with gate.permit(100) as permit:
            sent.append(clock() - EPOCH)
            permit.used = USED

    calls = [asyncio.ensure_future(call()) for _ in range(300)]
    await asyncio.sleep(5)
    jumped = jump_s
    assert await settled(calls) == [None] * 300
    assert sent[-1] <= 31 + max(0.0, -jump_s)
    assert all(later - earlier > 0.9 for earlier, later in zip(sent, sent[20:], strict=False))


@pytest.mark.parametrize(("used", "is_open"), [(CallCost(), True), (USED, False)])
async def test_a_reply_that_does_not_fit_is_a_sign_of_life(used: CallCost, is_open: bool) -> None:
    """The client's own error for it is no JudgeError; a call that was cancelled says nothing."""
    call, gate = Calls(), gate_to(Limiter(clock=clock))
    down = [(Unavailable("503"), CallCost())]
    for fails, takes in (*down * 19, (ValueError("misfit"), used), *down):
        with pytest.raises(type(fails)):
            await call(gate, takes_s=0, used=takes, fails=fails)
    before_s = clock()
    await call(gate, takes_s=0)
    assert ((clock() - before_s) > 4) == is_open


async def test_a_limiter_that_fails_makes_waiting_calls_fail_and_works_again_when_it_is_back() -> (
    None
):
    async def dies() -> Grant:
        await asyncio.sleep(1)
        raise ConnectionError("the actor died")

    limiter, call = Scripted(dies), Calls()
    gate = gate_to(limiter, max_in_flight=40)
    ends = await settled(start(40, lambda: call(gate)))
    unreached = "the rate limiter cannot be reached: ConnectionError"
    assert {(type(end), str(end)) for end in ends} == {(JudgeError, unreached)}
    # Tokens and cost are written on it
    assert len({id(end) for end in ends}) == 40, "every call has its own error"
    await settled(start(40, lambda: call(gate)))
    assert len(call.sent) == 40


async def test_pauses_are_heard_again_when_the_limiter_is_back() -> None:
    limiter, call = Scripted(), Calls()
    limiter.is_down = True
    gate = gate_to(limiter)
    assert isinstance((await settled(start(1, lambda: call(gate))))[0], JudgeError)
    limiter.is_down = False
    await call(gate)
    limiter.pauses.put_nowait(clock() + 50)
    await asyncio.sleep(1)
    limiter.answers += [Grant((clock(),)), Grant((clock() + 60,))]
    await call(gate)
    assert call.sent[-1] > 50, "the first slot was within the pause"


async def test_a_failed_limiter_is_logged_and_counted_and_hides_no_call_s_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forget_logged()

    limiter, call = Scripted(), Calls()
    gate = gate_to(limiter)

    async def paid() -> CallPermit:
        async with gate.permit(1000) as permit:
            limiter.is_down = True
            await gate.observe_headers(OPENAI)
            return permit

    await paid()
    await asyncio.sleep(0.1)
    limiter.is_down = False
    refused = start(1, lambda: call(gate, fails=Throttled("429", retry_after_s=1)))
    await asyncio.sleep(0.5)
    stated = RateLimits(requests_per_min=500, tokens_per_min=30_000)
    assert limiter.seen[-1].provider_limits == stated, "told with the next message"
    limiter.is_down = True
    assert isinstance((await settled(refused))[0], Throttled)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    causes = [(record.args[2], record.exc_info is not None) for record in warnings]
    assert causes[:2] == [(1, True), (2, True)], "the report, and the 429"
    assert len({record.args[1] for record in warnings}) == len(warnings), "each effect once"


async def test_estimates_follow_what_calls_take() -> None:
    limiter, call = Scripted(), Calls()
    gate = gate_to(limiter)
    for used in (CallCost(2000, 50), CallCost(4000, 150), CallCost(), USED):
        await call(gate, used=used)
    first, second, third, fourth = [wanted.costs[0] for wanted in limiter.seen]
    assert first == CallCost(1000, FIRST_OUTPUT_TOKENS)
    assert second == CallCost(2000, 50), "the first figure is better than a guess"
    assert third == CallCost(2000 + MEMORY * 2000, 50 + MEMORY * 100)
    assert fourth == third, "nothing is learnt of a call of which nothing is known"


@pytest.mark.parametrize(
    ("fails", "used", "correction", "done"),
    [
        (None, CallCost(1500, 100), CallCost(500, -200), 1),
        (Malformed("x"), CallCost(1500, 100), CallCost(500, -200), 1),
        (Throttled("429"), CallCost(), CallCost(-1000, -300), 0),  # the provider did not count it
        (Unavailable("503"), CallCost(), CallCost(), 1),  # it may have
    ],
)
async def test_estimates_are_settled_against_what_is_known_of_the_use(
    fails: JudgeError | None, used: CallCost, correction: CallCost, done: int
) -> None:
    limiter, call = Scripted(), Calls()
    gate = gate_to(limiter)
    await settled(start(1, lambda: call(gate, used=used, fails=fails)))
    await asyncio.sleep(REPORT_S)
    assert [(report.correction, report.done) for report in limiter.reports] == (
        [(correction, done)] if any(correction) or done else []
    )


async def test_what_calls_took_is_reported_also_while_a_reservation_waits() -> None:
    """It may be what the reservation waits for."""
    limiter, call = Scripted(Grant((EPOCH,) * 3), delayed(60)), Calls()
    gate = gate_to(limiter)
    calls = [asyncio.ensure_future(call(gate, takes_s=takes_s)) for takes_s in (0, 1, 1.5, 0)]
    await asyncio.sleep(0.1)
    assert [report.done for report in limiter.reports] == [1], "at once: others wait for the first"
    await asyncio.sleep(2 + REPORT_S)
    assert [report.done for report in limiter.reports] == [1, 2], "later ones together"
    await settled(calls)
    await asyncio.sleep(REPORT_S)
    everything = [*limiter.seen, *limiter.reports]
    assert sum(wanted.done for wanted in everything) == 4
    # 1000 and 300, as was estimated
    assert sum(sum(wanted.correction) for wanted in everything) == pytest.approx(0)


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (OPENAI, {"requests": 500, "tokens": 30_000}),
        (ANTHROPIC, {"requests": 50, "input_tokens": 30_000, "output_tokens": 8000}),
        ({"x-ratelimit-limit-requests": "0.5"}, {"requests": 0.5}),
        ({"retry-after": "3", "content-type": "application/json"}, {}),
        *(
            ({"x-ratelimit-limit-requests": text}, {})
            for text in ("", "0", "-3", "nan", "inf", "1e999", "²", "many", "10, 20", "0x10")
        ),
        ({"x-ratelimit-limit-requests": "x", "x-ratelimit-limit-tokens": "7"}, {"tokens": 7}),
    ],
)
def test_limits_are_read_from_the_headers_of_both_providers(
    headers: dict[str, str], limits: dict[str, float]
) -> None:
    assert read_headers(headers)[0] == {f"{lane}_per_min": n for lane, n in limits.items()}


@pytest.mark.parametrize(("is_firm", "requests_per_min"), [(True, 300), (False, 60)])
async def test_reservations_carry_all_that_is_known_of_the_limits(
    is_firm: bool, requests_per_min: float
) -> None:
    """For a limiter that is restarted: what the user or the table says, and the headers, also those
    that later ones leave out; firm limits stay as set."""
    limiter, call = Scripted(), Calls()
    others = {"output_tokens_per_min": 8000, "concurrency": 7}
    gate = gate_to(limiter, limits=RateLimits(requests_per_min=300, **others), is_firm=is_firm)
    for headers in ({}, OPENAI, OPENAI, {"x-ratelimit-limit-requests": "60"}):
        await gate.observe_headers(headers)
    await call(gate)
    restarted, wanted = Limiter(clock=clock), limiter.seen[0]
    assert wanted.provider_limits == RateLimits(requests_per_min=60, tokens_per_min=30_000)
    await restarted.reserve(wanted._replace(costs=()))
    known = RateLimits(requests_per_min=requests_per_min, tokens_per_min=30_000, **others)
    assert restarted.limits_by_judge()["judge"] == known


class ScriptedBudget:
    def __init__(self, refuses: bool = False) -> None:
        self.events, self.refuses = list[tuple[str, float, int]](), refuses

    async def reserve(self, most: Spending, claim: Claim = "call") -> int:
        if self.refuses:
            return 0
        self.events.append(("reserve", clock() - EPOCH, most.tokens))
        return 7

    async def settle(self, ticket: int, spent: Spending) -> None:
        assert ticket == 7
        self.events.append(("settle", clock() - EPOCH, spent.tokens))


@pytest.mark.parametrize("fails", [None, Malformed("x"), Throttled("429"), ValueError("misfit")])
async def test_money_is_reserved_before_the_call_and_settled_after_it_with_what_was_used(
    fails: Exception | None,
) -> None:
    budget, call = ScriptedBudget(), Calls()
    gate = gate_to(Scripted(Grant((EPOCH + 2,))), budget=budget, max_output_tokens=500)
    await settled(start(1, lambda: call(gate, used=CallCost(900, 10), fails=fails)))
    assert budget.events == [("reserve", 0.0, 1700), ("settle", pytest.approx(3.0), 910)]


@pytest.mark.parametrize(
    ("most_tokens", "used", "reserved"),
    [
        (0.0, 1000, [1700, 1700]),
        (4000.0, 1000, [5300, 5300]),  # the first answers do not tell what the next text has
        (1000.0, 3000, [1700, 4100]),
    ],
)
async def test_a_budget_reserves_what_a_prompt_may_have_and_the_limiter_what_is_expected(
    most_tokens: float, used: float, reserved: list[int]
) -> None:
    budget, call, limiter = ScriptedBudget(), Calls(), Scripted()
    gate = gate_to(limiter, budget=budget, max_output_tokens=500)
    for _ in reserved:
        await call(gate, used=CallCost(used, 10), most_tokens=most_tokens)
    assert [tokens for what, _, tokens in budget.events if what == "reserve"] == reserved
    reserved_tokens = [cost.input_tokens for wanted in limiter.seen for cost in wanted.costs]
    assert reserved_tokens == [1000, used]


@pytest.mark.parametrize("cancel_after_s", [1.0, 2.5])
async def test_a_call_that_is_cancelled_gives_its_money_back(cancel_after_s: float) -> None:
    """While it waits for its slot, and in flight."""
    budget, call = ScriptedBudget(), Calls()
    gate = gate_to(Scripted(Grant((EPOCH + 2,))), budget=budget)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call(gate), cancel_after_s)
    (_, reserved_s, _), (_, settled_s, spent) = budget.events
    assert (reserved_s, settled_s, spent) == (0.0, pytest.approx(cancel_after_s), 0)


async def test_a_call_that_does_not_fit_the_budget_asks_for_no_slot_and_frees_its_place() -> None:
    limiter, budget, call = Scripted(), ScriptedBudget(refuses=True), Calls()
    gate = gate_to(limiter, budget=budget, max_in_flight=1)
    for _ in range(2):
        with pytest.raises(BudgetSpent):
            await call(gate)
    budget.refuses = False
    await call(gate)
    assert len(limiter.seen) == 1


class Provider:
    """Lets so many calls in within any 60 s, and answers the others with a 429 and the time until
    there is room, or always the same time."""

    def __init__(self, per_min: int, retry_after_s: float | None = None) -> None:
        self.window = SlidingWindow(Limits(per_min))
        self.answered, self.refused = list[float](), list[float]()
        self._retry_after_s = retry_after_s

    def is_used_by_others(self) -> None:
        for _ in range(int(self.window.limits.requests_per_min or 0)):
            self.window.let_in(clock(), 0)

    def ask(self) -> float:
        """Seconds to wait; 0.0: it is answered."""
        if wait_s := self.window.wait_s(clock()):
            self.refused.append(clock())
            return self._retry_after_s or wait_s
        self.window.let_in(clock(), 0)
        self.answered.append(clock())
        return 0.0


async def at_work(
    provider: Provider,
    minutes: float,
    limits: RateLimits = NO_LIMITS,
    is_firm: bool = False,
    changes: tuple[float, int] | None = None,
    others_per_min: float | None = None,
) -> RateLimits:
    """Four members with more to ask than they may; the limits that they keep in the end. `changes`:
    after so many seconds to this limit of the provider."""
    limiter, members = Limiter(clock=clock), 4

    async def judge(gate: AdmissionController) -> None:
        while True:
            try:
                async with gate.permit(1000) as permit:
                    if retry_after_s := provider.ask():
                        await asyncio.sleep(0.3)
                        raise Throttled("429", retry_after_s=retry_after_s)
                    await asyncio.sleep(0.8)
                    permit.used = USED
            except Throttled as error:
                await asyncio.sleep(error.retry_after_s or 1.0)

    async def another_user(per_min: float) -> None:
        while True:
            provider.ask()
            await asyncio.sleep(60 / per_min)

    gates = gates_to(limiter, members, limits=limits, is_firm=is_firm, max_in_flight=64)
    tasks = [asyncio.ensure_future(judge(gate)) for gate in gates for _ in range(80)]
    if others_per_min is not None:
        tasks.append(asyncio.ensure_future(another_user(others_per_min)))
    if changes is not None:
        await asyncio.sleep(changes[0])
        provider.window.limits = Limits(changes[1])
    await asyncio.sleep(EPOCH + 60 * minutes - clock())
    for task in tasks:
        task.cancel()
    for gate in gates:
        await gate.aclose()
    ends = await settled(tasks)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    return limiter.limits_by_judge()["judge"]


class Load(NamedTuple):
    """What members ask of a provider, and what comes of it: how many are refused at most before
    `since_min` and, as a share, from then on, how much of the limit is used from then on, and if
    about the limit is kept in the end."""

    per_min: int
    minutes: float
    since_min: float
    used: float
    first_refused: int
    refused: float
    retry_after_s: float | None = None
    is_used_up: bool = False
    is_found: bool = True
    options: Mapping[str, Any] = {}


def known(per_min: float, **options: Any) -> Mapping[str, Any]:
    return {"limits": RateLimits(requests_per_min=per_min), **options}


UNDER_WAY = 4 * 64 + 20  # when a limit is met that nobody knew


@pytest.mark.parametrize(
    "load",
    [
        Load(3000, 4, 1, 0.98, 2, 0.0, options=known(3000, is_firm=True)),
        # Of a few calls a minute those that try it out are no small part
        Load(5, 20, 1, 0.6, UNDER_WAY, 0.25),
        Load(20, 20, 1, 0.6, UNDER_WAY, 0.1),
        Load(60, 20, 1, 0.6, UNDER_WAY, 0.03),
        Load(600, 10, 1, 0.6, UNDER_WAY, 0.03),
        Load(600, 10, 1, 0.6, UNDER_WAY, 0.03, retry_after_s=1.0),
        Load(3000, 4, 1, 0.6, 2 * UNDER_WAY, 0.03, retry_after_s=0.1),
        # The first calls get 429s, of which nothing can be read
        Load(600, 10, 2, 0.6, UNDER_WAY, 0.03, is_used_up=True),
        Load(600, 12, 8, 0.6, UNDER_WAY, 0.03, options={"changes": (300, 150)}),
        Load(600, 12, 8, 0.6, UNDER_WAY, 0.03, options={"changes": (300, 900)}),
        # Another user takes half of it, as far as there is room: the count is of both
        Load(600, 10, 2, 0.8, UNDER_WAY, 0.25, options=known(600, others_per_min=300)),
        # One that is assumed too high
        Load(600, 10, 0, 0.6, 0, 0.09, is_found=False, options=known(6000)),
    ],
)
async def test_a_limit_is_used_also_one_that_is_to_be_found(load: Load) -> None:
    provider = Provider(load.per_min, load.retry_after_s)
    if load.is_used_up:
        provider.is_used_by_others()
    limits, per_min = await at_work(provider, load.minutes, **load.options), load.per_min
    if "changes" in load.options:
        _, per_min = load.options["changes"]
    since = EPOCH + 60 * load.since_min
    answered, refused = (
        sum(at > since for at in times) for times in (provider.answered, provider.refused)
    )
    assert answered >= load.used * (load.minutes - load.since_min) * per_min
    assert refused <= load.refused * (answered + refused)
    assert len(provider.refused) - refused <= load.first_refused
    is_near = limits.requests_per_min == pytest.approx(per_min, rel=0.3)
    assert is_near or not load.is_found


@pytest.mark.parametrize(("concurrency", "members"), [(8, 4), (10, 4), (6, 6)])
async def test_calls_in_flight_over_all_members_keep_their_limit_from_the_start(
    concurrency: int, members: int
) -> None:
    limiter, call, limits = Limiter(clock=clock), Calls(), RateLimits(concurrency=concurrency)
    gates = gates_to(limiter, members, limits=limits)
    await settled([task for gate in gates for task in start(30, lambda gate=gate: call(gate))])
    assert call.peak == concurrency
