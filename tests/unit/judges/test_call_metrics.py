"""What is heard of a judge's calls: every one that was sent, once, with its outcome, and nothing
twice; and which limit keeps them back."""

import asyncio
from typing import Any, Literal

import pytest

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import JudgeError, Refused, Throttled, Truncated, Unauthorised, Unavailable
from memray_eval.judges.call_cache import CachedCall, Lease
from memray_eval.judges.call_metrics import BindingLimit, CallObserver, Calls
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.breaker import FAILURES
from memray_eval.judges.limits.rate_limiter import Grant, Limiter, Reservation
from memray_eval.judges.prices import Price
from memray_eval.judges.structured_judge import StructuredJudge
from memray_eval.types import Usage
from tests.build import build_call
from tests.fake_judges import MESSAGES, MemoryStore, Rating, ScriptedAdapter, scripted_judge
from tests.unit.judges.limits.test_admission import Calls as SimulatedCalls
from tests.unit.judges.limits.test_admission import gate_to, settled, start
from tests.unit.judges.limits.test_rate_limiter import VirtualLoop, clock

LOOP = VirtualLoop
GOOD, BAD = '{"score": 1}', "no JSON"
IN, OUT = 100, 20


def judge_of(
    book: CallObserver, *outcomes: str | JudgeError, calls: MemoryStore | None = None
) -> StructuredJudge:
    adapter = ScriptedAdapter(*outcomes, usage=Usage(input_tokens=IN, output_tokens=OUT))
    access = {"calls": calls, "observer": book}
    return scripted_judge(adapter, access, price=Price(1.0, 2.0))


async def ask(judge: StructuredJudge, times: int = 1) -> None:
    for _ in range(times):
        try:
            await judge.judge(MESSAGES, Rating)
        except JudgeError:
            continue


def counted(*outcomes: str | JudgeError) -> Calls:
    """What is told of one verdict for which the judge was asked so often."""
    book = CallObserver()
    asyncio.run(ask(judge_of(book, *outcomes)))
    measured = book.drain()
    assert (measured.in_flight, measured.waiting) == (0, 0)
    return measured.calls


@pytest.mark.parametrize(
    ("outcomes", "named", "is_failed"),
    [
        ([GOOD], ["ok"], False),
        ([BAD, BAD, GOOD], ["malformed", "malformed", "ok"], False),
        ([BAD, BAD, BAD], ["malformed"] * 3, True),
        (
            [Throttled("429"), Throttled("429"), Throttled("429"), GOOD],
            ["throttled"] * 3 + ["ok"],
            False,
        ),
        ([Unavailable("500"), GOOD], ["unavailable", "ok"], False),
        ([Unavailable("500"), Unavailable("500")], ["unavailable"] * 2, True),
        ([BAD, Throttled("429"), Unauthorised("401")], ["malformed", "throttled", "error"], True),
        ([Truncated("long")], ["truncated"], True),
        ([Refused("no")], ["refused"], False),
    ],
)
def test_every_call_is_counted_with_its_outcome(
    outcomes: list[str | JudgeError], named: list[str], is_failed: bool
) -> None:
    calls = counted(*outcomes)
    answered = sum(isinstance(outcome, str) for outcome in outcomes)
    assert calls.outcomes == {name: named.count(name) for name in named}
    assert (calls.sent, calls.retried, calls.took) == (len(named), len(named) - 1, {len(named): 1})
    assert calls.failed == is_failed
    assert (calls.input_tokens, calls.output_tokens) == (IN * answered, OUT * answered)
    assert calls.cost_usd == pytest.approx(answered * (IN * 1.0 + OUT * 2.0) / 1e6)


def test_a_verdict_that_was_remembered_is_no_call() -> None:
    book, kept = CallObserver(), MemoryStore()
    asyncio.run(ask(judge_of(book, GOOD, calls=kept), times=3))
    calls = book.drain().calls
    assert (calls.cached, calls.missed, calls.sent, calls.took) == (2, 1, 1, {1: 1})


@pytest.mark.parametrize(
    ("leases", "sent", "repeated", "cached"),
    [
        (["new"], 1, 0, False),
        (["again"], 1, 1, False),
        (["held", "held", "new"], 1, 0, False),  # the other run's came to nothing
        (["held", "paid"], 0, 0, True),
    ],
)
def test_what_another_run_is_asking_for_is_waited_for(
    leases: list[Lease | Literal["paid"]], sent: int, repeated: int, cached: bool
) -> None:
    class Shared(MemoryStore):
        async def claim(self, key: str) -> CachedCall | Lease:
            if (lease := leases.pop(0)) == "paid":
                self.calls[key] = build_call(key, judgment=GOOD)
            return self.calls.get(key) or lease

    book = CallObserver()
    judge = judge_of(book, GOOD, calls=Shared())
    verdict = asyncio.run(judge.judge(MESSAGES, Rating))
    calls = book.drain().calls if sent else Calls()
    assert (verdict.cached, calls.sent, calls.repeated) == (cached, sent, repeated)


