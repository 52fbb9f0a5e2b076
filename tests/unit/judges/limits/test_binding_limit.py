"""Which limit keeps calls back, and who says so, as a run shows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import Throttled, Unavailable
from memray_eval.judges.call_metrics import BindingLimit
from memray_eval.judges.limits.rate_limiter import Limiter
from tests.unit.judges.limits.test_admission import Calls, gate_to, settled, start
from tests.unit.judges.limits.test_rate_limiter import clock, run

SLOW = RateLimits(requests_per_min=6)


def binding(after_s: float, headers: dict[str, str] | None = None, **options: Any) -> Any:
    """The limit that holds 40 calls of 1 s each back, so long after they began."""

    async def main() -> BindingLimit | None:
        gate, call = gate_to(Limiter(clock=clock), **options), Calls()
        if headers is not None:
            await call(gate, takes_s=0.1)
            await gate.observe_headers(headers)
        calls = start(40, lambda: call(gate))
        await asyncio.sleep(after_s)
        found = gate.binding_limit()
        for one in calls:
            one.cancel()
        await settled(calls)
        await gate.aclose()
        return found

    return run(main())


def test_a_limit_of_the_job_is_set() -> None:
    found = binding(30, limits=SLOW, is_firm=True)
    assert found == BindingLimit(what="requests_per_min", amount=6, source="set")


def test_a_limit_of_the_judge_table_is_assumed() -> None:
    found = binding(30, limits=SLOW, is_firm=False)
    assert found == BindingLimit(what="requests_per_min", amount=6, source="assumed")


def test_a_limit_of_the_providers_headers_is_told() -> None:
    headers = {"x-ratelimit-limit-requests": "12"}
    found = binding(30, headers, limits=RateLimits(), is_firm=False)
    assert found == BindingLimit(what="requests_per_min", amount=12, source="told")


def test_where_the_rate_is_free_the_places_bind() -> None:
    fast = RateLimits(requests_per_min=60_000)
    found = binding(0.5, limits=fast, is_firm=True, max_in_flight=4)
    assert found == BindingLimit(what="in_flight", amount=4, source="set")


def test_an_assumed_number_of_calls_at_a_time_is_assumed() -> None:
    few = RateLimits(requests_per_min=60_000, concurrency=3)
    found = binding(2.5, limits=few, is_firm=False, max_in_flight=64)
    assert found == BindingLimit(what="in_flight", amount=3, source="assumed")


def test_nothing_binds_where_all_calls_are_under_way_or_none_is() -> None:
    fast = RateLimits(requests_per_min=60_000)
    assert binding(0.5, limits=fast, is_firm=True, max_in_flight=64) is None
    assert binding(200, limits=fast, is_firm=True, max_in_flight=1) is None


def test_429s_and_an_outage_are_what_the_judge_tells() -> None:
    async def main() -> list[BindingLimit | None]:
        gate, call = gate_to(Limiter(clock=clock), BreakerConfig(failures=1, probe_s=30)), Calls()
        refusals = [
            call(gate, takes_s=0.1, fails=Throttled("429", retry_after_s=20.0)) for _ in range(40)
        ]
        await asyncio.gather(*refusals, return_exceptions=True)
        refused = gate.binding_limit()
        await asyncio.sleep(60)
        with pytest.raises(Unavailable):
            await call(gate, fails=Unavailable("down"))
        down = gate.binding_limit()
        await gate.aclose()
        return [refused, down]

    refused, down = run(main())
    assert refused is not None
    assert (refused.what, refused.source) == ("refusals", "told")
    assert 0 < refused.amount <= 20
    assert down == BindingLimit(what="outage", amount=0, source="told")
