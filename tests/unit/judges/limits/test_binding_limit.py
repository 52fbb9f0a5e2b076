"""Which limit keeps calls back, and who says so, as a run shows it."""

import asyncio
from typing import Any

import pytest

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import Throttled, Unavailable
from memray_eval.judges.call_metrics import BindingLimit
from memray_eval.judges.limits.breaker import FAILURES
from memray_eval.judges.limits.rate_limiter import Limiter
from tests.unit.judges.limits.test_admission import Calls, gate_to, settled, start
from tests.unit.judges.limits.test_rate_limiter import VirtualLoop, clock

LOOP = VirtualLoop
SLOW = RateLimits(requests_per_min=6)


async def binding(
    after_s: float, headers: dict[str, str] | None = None, **options: Any
) -> BindingLimit | None:
    """The limit that holds 40 calls of 1 s each back, so long after they began."""
    gate, call = gate_to(Limiter(clock=clock), **options), Calls()
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
    gate, call = gate_to(Limiter(clock=clock), BreakerConfig(probe_s=30)), Calls()
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
