"""Pools on simulated time: each call goes where there is room, a member that fails rests and its
calls go on elsewhere, and no call is lost or waits without an end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import JudgeError, Stopped, Throttled, Unauthorised, Unavailable
from memray_eval.judges.limits.limiter_member import CallPermit, RunHooks
from memray_eval.judges.limits.pool import KEPT_CALLS, MemberPool
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.provider_http.retry import RetryPolicy
from tests.unit.judges.limits.test_admission import USED, gate_to
from tests.unit.judges.limits.test_rate_limiter import EPOCH, clock, run

Behave = Callable[[float], JudgeError | None]  # what a member does with a call, by the time


class Pool:
    """A pool of members on one limiter, and calls that go through it as a judge's do."""

    def __init__(
        self,
        behave: dict[str, Behave],
        *,
        limits: dict[str, RateLimits] | None = None,
        latency_s: float = 1.0,
        is_stopping: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> None:
        self.lines, self.seen = list[str](), list[tuple[float, str]]()
        self.answered, self._behave, self._latency_s = Counter[str](), behave, latency_s
        hooks = RunHooks(say=self.lines.append, clock=clock, is_stopping=is_stopping)
        limiter, limits = Limiter(clock=clock), limits or {}
        breaker = BreakerConfig(failures=3, fatal=1, probe_s=5, longest_probe_s=60)
        self.gates = {
            name: gate_to(
                limiter,
                breaker,
                name=name,
                hooks=hooks,
                others="the others of p are asked",
                limits=limits.get(name, RateLimits()),
                is_firm=name in limits,
                in_pool=True,
                **{"max_in_flight": 32} | options,
            )
            for name in behave
        }
        self.pool = MemberPool("p", self.gates, 300.0, 600.0, hooks)
        self._policy = RetryPolicy(clock=clock)

    async def ask(self, start_key: str | None = None) -> str:
        """One verdict; the member that gave it."""
        failed_at, at = set[str](), [""]

        @asynccontextmanager
        async def enter(name: str) -> AsyncIterator[CallPermit]:
            at[0] = name
            async with self.gates[name].permit(1000) as permit:
                yield permit

        async def call(permit: CallPermit) -> str:
            self.seen.append((clock() - EPOCH, at[0]))
            if (error := self._behave[at[0]](clock() - EPOCH)) is not None:
                raise error
            await asyncio.sleep(self._latency_s)
            # Who dies takes along what is under way; who refuses calls answers it
            error = self._behave[at[0]](clock() - EPOCH)
            if error is not None and not isinstance(error, Throttled):
                raise error
            permit.used = USED
            self.answered[at[0]] += 1
            return at[0]

        return await self._policy.run(
            call, lambda: self.pool.permit_at_member(enter, start_key, failed_at)
        )

    async def ask_many(
        self, count: int, per_s: float = 1e6, start_key: str | None = None
    ) -> list[Any]:
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(self.ask(start_key)))
            await asyncio.sleep(1 / per_s)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for gate in self.gates.values():
            await gate.aclose()
        return ends


def fine(at: float) -> None:
    return None


def down(since: float, until: float, error: Callable[[], JudgeError]) -> Behave:
    return lambda at: error() if since <= at < until else None


REFUSED = partial(Unavailable, "connection refused")
UNAUTHORISED = partial(Unauthorised, "401: the key is wrong")


@pytest.mark.parametrize(
    "of_small",
    [
        RateLimits(requests_per_min=180),
        RateLimits(requests_per_min=900, tokens_per_min=234_000),  # of 180 calls
    ],
)
def test_members_are_asked_by_what_their_limits_allow(of_small: RateLimits) -> None:
    async def main() -> None:
        limits = {"big": RateLimits(requests_per_min=900), "small": of_small}
        pool = Pool({"big": fine, "small": fine}, limits=limits, max_in_flight=200)
        ends = await pool.ask_many(1080)
        assert Counter(map(type, ends)) == {str: 1080}
        assert clock() - EPOCH <= 1.2 * 60, "1,080 a minute together"
        assert 4.0 <= pool.answered["big"] / pool.answered["small"] <= 6.5

    run(main())


@pytest.mark.parametrize("error", [REFUSED, UNAUTHORISED])
def test_one_dies_in_mid_run_and_its_calls_go_on_elsewhere(error: Callable[[], JudgeError]) -> None:
    """It rests with a growing pause between tries, which is said once, and comes back."""

    async def main() -> None:
        pool = Pool({"a": down(20.0, 140.0, error), "b": fine})
        ends = await pool.ask_many(1000, per_s=5)
        assert Counter(map(type, ends)) == {str: 1000}
        before, during = (
            Counter(name for at, name in pool.seen if start <= at < end)
            for start, end in ((0, 20), (21, 140))
        )
        assert 40 <= before["a"] <= 60
        assert during["a"] <= 12, "a probe now and then"
        after = Counter(name for at, name in pool.seen if at >= 190)
        assert after["a"] >= 17, "it is asked as before"
        lost = 5 + 3  # under way when it died, and in a row until it rests
        assert len(pool.seen) <= 1000 + during["a"] + lost, "nothing else is asked twice"
        assert len(pool.lines) == 2
        assert str(error()) in pool.lines[0]
        assert "the others of p are asked, next try in" in pool.lines[0]
        assert pool.lines[1].startswith("a: answers again after ")

    run(main())


def test_calls_that_wait_for_a_slot_of_a_member_that_dies_do_not_wait_for_it() -> None:
    async def main() -> None:
        limits = dict.fromkeys(("a", "b"), RateLimits(requests_per_min=60))
        pool = Pool({"a": down(5.0, 1e9, REFUSED), "b": fine}, limits=limits)
        ends = await pool.ask_many(40)
        assert Counter(map(type, ends)) == {str: 40}
        assert pool.answered["b"] >= 33
        assert clock() - EPOCH <= 45

    run(main())


