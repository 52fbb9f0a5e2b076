"""Pools over real SDKs: two servers as one judge, of which one dies and comes back, refuses calls,
or has a wrong key; what is remembered, and what is booked by member."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from memray_eval.config.environment import BASE_URL_VARIABLES
from memray_eval.config.sections import BreakerConfig, JudgePrice, JudgingConfig, NamedServer
from memray_eval.errors import JudgeError, Unauthorised
from memray_eval.judges.call_metrics import CallMetrics
from memray_eval.ports import Verdict
from memray_eval.provider_http import closing_clients
from memray_eval.types import Message
from tests.fake_judges import MemoryStore, build_judge
from tests.servers.provider import Fault, Limits, Provider, serving
from tests.wire.test_environment import Rating

QUICK = BreakerConfig(probe_s=0.2, longest_probe_s=0.5)
RATED = '{"score": 1}'


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in BASE_URL_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    for name in ("EAST", "WEST"):
        monkeypatch.setenv(f"{name}_KEY", f"sk-{name.lower()}-0123456789")


class Asking:
    """A pool's judge in one actor: what it is asked, hears and counts."""

    def __init__(
        self,
        urls: dict[str, str],
        judge: str = "both/m",
        store: MemoryStore | None = None,
        **more: Any,
    ) -> None:
        account = more.pop("account", {})
        servers: dict[str, Any] = {
            name: NamedServer(url=url, api_key_env=f"{name.upper()}_KEY", **account.get(name, {}))
            for name, url in urls.items()
        }
        servers["both"] = NamedServer(pool=tuple(urls))
        self.config = JudgingConfig(servers=servers, breaker=QUICK, **more)
        self.lines, self.metrics, self.judge, self.store = list[str](), CallMetrics(), judge, store

    async def __aenter__(self) -> Asking:
        self._clients = closing_clients()
        await self._clients.__aenter__()
        shared = {"calls": self.store, "watch": self.metrics.observer_for}
        self.built = build_judge(self.judge, self.config, say=self.lines.append, **shared)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.__aexit__(None, None, None)

    async def ask(self, text: str) -> Verdict:
        rubric = Message(role="system", content="The rubric.")
        return await self.built.judge([rubric, Message(role="user", content=text)], Rating)

    async def ask_many(self, name: str, count: int) -> list[Verdict | BaseException]:
        asking = (self.ask(f"{name} {number}") for number in range(count))
        return list(await asyncio.gather(*asking, return_exceptions=True))


@pytest.fixture
def west() -> Iterator[Provider]:
    with serving(lambda body: RATED, 0.02) as server:
        yield server


def test_one_member_dies_in_mid_run_and_comes_back(west: Provider) -> None:
    """All calls get their verdict, those that were under way at it too; none is paid twice, and
    it is said why it rests."""

    async def main() -> tuple[Asking, list[Verdict | BaseException], list[Provider]]:
        with ExitStack() as first:
            east = first.enter_context(serving(lambda body: RATED, 0.02))
            async with Asking({"east": east.base_url, "west": west.base_url}) as asking:
                ends = await asking.ask_many("before", 40)
                # Those that have no answer yet are lost with it
                under_way = asyncio.create_task(asking.ask_many("through it", 60))
                await asyncio.sleep(0.03)
                await asyncio.to_thread(first.close)
                ends += await under_way
                ends += await asking.ask_many("while it is down", 40)
                n_down = len(asking.lines)
                with serving(lambda body: RATED, 0.02, port=east.port) as again:
                    until = time.monotonic() + 5
                    while not again.answered and time.monotonic() < until:
                        ends += await asking.ask_many(f"probe {len(ends)}", 1)
                        await asyncio.sleep(0.1)
                    ends += await asking.ask_many("after", 40)
        assert asking.lines[n_down:][0].startswith("east/m: answers again after")
        return asking, ends, [east, again]

    asking, ends, (east, again) = asyncio.run(main())
    assert [end for end in ends if not isinstance(end, Verdict)] == []
    assert {end.judge for end in ends if isinstance(end, Verdict)} == {"both/m"}
    assert min(east.answered.total(), again.answered.total(), west.answered.total()) >= 15
    assert again.answered.total() >= 15, "it is asked as before"
    lost = east.answered.total() + again.answered.total() + west.answered.total() - len(ends)
    assert 0 <= lost <= 20, "answers that the dying server had on their way"
    assert not (again.answered & west.answered)
    assert asking.lines[0].startswith("east/m: 3 calls in a row failed (")
    assert "it rests, and the others of both/m are asked" in asking.lines[0]
    # Again where the last answers on their way come in between
    assert len(asking.lines) <= 6, asking.lines


def test_429s_of_one_of_two_hold_up_no_call(west: Provider) -> None:
    async def main(urls: dict[str, str]) -> tuple[list[Verdict | BaseException], float]:
        async with Asking(urls) as asking:
            ends = await asking.ask_many("first", 8)
            began = time.monotonic()
            ends += await asking.ask_many("then", 60)
            return ends, time.monotonic() - began

    limits = Limits(requests_per_min=60, window_s=10.0, announce=False)
    with serving(lambda body: RATED, 0.02, limits=limits) as east:
        ends, took_s = asyncio.run(main({"east": east.base_url, "west": west.base_url}))
    assert [end for end in ends if not isinstance(end, Verdict)] == []
    assert east.n_429 >= 1
    assert took_s < 5.0, "its Retry-After is some ten seconds"
    assert east.answered.total() + west.answered.total() == len(ends)
    assert not (east.answered & west.answered)


