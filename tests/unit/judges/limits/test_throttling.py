"""What limits and 429s do to a run is said: a judge that lets nothing through ends it, what cannot
be true is not believed."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from memray_eval.config.sections import RateLimits
from memray_eval.errors import QuotaExhausted, Stopped, Throttled, Unavailable
from memray_eval.judges.limits import breaker
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.provider_http.retry import RetryPolicy
from tests.servers.provider import Limits, SlidingWindow
from tests.unit.judges.limits.test_admission import USED, gates_to, settled
from tests.unit.judges.limits.test_rate_limiter import EPOCH, VirtualLoop, clock

pytestmark = pytest.mark.heavy  # simulates many thousands of calls

LOOP = VirtualLoop
CEILING_S = 120.0


class Judge:
    """Calls through gates that share a limiter, tried again as judges do; what was said, and
    when."""

    def __init__(
        self,
        limits: RateLimits = RateLimits(),
        is_firm: bool = False,
        members: int = 1,
        limiter: Limiter | None = None,
    ) -> None:
        self.lines: list[tuple[float, str]] = []
        self.is_stopping, self.n_sent = False, 0
        self.limiter = limiter or Limiter(clock=clock)
        hooks = RunHooks(say=self._say, is_stopping=lambda: self.is_stopping, clock=clock)
        options = {"limits": limits, "is_firm": is_firm, "patience_s": CEILING_S}
        named = {"name": "openai/m", "hooks": hooks}
        self.gates = gates_to(self.limiter, members, id(self), **named, **options)

    def _say(self, line: str) -> None:
        self.lines.append((clock() - EPOCH, line))

    async def ask(self, reply: Callable[[], Awaitable[None]], member: int = 0) -> None:
        gate = self.gates[member]

        async def call(permit: Any) -> None:
            self.n_sent += 1
            await asyncio.sleep(0.2)
            await reply()
            permit.used = USED

        policy = RetryPolicy(ceiling_s=CEILING_S, clock=clock)
        await policy.run(call, lambda: gate.permit(1000))

    async def ask_many(
        self, count: int, reply: Callable[[], Awaitable[None]], spread: int = 1
    ) -> list[Any]:
        return await settled(
            [asyncio.ensure_future(self.ask(reply, number % spread)) for number in range(count)]
        )


def refusing(retry_after_s: float | None = None) -> Callable[[], Awaitable[None]]:
    async def reply() -> None:
        raise Throttled("429: too many requests", retry_after_s=retry_after_s)

    return reply


async def answer() -> None:
    return


async def out_of_quota() -> None:
    raise QuotaExhausted("429 insufficient_quota: used up")


@pytest.mark.parametrize("limits", [RateLimits(), RateLimits(requests_per_min=600)])
@pytest.mark.parametrize("retry_after_s", [None, 0.0, 20.0, 3600.0, 1e9, float("inf")])
async def test_429s_without_end_are_said_within_30_s_and_end_the_calls_at_the_ceiling(
    limits: RateLimits, retry_after_s: float | None
) -> None:
    judge = Judge(limits, members=3)
    ends = await judge.ask_many(60, refusing(retry_after_s), spread=3)
    assert all(isinstance(end, Throttled) for end in ends)
    stalled = [end for end in ends if end.is_stalled]
    assert len(stalled) >= 40
    why = f"let through for {CEILING_S:g} s (judging.ceiling_s): 429: too many requests"
    assert f"no call has been {why}" in str(stalled[0])
    assert CEILING_S <= clock() - EPOCH <= 2 * CEILING_S, "and not for as long as the provider says"
    lines = [(at, line) for at, line in judge.lines if "no call has been let through" in line]
    assert lines[0][0] <= 20
    assert len({line for _, line in lines}) == 1, "the run's console shows it once"
    stops = "After 120 s without one (judging.ceiling_s) the run stops, to be resumed"
    assert f"the others wait. {stops}" in lines[0][1]
    warnings = [line for _, line in judge.lines if "is not plausible and is ignored" in line]
    assert bool(warnings) == (retry_after_s is not None and retry_after_s > 86_400)


async def test_a_member_whose_calls_only_wait_hears_of_it_too() -> None:
    """None of its calls is sent: the others' 429s block the judge for longer than anybody waits."""
    judge = Judge(members=2)
    first = asyncio.ensure_future(judge.ask_many(30, refusing(80_000.0)))
    await asyncio.sleep(5)
    sent = judge.n_sent
    waiting = asyncio.ensure_future(judge.ask(answer, member=1))
    ends = [*await first, *await settled([waiting])]
    assert judge.n_sent == sent
    assert all(isinstance(end, Throttled) and end.is_stalled for end in ends[-1:])


