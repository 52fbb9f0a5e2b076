"""When a judge call is tried again: one policy for all providers. The SDKs' own retries are off."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from memray_eval.errors import Throttled, Unavailable

SHORTEST_WAIT_S = 0.05  # also where a provider says 0, so that nobody is asked without a pause
logger = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """A throttled call waits as long as the provider says (else as a failure would) and is no try;
    a failed one waits a random share of a doubling delay, up to `tries` tries; to ask another
    member of a pool is no further try. No call waits past
    `ceiling_s` of wall clock in all; where a provider says to wait for longer than that, the
    admission decides when the next try goes."""

    tries: int = 5
    first_delay_s: float = 0.5
    longest_delay_s: float = 60.0
    ceiling_s: float = 600.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    chance: random.Random = field(default_factory=random.Random)

    async def run(
        self,
        call: Callable[[A], Awaitable[T]],
        admission: Callable[[], AbstractAsyncContextManager[A]],
    ) -> T:
        """The call's result. Every try goes through `admission`, whose waiting does not count.
        Raises the call's JudgeError when tries or time are used up, and any other at once; what
        `admission` itself raises is final."""
        left_s, failures, throttles = self.ceiling_s, 0, 0
        while True:
            is_admitted = False
            try:
                async with admission() as admitted:
                    is_admitted, began = True, self.clock()
                    try:
                        return await asyncio.wait_for(call(admitted), max(0.001, left_s))
                    except TimeoutError:
                        raise Unavailable(f"no verdict within {self.ceiling_s:g} s") from None
                    finally:
                        left_s -= self.clock() - began
            except Throttled as error:
                if not is_admitted:
                    raise
                throttles += 1
                said_s = error.retry_after_s
                is_told = said_s is not None and said_s <= self.ceiling_s
                delay_s = (
                    max(SHORTEST_WAIT_S, said_s or 0.0) if is_told else self._backoff_s(throttles)
                )
                last: Throttled | Unavailable = error
            except Unavailable as error:
                delay_s, last = SHORTEST_WAIT_S, error
                if not error.is_for_another:
                    failures += 1
                    if failures >= self.tries or not is_admitted:
                        raise
                    delay_s = self._backoff_s(failures)
            left_s -= delay_s
            if left_s <= 0:
                raise last
            logger.debug("a call is tried again in %.1f s: %s", delay_s, type(last).__name__)
            await self.sleep(delay_s)

    def _backoff_s(self, count: int) -> float:
        """Full jitter: uniform between a tenth and all of the doubling delay."""
        longest = min(self.longest_delay_s, self.first_delay_s * 2 ** (count - 1))
        return self.chance.uniform(0.1 * longest, longest)


def parse_retry_after(value: str | None, now_s: float | None = None) -> float | None:
    """Seconds to wait by a Retry-After header: "1.5", or an HTTP date. None where there is none or
    it cannot be read."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return None if math.isnan(seconds) else max(0.0, seconds)
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now_s is None else now_s))