def test_a_wrong_key_at_one_is_said_and_the_other_is_asked(west: Provider) -> None:
    async def main(urls: dict[str, str]) -> tuple[Asking, list[Any]]:
        async with Asking(urls) as asking:
            return asking, await asking.ask_many("one", 20)

    with serving(lambda body: Fault(401)) as east:
        asking, ends = asyncio.run(main({"east": east.base_url, "west": west.base_url}))
        both, refused = asyncio.run(main({"east": east.base_url}))
    assert [end for end in ends if not isinstance(end, Verdict)] == []
    assert west.answered.total() == 20
    messages = [line for line in asking.lines if line.startswith("east/m: a call failed (401")]
    assert len(messages) == 1
    assert {type(end) for end in refused} == {Unauthorised}
    assert any("all of the pool both/m rest" in str(end) for end in refused), refused
    assert both.lines


def test_a_storm_of_5xx_at_one_member(west: Provider) -> None:
    async def main(urls: dict[str, str]) -> list[Any]:
        async with Asking(urls) as asking:
            return await asking.ask_many("one", 50)

    with serving(lambda body: Fault(503)) as east:
        ends = asyncio.run(main({"east": east.base_url, "west": west.base_url}))
    assert [end for end in ends if not isinstance(end, Verdict)] == []
    assert west.answered.total() == 50


def test_verdicts_are_the_models_whoever_gave_them(west: Provider) -> None:
    """Another member, or a pool of other members, finds them; a server by itself is another."""
    store = MemoryStore()

    async def main(urls: dict[str, str], judge: str = "both/m") -> Verdict:
        async with Asking(urls, judge, store) as asking:
            return await asking.ask("The same.")

    with serving(lambda body: RATED) as east:
        urls = {"east": east.base_url, "west": west.base_url}
        first = asyncio.run(main(urls))
        again = [asyncio.run(main({name: urls[name]})) for name in urls]
        alone = asyncio.run(main(urls, "east/m"))
    assert not first.cached
    assert all(verdict.cached and verdict.judge == "both/m" for verdict in again)
    assert not alone.cached
    assert len(store.calls) == 2


def test_costs_are_those_of_the_member_that_was_asked(west: Provider) -> None:
    async def main(urls: dict[str, str]) -> tuple[Asking, list[Any]]:
        prices = {"east": 1.0, "west": 100.0}
        account = {
            name: {"price": JudgePrice(input_usd=usd, output_usd=usd)}
            for name, usd in prices.items()
        }
        async with Asking(urls, account=account) as asking:
            return asking, await asking.ask_many("one", 30)

    with serving(lambda body: RATED, 0.02) as east:
        asking, verdicts = asyncio.run(main({"east": east.base_url, "west": west.base_url}))
    calls = {name: drained.calls for name, drained in asking.metrics.drain().items()}
    assert (calls["east/m"].sent, calls["west/m"].sent) == (len(east.requests), len(west.requests))
    assert min(calls["east/m"].sent, calls["west/m"].sent) >= 10
    east_usd, west_usd = calls["east/m"].cost_usd, calls["west/m"].cost_usd
    assert west_usd / calls["west/m"].sent == pytest.approx(100 * east_usd / calls["east/m"].sent)
    assert sum(verdict.cost_usd for verdict in verdicts) == pytest.approx(east_usd + west_usd)
    assert sum(calls["east/m"].took.values()) + sum(calls["west/m"].took.values()) == 30


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_two_accounts_of_a_provider_are_asked_by_their_own_keys(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the provider itself is: with its parameters, and remembered as its model."""
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-of-nobody")
    model = {"anthropic": "claude-opus-4-5", "openai": "gpt-4o"}[provider]

    def keys_of(asking: Asking) -> str:
        judge = asking.built._judges[0]._judge  # type: ignore[attr-defined]
        return str(judge.call([Message(role="user", content="x")], Rating).key)

    async def main(urls: dict[str, str]) -> tuple[list[Any], set[str]]:
        account = {name: {"provider": provider} for name in urls}
        async with Asking(urls, f"both/{model}", account=account) as asking:
            ends, keys = await asking.ask_many("one", 20), {keys_of(asking)}
        async with Asking({}, f"{provider}/{model}") as plain:
            return ends, keys | {keys_of(plain)}

    with serving(lambda body: RATED, 0.02) as east, serving(lambda body: RATED, 0.02) as west:
        urls = [side.root if provider == "anthropic" else side.base_url for side in (east, west)]
        ends, keys = asyncio.run(main(dict(zip(("east", "west"), urls, strict=True))))
    assert [end for end in ends if isinstance(end, JudgeError)] == []
    assert len(keys) == 1
    for name, server in (("east", east), ("west", west)):
        assert server.headers
        assert all(f"sk-{name}-0123456789" in str(headers) for headers in server.headers)
        limit = "max_tokens" if provider == "anthropic" else "max_completion_tokens"
        assert limit in server.requests[0]