def test_429s_of_one_send_the_calls_to_the_other_at_once() -> None:
    """Not after its Retry-After: that is for the member, and no call waits for it."""

    async def main() -> None:
        refusal = partial(Throttled, "429", retry_after_s=30.0)
        limits = dict.fromkeys(("a", "b"), RateLimits(requests_per_min=6000))
        pool = Pool({"a": down(10.0, 40.0, refusal), "b": fine}, limits=limits)
        took = list[float]()

        async def ask() -> None:
            began = clock()
            await pool.ask()
            took.append(clock() - began)

        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(ask()))
            await asyncio.sleep(0.2)
        await asyncio.gather(*tasks)
        assert max(took) <= 2.0, "a second each, and the other one had room"
        refused = [at for at, name in pool.seen if name == "a" and 10 <= at < 40]
        assert len(refused) <= 20, "one in two would be 75"
        assert not [at for at in refused if at > 20]
        assert [at for at, name in pool.seen if name == "a" and at > 50], "it is back"

    run(main())


def test_all_keys_wrong_is_an_error_that_names_each() -> None:
    async def main() -> None:
        pool = Pool({"a": down(0, 1e9, UNAUTHORISED), "b": down(0, 1e9, UNAUTHORISED)})
        ends = await pool.ask_many(20)
        assert {type(end) for end in ends} == {Unauthorised}
        assert len(pool.seen) <= 4, "nobody is asked on"
        assert any(
            str(end)
            == "all of the pool p rest (a: 401: the key is wrong; b: 401: the key is wrong)"
            for end in ends
        )
        assert clock() - EPOCH < 5

    run(main())


def test_all_down_is_waited_for_as_a_single_server_is() -> None:
    async def main() -> tuple[list[Any], Pool]:
        pool = Pool({"a": down(5.0, 65.0, REFUSED), "b": down(5.0, 1e9, REFUSED)})
        return await pool.ask_many(300, per_s=10), pool

    ends, pool = run(main())
    assert sum(isinstance(end, str) for end in ends) >= 295, "a few had used up their tries"
    assert all(isinstance(end, str | Unavailable) for end in ends)
    assert pool.answered["a"] >= 250


@pytest.mark.heavy
def test_an_outage_without_end_fails_the_calls_after_outage_s() -> None:
    async def main() -> None:
        pool = Pool({"a": down(0, 1e9, REFUSED), "b": down(0, 1e9, REFUSED)})
        ends = await pool.ask_many(30)
        assert {type(end) for end in ends} == {Unavailable}
        assert 290 <= clock() - EPOCH <= 420
        messages = [str(end) for end in ends if "rest" in str(end)]
        assert messages
        assert all("a: connection refused; b: connection refused" in text for text in messages)
        assert not any(end.is_stalled for end in ends)

    run(main())


@pytest.mark.heavy
def test_429s_of_all_without_end_stall_the_judge() -> None:
    async def main() -> None:
        refusal = partial(Throttled, "429", retry_after_s=20.0)
        pool = Pool({"a": down(0, 1e9, refusal), "b": down(0, 1e9, refusal)})
        ends = await pool.ask_many(20)
        assert all(isinstance(end, Throttled) for end in ends)
        assert any(end.is_stalled for end in ends)
        assert clock() - EPOCH <= 900

    run(main())


def test_a_run_that_stops_does_not_wait_for_a_pool() -> None:
    async def main() -> None:
        stops = [False]
        pool = Pool({"a": down(0, 1e9, REFUSED)}, is_stopping=lambda: stops[0])
        asking = asyncio.create_task(pool.ask_many(5))
        await asyncio.sleep(20)
        stops[0] = True
        ends = await asking
        assert clock() - EPOCH <= 25
        assert Stopped in {type(end) for end in ends}

    run(main())


def test_calls_with_one_start_stay_at_one_member_while_it_has_room() -> None:
    async def main() -> None:
        names = ("a", "b", "c")
        pool = Pool(dict.fromkeys(names, fine), latency_s=0.1)
        homes = {}
        for number in range(60):
            key = f"start {number}"
            homes[key] = {await pool.ask(key) for _ in range(3)}
        assert all(len(home) == 1 for home in homes.values())
        at_each = Counter(home for names in homes.values() for home in names)
        assert min(at_each[name] for name in names) >= 10
        other = Pool(dict.fromkeys(names, fine), latency_s=0.1)
        assert {key: {await other.ask(key)} for key in homes} == homes, "in any actor"
        # One start for all calls: its home has more than the others, and not all
        crowded = Pool(dict.fromkeys(names, fine), latency_s=10.0)
        await crowded.ask_many(90, start_key="start 1")
        ranked = [count for _, count in crowded.answered.most_common()]
        assert ranked[0] <= 1.25 * 90 / 3 + KEPT_CALLS + 1
        assert len(ranked) >= 2

    run(main())


def test_a_start_moves_only_while_its_member_rests() -> None:
    async def main() -> None:
        names = ("a", "b", "c")
        pool = Pool(dict.fromkeys(names, fine))
        home = await pool.ask("start")
        pool._behave[home] = down(0, 100.0, REFUSED)
        away = Counter([await pool.ask("start") for _ in range(20)])
        assert home not in away
        assert len(away) == 1, "to one other"
        await asyncio.sleep(100 + 60)
        assert {await pool.ask("start") for _ in range(3)} == {home}

    run(main())