@pytest.mark.parametrize(
    ("is_refused", "retry_after_s", "takes_s", "is_said"),
    [
        (lambda number: number % 2 == 1, 2.0, 0.0, False),  # it answers now and then
        (lambda number: number == 1, None, CEILING_S / 2, False),  # slow, after a single 429
        (lambda number: clock() < EPOCH + 60, None, 0.0, True),  # back before the ceiling
    ],
)
async def test_a_judge_that_answers_after_all_is_no_stalled_one(
    is_refused: Callable[[int], bool], retry_after_s: float | None, takes_s: float, is_said: bool
) -> None:
    judge, numbers = Judge(), count(1)

    async def reply() -> None:
        if is_refused(next(numbers)):
            raise Throttled("429: too many requests", retry_after_s=retry_after_s)
        await asyncio.sleep(takes_s)

    assert await judge.ask_many(30, reply) == [None] * 30
    assert is_said == any("no call has been let through" in line for _, line in judge.lines)


async def test_a_member_that_had_nothing_to_ask_for_long_does_not_take_that_for_a_stall() -> None:
    """Its last call was refused, and failed; nobody has asked the judge since."""
    judge = Judge()
    ends = await judge.ask_many(3, refusing())
    assert all(isinstance(end, Throttled) for end in ends)
    await asyncio.sleep(5 * CEILING_S)
    assert await judge.ask_many(5, answer) == [None] * 5


async def test_a_stalled_judge_is_tried_again_after_a_minute_where_the_run_goes_on() -> None:
    judge = Judge()
    await judge.ask_many(30, refusing())
    (at_once,) = await judge.ask_many(1, answer)
    assert isinstance(at_once, Throttled)
    assert at_once.is_stalled
    await asyncio.sleep(61)
    assert await judge.ask_many(1, answer) == [None]


REQUESTS = "x-ratelimit-limit-requests"
ASSUMED = (
    "calls wait for a limit of 50 requests/min, which is only assumed (the judge table's, of a "
    "beginner's account): the provider has not told its own. If yours allows more, raise it: --set "
    "'judging.limits={openai/m: {requests_per_min: NUMBER}}', also with `memray-eval resume latest`"
)
ODD = "its header x-ratelimit-limit-requests: {!r} is no plausible limit and is ignored"
KEPT = (
    "its headers tell of a limit of 1 requests/min, less than judging.limits (600), which is kept"
)


@pytest.mark.parametrize(
    ("per_min", "is_firm", "header", "line"),
    [
        (50, False, None, ASSUMED),
        (50, False, "50", None),
        (50, True, None, None),
        (500, False, None, None),  # it hardly delays a few calls
        (600, True, "1", KEPT),
        *((600, False, odd, ODD.format(odd)) for odd in ("0.000001", "0", "-1", "nan", "1e300")),
    ],
)
async def test_what_is_said_of_a_limit(
    per_min: float, is_firm: bool, header: str | None, line: str | None
) -> None:
    judge = Judge(RateLimits(requests_per_min=per_min), is_firm)

    async def reply() -> None:
        await judge.gates[0].observe_headers({} if header is None else {REQUESTS: header})

    assert await judge.ask_many(20, reply) == [None] * 20
    assert (clock() - EPOCH < 10) == (per_min >= 500)
    assert [line for at, line in judge.lines if at < 10] == ([f"openai/m: {line}"] if line else [])