async def test_a_call_that_its_caller_gave_up_on_is_abandoned() -> None:
    book, under_way = CallObserver(), asyncio.Event()

    class Hanging(ScriptedAdapter):
        async def send(self, *request: Any) -> str:
            under_way.set()
            await asyncio.Event().wait()
            return ""

    judge = scripted_judge(Hanging(), {"observer": book})
    asking = asyncio.create_task(judge.judge(MESSAGES, Rating))
    await under_way.wait()
    in_flight = book.drain().in_flight
    asking.cancel()
    await asyncio.wait([asking])
    assert in_flight == 1
    measured = book.drain()
    assert (measured.in_flight, measured.calls.outcomes) == (0, {"abandoned": 1})


def test_what_was_told_is_not_told_again_and_rest_is_told_once() -> None:
    book = CallObserver()
    assert not book.is_news
    book.on_sent(is_again=False)
    # In flight: told as long as it is
    assert (book.drain().calls.sent, book.drain().calls.sent) == (1, 0)
    book.on_ended("ok", Usage(input_tokens=1), 0.0)
    assert book.drain().in_flight == 0
    assert not book.is_news


async def test_a_wait_for_a_slot_is_measured() -> None:
    """The limiter lets the call go after 3 s of the injected clock."""
    now = [1000.0]

    class Slow(Limiter):
        async def reserve(self, wanted: Reservation) -> Grant:
            now[0] += 3.0 * bool(wanted.costs)
            return Grant((now[0],) * len(wanted.costs))

    book = CallObserver(lambda: now[0])
    hooks, limits = RunHooks(clock=lambda: now[0]), RateLimits(requests_per_min=60)
    gate = gate_to(Slow(), hooks=hooks, limits=limits, is_firm=False, observer=book)
    async with gate.permit(10.0):
        pass
    await gate.aclose()
    measured = book.drain()
    assert (measured.waits_s, measured.calls.waited_s, measured.waiting) == ((3.0,), 3.0, 0)


def test_calls_add_up() -> None:
    first = counted(BAD, GOOD)
    both = first + counted(Unavailable("500"), Unavailable("500"))
    assert (both.sent, both.retried, both.failed, both.took) == (4, 2, 1, {2: 2})
    assert both.outcomes == {"malformed": 1, "ok": 1, "unavailable": 2}
    assert first.outcomes == {"malformed": 1, "ok": 1}  # not changed by it


SLOW = RateLimits(requests_per_min=6)


async def binding(
    after_s: float, headers: dict[str, str] | None = None, **options: Any
) -> BindingLimit | None:
    """The limit that holds 40 calls of 1 s each back, so long after they began."""
    gate, call = gate_to(Limiter(clock=clock), **options), SimulatedCalls()
    if headers is not None:
        await call(gate, takes_s=0.1)
        await gate.observe_headers(headers)
    calls = start(40, lambda: call(gate))
    await asyncio.sleep(after_s)
    binding = gate.binding_limit()
    for task in calls:
        task.cancel()
    await settled(calls)
    await gate.aclose()
    return binding


HEADERS = {"x-ratelimit-limit-requests": "12"}
FAST, FEW = RateLimits(requests_per_min=60_000), RateLimits(requests_per_min=60_000, concurrency=3)


@pytest.mark.parametrize(
    ("after_s", "options", "limit"),
    [
        (30, {"limits": SLOW, "is_firm": True}, ("requests_per_min", 6, "set")),
        (30, {"limits": SLOW, "is_firm": False}, ("requests_per_min", 6, "assumed")),
        (
            30,
            {"headers": HEADERS, "limits": RateLimits(), "is_firm": False},
            ("requests_per_min", 12, "told"),
        ),
        (0.5, {"limits": FAST, "is_firm": True, "max_in_flight": 4}, ("in_flight", 4, "set")),
        (2.5, {"limits": FEW, "is_firm": False, "max_in_flight": 64}, ("in_flight", 3, "assumed")),
        # All calls are under way, or none is
        (0.5, {"limits": FAST, "is_firm": True, "max_in_flight": 64}, None),
        (200, {"limits": FAST, "is_firm": True, "max_in_flight": 1}, None),
    ],
)
async def test_the_limit_that_binds_is_named_with_who_says_so(
    after_s: float, options: dict[str, Any], limit: tuple[str, float, Any] | None
) -> None:
    what, amount, source = limit or ("", 0, "set")
    expected = BindingLimit(what=what, amount=amount, source=source) if limit else None
    assert await binding(after_s, **options) == expected


async def test_429s_and_an_outage_are_what_the_judge_tells() -> None:
    gate, call = gate_to(Limiter(clock=clock), BreakerConfig(probe_s=30)), SimulatedCalls()
    refusals = [
        call(gate, takes_s=0.1, fails=Throttled("429", retry_after_s=20.0)) for _ in range(40)
    ]
    await asyncio.gather(*refusals, return_exceptions=True)
    refused = gate.binding_limit()
    await asyncio.sleep(60)
    for _ in range(FAILURES):
        with pytest.raises(Unavailable):
            await call(gate, fails=Unavailable("down"))
    down = gate.binding_limit()
    await gate.aclose()
    assert refused is not None
    assert (refused.what, refused.source) == ("refusals", "told")
    assert 0 < refused.amount <= 20
    assert down == BindingLimit(what="outage", amount=0, source="told")
