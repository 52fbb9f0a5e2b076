"""Many judge actors on one limiter: no limit is passed in any minute, all get as much, nobody waits
for the greedy, actors that die and a limiter that restarts cost little. The simulation, and a
thousand members for ten minutes, are in tests/bench."""

from __future__ import annotations

import pytest

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.rate_pacer import HORIZON_S, LATE_S
from tests.bench.many_judges import Sent, jain, most_in, shares, simulated, use

MEMBERS, MINUTES, PER_MIN, TOKENS_PER_MIN = 60, 2.5, 900, 990_000
LIMITS = RateLimits(requests_per_min=PER_MIN, tokens_per_min=TOKENS_PER_MIN)
ROUND_S = MEMBERS / (PER_MIN / 60)  # each of the others has a slot in so long

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize(("mean_tokens", "binding"), [(1000.0, "requests"), (2000.0, "tokens")])
def test_many_members_keep_the_limits_use_them_and_get_as_much_as_each_other(
    mean_tokens: float, binding: str
) -> None:
    simulation = simulated(MEMBERS, MINUTES, LIMITS, mean_tokens=mean_tokens)
    _assert_within_limits(simulation.sent, simulation.granted)
    # Both are close: a large call must not hold up requests that others still have room for
    if binding == "requests":
        assert use(simulation, MINUTES, PER_MIN) >= 0.95
    else:
        assert use(simulation, MINUTES, TOKENS_PER_MIN, tokens=True) >= 0.93
    assert len(simulation.steady) == MEMBERS
    assert jain(shares(simulation, MINUTES)) >= 0.99
    assert min(shares(simulation, MINUTES)) > 0


@pytest.mark.parametrize(("mean_tokens", "least_use"), [(500.0, 0.93), (1000.0, 0.8)])
def test_a_tenth_that_dies_and_a_limiter_that_restarts_cost_a_few_seconds(
    mean_tokens: float, least_use: float
) -> None:
    """Where both limits are close, more: for a minute a limiter that has forgotten what was sent
    lets nobody catch up."""
    simulation = simulated(
        MEMBERS, MINUTES, LIMITS, mean_tokens=mean_tokens, dying=MEMBERS // 10, restarts=True
    )
    _assert_within_limits(simulation.sent, simulation.granted)
    assert use(simulation, MINUTES, PER_MIN) >= least_use
    assert len(simulation.steady) == 0.9 * MEMBERS
    assert jain(shares(simulation, MINUTES)) >= 0.99
    lost = len(simulation.granted) - len(simulation.sent)
    assert lost <= 2 * HORIZON_S * PER_MIN / 60, (
        "what the dead had in hand, and what was ahead at the end"
    )


def test_members_that_ask_now_and_then_wait_no_longer_than_a_round() -> None:
    """Not for a chunk of each of the others: they get 25 slots at a time where nobody else
    waits."""
    simulation = simulated(MEMBERS, MINUTES, LIMITS, light=6, light_every_s=15.0)
    _assert_within_limits(simulation.sent, simulation.granted)
    assert len(simulation.waits) >= 20
    assert max(simulation.waits) <= ROUND_S + HORIZON_S + 2.0
    assert jain(shares(simulation, MINUTES)) >= 0.99


def test_one_of_few_members_still_gets_many_slots_at_once() -> None:
    """With a turn for each call there would be a message to the limiter for each."""
    simulation = simulated(8, 1.0, RateLimits(requests_per_min=1200))
    assert len(simulation.granted) >= 3 * simulation.reservations


def test_the_same_seed_is_the_same_story() -> None:
    first, second = (simulated(10, 1.0, LIMITS, seed=7) for _ in range(2))
    assert first.sent == second.sent
    assert first.sent != simulated(10, 1.0, LIMITS, seed=8).sent


def _assert_within_limits(sent: list[Sent], granted: list[Sent]) -> None:
    """What is sent in any 60 s, and what could be, if each call were as late as it may."""
    for calls, span_s in ((sent, 60.0), (granted, 60.0 + LATE_S)):
        assert most_in(calls, span_s) <= PER_MIN
        assert most_in(calls, span_s, tokens=True) <= TOKENS_PER_MIN * (1 + 1e-6)