async def test_calls_that_come_after_the_waiting_ones_were_failed_end_when_the_run_stops() -> None:
    """The limiter has not yet answered for those before them, so no new request goes to it."""
    judge = Judge(RateLimits(requests_per_min=1), is_firm=True)
    await judge.ask(answer)
    first = asyncio.ensure_future(judge.ask_many(2, answer))
    await asyncio.sleep(5)
    judge.is_stopping = True
    await first
    await asyncio.sleep(5)  # nothing waits: nothing watches
    judge.is_stopping = False
    second = asyncio.ensure_future(judge.ask_many(2, answer))
    await asyncio.sleep(5)
    judge.is_stopping = True
    await asyncio.sleep(2)
    assert second.done()
    assert all(isinstance(end, Stopped) for end in second.result())


async def test_a_limit_below_one_call_is_said_and_ends_the_wait_at_the_ceiling() -> None:
    judge = Judge()

    async def reply() -> None:
        await judge.gates[0].observe_headers({"x-ratelimit-limit-tokens": "7"})

    ends = await judge.ask_many(10, reply)
    assert sum(end is None for end in ends) <= 2
    why = next(str(end) for end in ends if end is not None)
    ending, limit = "no call could be sent for 120 s (judging.ceiling_s)", "a limit of 7 tokens/min"
    assert why == f"{ending}: they wait for {limit}"
    waiting = f"calls wait for {limit}, which the provider told, by headers or by its 429s"
    assert any(waiting in line for _, line in judge.lines)


async def test_a_used_up_quota_is_no_rate_limit_and_fails_calls_at_once() -> None:
    judge = Judge()
    ends = await judge.ask_many(30, out_of_quota)
    assert all(isinstance(end, QuotaExhausted) for end in ends)
    assert ends[-1].is_stalled
    assert not ends[0].is_stalled, "one may be a mistake"
    assert clock() - EPOCH < 5
    assert judge.lines[0][1].startswith(
        "openai/m: 3 calls in a row failed (429 insufficient_quota: used up); calls fail at once"
    )


# Of every process of a busy machine: what was due meanwhile is late
STALLS = ((0.5, 0.9), (3.0, 3.3), (6.0, 6.25))


@pytest.mark.parametrize("n_calls", [1, 5, 100])
async def test_an_outage_fails_no_call_that_waits_for_its_end(
    n_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was the probe: that the judge is down is known, and costs it no try."""
    monkeypatch.setattr(breaker, "FAILURES", 3)
    judge = Judge()

    async def reply() -> None:
        if clock() - EPOCH < 200.0:
            raise Unavailable("503")

    assert await judge.ask_many(n_calls, reply) == [None] * n_calls
    opened, closed = (at for at, _ in judge.lines)
    assert opened < 100
    assert 200 < closed < 260


async def stalled_sleep(delay_s: float) -> None:
    due = clock() - EPOCH + delay_s
    late = next((end for start, end in STALLS if start <= due < end), due)
    await asyncio.sleep(late + EPOCH - clock())


@pytest.mark.parametrize("members", [1, 4])
async def test_a_limit_that_is_learnt_from_headers_draws_hardly_a_429_at_the_start(
    members: int,
) -> None:
    """3,000 calls at 3,000 a minute, of a provider that counts by the second and tells its limit
    with every answer."""
    window, refused = SlidingWindow(Limits(3000, window_s=1.0)), list[float]()
    free = {"limits": RateLimits(), "is_firm": False}
    hooks = RunHooks(clock=clock, sleep=stalled_sleep)
    gates = gates_to(Limiter(clock=clock), members, hooks=hooks, max_in_flight=128, **free)

    async def call(number: int) -> None:
        gate = gates[number % members]
        while True:
            try:
                async with gate.permit(100) as permit:
                    if is_full := window.wait_s(clock()) > 0:
                        refused.append(clock())
                    else:
                        window.let_in(clock(), 0)
                    await asyncio.sleep(0.2)
                    await gate.observe_headers({REQUESTS: "3000"})
                    if is_full:
                        raise Throttled("429", retry_after_s=0.3)
                    permit.used = USED
                    return
            except Throttled:
                await asyncio.sleep(0.3)

    await asyncio.gather(*map(call, range(3000)))
    assert len(refused) <= 2
    assert clock() - EPOCH <= 70
