"""One limit for several clusters, by a real redis-server: swaps that nothing comes between, a
password, a Redis that is lost for a while or for good, and runs of two clusters at once."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("redis", reason="no client here: pip install 'memray-eval[redis]'")

from memray_eval.config.environment import REDIS_PASSWORD
from memray_eval.errors import ConfigError, ServiceLost
from memray_eval.judges.limits import redis_limits
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.limits.rate_pacer import HORIZON_S
from memray_eval.judges.limits.redis_limits import PREFIX, RedisLimits, check_limits_at
from tests.build import finish, go_on, judging_job, write_responses
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Limits, serving
from tests.servers.redis_server import serving_redis
from tests.unit.judges.limits.test_shared_limits import wanted

PASSWORD = "correct-horse-battery"


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


class Counting:
    """One limiter's part: it counts on from what another has put there, else from its own."""

    def __init__(self, url: str) -> None:
        self.store, self._last = RedisLimits(url), 0

    def _change(self, kept: bytes | None) -> tuple[int, bytes]:
        self._last = 1 + (self._last if kept is None else int(kept))
        return self._last, str(self._last).encode()

    async def count(self, times: int) -> list[int]:
        return [await self.store.swap("j", self._change) for _ in range(times)]


def test_nothing_comes_between_swaps_of_many() -> None:
    async def main(url: str) -> list[int]:
        counting = [Counting(url) for _ in range(4)]
        numbers = await asyncio.gather(*(one.count(25) for one in counting))
        for one in counting:
            await one.store.close()
        return sorted(number for own in numbers for number in own)

    with serving_redis() as url:
        assert asyncio.run(main(url)) == list(range(1, 101))


def test_an_answer_that_is_lost_is_not_a_second_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_limits, "AGAIN_S", 0.01)

    async def main(url: str) -> list[int]:
        one, answers = Counting(url), list[Any]()
        swap = one.store._redis.eval

        async def lose_the_first(*values: Any) -> Any:
            answers.append(await swap(*values))
            if len(answers) == 1:
                raise redis_limits.RedisError("the connection was cut")
            return answers[-1]

        monkeypatch.setattr(one.store._redis, "eval", lose_the_first)
        numbers = await one.count(2)
        await one.store.close()
        return numbers

    with serving_redis() as url:
        assert asyncio.run(main(url)) == [1, 2]


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_redis(password=PASSWORD) as url:
        for password, problem in ((None, "Authentication required"), (f"{PASSWORD}!", "password")):
            if password is not None:
                monkeypatch.setenv(REDIS_PASSWORD, password)
            with pytest.raises(ConfigError, match=problem) as raised:
                check_limits_at(url)
            assert REDIS_PASSWORD in str(raised.value)
            assert PASSWORD not in str(raised.value)
        monkeypatch.setenv(REDIS_PASSWORD, PASSWORD)
        check_limits_at(url)


def test_what_cannot_be_used_is_said_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_redis() as url:
        monkeypatch.setattr(redis_limits.time, "time", lambda now=time.time: now() + 3.0)
        with pytest.raises(ConfigError, match=r"-3\.\d s off this machine's"):
            check_limits_at(url)
    with pytest.raises(ConfigError, match=r"cannot be used: .*Start it"):
        check_limits_at(url)


def test_a_redis_that_comes_back_goes_on_and_one_that_does_not_is_an_error() -> None:
    """The pace is that of before: what the lost one knew, a limiter knows."""

    async def main(url: str, port: int) -> tuple[float, float]:
        limiter = Limiter(shared=RedisLimits(url, lost_s=10.0))
        before = (await limiter.reserve(wanted("a"))).times
        down.close()
        waiting = asyncio.create_task(limiter.reserve(wanted("a")))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        with serving_redis(port):
            after = (await waiting).times
        limiter._shared._lost_s = 1.0  # type: ignore[union-attr]
        with pytest.raises(ServiceLost, match=f"{url} .* has not answered for 1 s"):
            await limiter.reserve(wanted("a"))
        await limiter.close()
        return before[-1], after[0]

    with ExitStack() as down:
        url = down.enter_context(serving_redis())
        before, after = asyncio.run(main(url, port_of(url)))
    assert after >= before + 0.09


def test_a_run_that_loses_its_redis_ends_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisLimits.__init__, "__defaults__", (1.0,))
    asked = list[dict[str, Any]]()

    def reply(body: dict[str, Any]) -> str:
        asked.append(body)
        if len(asked) == 5:
            down.close()
        return judgment_reply(body)

    with ExitStack() as down, serving(reply) as server:
        url = down.enter_context(serving_redis())
        judging = {"limits": {"openai/local": {"requests_per_min": 60}}, "limits_at": url}
        data = write_responses(tmp_path, 12)
        job = judging_job(data, tmp_path, server.base_url, ("empathy",), "local", **judging)
        with pytest.raises(ServiceLost, match="has not answered for 1 s"):
            finish(job)
        assert 5 <= len(asked) < 12
        (folder,) = tmp_path.glob("memory-given-*")
        with serving_redis(port_of(url)):
            done = go_on(str(folder))
    assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
    assert len(asked) == 12, "none is asked twice"


def test_runs_of_two_clusters_keep_one_limit(tmp_path: Path) -> None:
    """Each may ask 120 times a minute; the server takes as many of both together, in any 20 s."""
    limits = Limits(requests_per_min=140, window_s=20.0)
    n_clusters, units, per_min = 2, 16, 120
    with serving_redis() as url, serving(judgment_reply, limits=limits) as server:
        jobs = []
        for cluster in range(n_clusters):
            own = tmp_path / str(cluster)
            own.mkdir()
            judging = {
                "limits": {"openai/local": {"requests_per_min": per_min}},
                "limits_at": url,
            }
            data = write_responses(own, units)
            jobs.append(judging_job(data, own, server.base_url, ("empathy",), "local", **judging))
        with ThreadPoolExecutor(n_clusters) as pool:
            done = list(pool.map(finish, jobs))
        assert [run.summary.n_failed_units for run in done] == [0] * n_clusters
        assert (server.n_429, len(server.times)) == (0, n_clusters * units)
        took_s = server.times[-1] - server.times[0]
        with redis_limits.redis.Redis.from_url(url) as client:
            (key,) = client.keys()
            kept = client.hget(key, "state")
    assert key.decode().startswith(f"{PREFIX}openai/local@127.0.0.1:{server.port}/v1")
    assert b'"members":{}' in kept, "both have taken leave"
    # Apart they would take half of that; what is late is made good, up to a horizon
    assert took_s >= (n_clusters * units - 1) * 60 / per_min - HORIZON_S
