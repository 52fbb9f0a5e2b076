"""What limiters of several clusters know together, in one Redis: for each judge the members and
the pace, as JSON under a key, which a script replaces if nobody else was first."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from memray_eval.config.environment import REDIS_PASSWORD, api_key
from memray_eval.errors import ConfigError, ServiceLost
from memray_eval.judges.limits.rate_limiter import FORGET_S, T
from memray_eval.judges.limits.rate_pacer import LATE_S
from memray_eval.log_once import log_once

logger = logging.getLogger(__name__)

PREFIX = "memray_eval:limits:1:"  # another number when what is kept changes
LOST_S = 60.0  # nothing is granted while Redis is lost; after so long it is an error
AGAIN_S, ANSWER_S = 0.5, 5.0
# Keeps `state` in the place of the one that was read (ARGV[1]), for so many seconds
SWAP = """
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'state', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""


class RedisLimits:
    """SharedLimits in the Redis at `url`. While it does not answer calls wait, for `lost_s`."""

    def __init__(self, url: str, lost_s: float = LOST_S) -> None:
        self._url, self._lost_s = url, lost_s
        self._own: dict[str, bytes] = {}  # the last version by key, if it is of this limiter
        self._redis = Redis.from_url(url, **_options())

    async def swap(self, judge: str, change: Callable[[bytes | None], tuple[T, bytes]]) -> T:
        key, written, lost_at = PREFIX + judge, b"", math.inf
        while True:
            try:
                version, state = await self._redis.hmget(key, "version", "state")
                if not written or version != written:  # else only the answer was lost
                    is_own = version is not None and version == self._own.get(key)
                    changed, after = change(None if is_own else state)
                    written = uuid.uuid4().hex.encode()
                    values = (version or b"", written, after, int(FORGET_S))
                    if not await self._redis.eval(SWAP, 1, key, *values):
                        written, lost_at = b"", math.inf
                        continue
                self._own[key] = written
                return changed
            except RedisError as error:
                lost_at = min(lost_at, time.monotonic())
                if time.monotonic() - lost_at > self._lost_s:
                    raise ServiceLost(
                        f"{self._url} (judging.limits_at) has not answered for {self._lost_s:g} s, "
                        f"and no judge is asked without it: {error}"
                    ) from None
                text = "%s (judging.limits_at) does not answer; judge calls wait for it: %s"
                log_once(logger, logging.WARNING, self._url, text, self._url, error)
                await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        await self._redis.aclose()


def check_limits_at(url: str) -> None:
    """Raises ConfigError if a Redis cannot be used, or its clock is another: slots are times."""
    try:
        with redis.Redis.from_url(url, **_options()) as client:
            seconds, microseconds = client.time()
    except RedisError as error:
        raise ConfigError(
            f"judging.limits_at: {url} cannot be used: {str(error).rstrip('.')}. Start it "
            f"(redis-server), or mend the address; its password is what {REDIS_PASSWORD} holds in "
            "the environment"
        ) from None
    if abs(ahead_s := seconds + microseconds / 1e6 - time.time()) > LATE_S:
        raise ConfigError(
            f"judging.limits_at: the clock of {url} is {ahead_s:+z.1f} s off this machine's, and "
            f"calls are paced by time; set both by NTP (at most {LATE_S:g} s apart)"
        )


def _options() -> dict[str, Any]:
    """The password is not a part of any URL, job or record."""
    times = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}
    return {**times, "protocol": 2, "password": api_key(REDIS_PASSWORD)}
