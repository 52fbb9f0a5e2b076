"""Many members and large limits: calls are planned in groups and asked for in bulk, which passes no
limit, wastes none, serves all alike, and costs the limiter a message now and then instead of one a
call."""

import asyncio
from itertools import pairwise

import pytest

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.rate_limiter import (
    LEAST_TURN,
    MESSAGES_PER_S,
    Grant,
    Limiter,
    Reservation,
)
from memray_eval.judges.limits.rate_pacer import GROUP_S, HORIZON_S, LATE_S, CallCost, RatePacer
from tests.bench.large_limits import Setting, Story, simulate
from tests.unit.judges.limits.test_admission import Calls, Scripted, gate_to, settled, start
from tests.unit.judges.limits.test_rate_limiter import (
    EPOCH,
    Slot,
    VirtualLoop,
    clock,
    most,
    of_any_size,
    one_request,
    saturate,
)

LOOP = VirtualLoop
night = pytest.mark.night
LARGE = RateLimits(requests_per_min=60_000, tokens_per_min=60e6)
SECONDS = 75.0


@pytest.mark.heavy
@pytest.mark.parametrize("largest", [500.0, 8000.0])
def test_groups_pass_no_limit_in_any_stretch_and_use_it(largest: float) -> None:
    """The largest of these calls takes as much as eight of the average that fits."""
    pace = RatePacer(LARGE, is_firm=True)
    slots = saturate(pace, of_any_size(largest, 1), EPOCH + SECONDS, chunk=300)
    calls, tokens = LARGE.requests_per_min or 0, LARGE.tokens_per_min or 0
    assert most(slots, one_request) <= calls
    assert most(slots, lambda cost: cost.tokens) <= tokens
    minutes = SECONDS / 60
    by_calls = len(slots) / (calls * minutes)
    by_tokens = sum(slot.cost.tokens for slot in slots) / (tokens * minutes)
    assert max(by_calls, by_tokens) >= 0.98
    gaps = [after.at - before.at for before, after in pairwise(slots)]
    assert min(gaps) >= 0.0, "in order"
    assert most(slots, one_request, span_s=1.0) <= 1.2 * calls / 60, "evenly, but for a group"
    assert GROUP_S <= LATE_S / 10


def test_small_limits_are_planned_call_by_call() -> None:
    pace = RatePacer(RateLimits(requests_per_min=600), is_firm=True)
    times = pace.reserve([CallCost(1000, 300)] * 40, EPOCH)
    assert [after - before for before, after in pairwise(times)] == pytest.approx(
        [60.7 / 600] * (len(times) - 1), abs=1e-5
    )


def ask(member: str, calls: int, limits: RateLimits = LARGE) -> Reservation:
    return Reservation("judge", member, (CallCost(700, 300),) * calls, limits, is_firm=True)


async def test_members_gather_as_long_as_all_their_messages_are_few() -> None:
    limiter, grants = Limiter(clock=clock), list[Grant]()
    for number in range(32):
        grants.append(await limiter.reserve(ask(str(number), 1)))
    assert grants[-1].gather_s == pytest.approx(32 / MESSAGES_PER_S)
    few = RateLimits(requests_per_min=60 * MESSAGES_PER_S)
    small = Limiter(clock=clock)
    for number in range(32):
        grant = await small.reserve(ask(str(number), 1, few))
    assert grant.gather_s == 0.0, "there are few messages anyway"
    granted = await limiter.reserve(ask("1", 200))
    assert LEAST_TURN <= len(granted.times) <= 40, "twice what it sends meanwhile"


class Gathering(Scripted):
    """A limiter that has slots from `lead_s` on, as many as are asked for."""

    def __init__(self, gather_s: float, lead_s: float) -> None:
        super().__init__()
        self._gather_s, self._lead_s = gather_s, lead_s
        self.asked_at = list[float]()

    async def reserve(self, wanted: Reservation) -> Grant:
        if not wanted.costs:
            return await super().reserve(wanted)
        self.seen.append(wanted)
        self.asked_at.append(clock() - EPOCH)
        times = (clock() + self._lead_s,) * len(wanted.costs)
        return Grant(times, gather_s=self._gather_s)


async def call_steadily(limiter: Scripted, per_s: float, seconds: float) -> Calls:
    gate, call = gate_to(limiter, max_in_flight=500), Calls()
    tasks: list[asyncio.Task[object]] = []
    for _ in range(int(per_s * seconds)):
        tasks += start(1, lambda: call(gate))  # type: ignore[arg-type]
        await asyncio.sleep(1 / per_s)
    await settled(tasks)
    await gate.aclose()
    return call


@pytest.mark.parametrize("lead_s", [0.0, 2.0])
async def test_calls_gather_between_two_requests_which_ask_for_no_more_than_wait(
    lead_s: float,
) -> None:
    limiter = Gathering(gather_s=0.5, lead_s=lead_s)
    call = await call_steadily(limiter, per_s=40, seconds=10)
    assert len(call.sent) == 400
    assert len(limiter.seen) <= 10 / 0.5 + 3
    gaps = [after - before for before, after in pairwise(limiter.asked_at)]
    assert min(gaps[1:]) >= 0.5 - 1e-6
    assert sum(len(wanted.costs) for wanted in limiter.seen) == 400


MANY = Setting(Story(""), 60, RateLimits(requests_per_min=900, tokens_per_min=990_000), 3.0, 150, 1)
WIDE = Setting(Story(""), 32, RateLimits(requests_per_min=12_000, tokens_per_min=24e6), 1.0, 50, 1)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("setting", "story", "least_use"),
    [
        pytest.param(MANY, Story("requests bind", tokens=0.9), 0.98, marks=night),
        (MANY, Story("tokens bind", tokens=1.8), 0.97),
        (MANY, Story("a tenth dies, the limiter restarts", 0.5, dying=0.1, restarts=True), 0.9),
        pytest.param(
            MANY, Story("both are close then", 0.9, dying=0.1, restarts=True), 0.8, marks=night
        ),
        pytest.param(MANY, Story("some ask now and then", 0.9, light=0.1), 0.98, marks=night),
        pytest.param(WIDE, Story("requests bind"), 0.98, marks=night),
        pytest.param(
            WIDE, Story("a quarter of the actors ask little", light=0.25), 0.98, marks=night
        ),
    ],
)
def test_members_use_a_limit_evenly_pass_it_never_and_send_few_messages(
    setting: Setting, story: Story, least_use: float
) -> None:
    """The figures of 100,000 requests/min over 64 actors are in tests/bench."""
    result = simulate(setting._replace(story=story), settled_s=0.4 * setting.seconds)
    assert result.refused == 0
    assert max(result.use_requests, result.use_tokens) >= least_use
    assert result.jain >= 0.99
    assert result.messages_per_s <= 1.5 * MESSAGES_PER_S
    # Not for a chunk of each of the others: a round of them, and what is planned ahead
    fair_s = 60 * setting.members / (setting.limits.requests_per_min or 1)
    assert result.longest_light_s <= fair_s + HORIZON_S + 2.0


def test_slots_of_a_group_keep_their_order_for_the_window() -> None:
    """A group counts to its last call: until then a minute holds all of it."""
    pace = RatePacer(RateLimits(requests_per_min=6000), is_firm=True)
    slots, now = list[Slot](), EPOCH
    while now < EPOCH + 70:
        slots += [Slot(at) for at in pace.reserve([CallCost()] * 500, now)]
        now += 0.05
    assert most(slots, one_request) <= 6000
