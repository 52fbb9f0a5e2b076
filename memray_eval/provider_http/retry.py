"""When a judge call is tried again: one policy for all providers. The SDKs' own retries are off."""

import asyncio
import email.utils
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from memray_eval.errors import Throttled, Unavailable

SHORTEST_WAIT_S = 0.05  # also where a provider says 0, so that nobody is asked without a pause
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 60.0  # where a provider says nothing
SILENCE_S = 5.0  # beside a time-out: for a name to be found, and the SDK to name a silence first
DAY_S = 86_400.0  # a wait that is longer, or over for longer, is not believed
logger = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """A throttled call waits as long as the provider says and is no try, nor is one that fails
    while its judge is known to be down; another failed one waits a random share of a doubling
    delay, up to `tries` tries. No call waits past `ceiling_s` of wall clock in all; where a
    provider asks for more, the admission decides when the next try goes."""

    tries: int = 5
    ceiling_s: float = 600.0
    ceiling_key: str = ""  # " (judging.ceiling_s)", if a key sets it
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    async def run(
        self,
        call: Callable[[A], Awaitable[T]],
        admission: Callable[[], AbstractAsyncContextManager[A]],
    ) -> T:
        """The call's result. Every try goes through `admission`, whose waiting does not count and
        whose errors are final. Raises the call's JudgeError when tries or time are used up."""
        retries = Retries(self)
        while True:
            try:
                async with admission() as admitted, retries.timed():
                    return await call(admitted)
            except (Throttled, Unavailable) as error:
                await retries.wait_after(error)


class Retries:
    """The tries of one call under a policy, and the time that is left for them."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy, self._left_s = policy, policy.ceiling_s
        self._failures = self._throttles = 0
        self._is_admitted = False

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        """Around a try that was admitted. Raises Unavailable when the time is used up."""
        self._is_admitted, began = True, self._policy.clock()
        try:
            async with asyncio.timeout(max(0.001, self._left_s)):
                yield
        except TimeoutError:
            text = f"no verdict within {self._policy.ceiling_s:g} s{self._policy.ceiling_key}"
            raise Unavailable(text) from None
        finally:
            self._left_s -= self._policy.clock() - began

    async def wait_after(self, error: Throttled | Unavailable) -> None:
        """Waits until the next try may go. Raises the error if there is none."""
        is_admitted, self._is_admitted = self._is_admitted, False
        if not is_admitted:
            raise error
        if isinstance(error, Throttled):
            self._throttles += 1
            wait_s, count = error.retry_after_s, self._throttles
        else:
            self._failures += not error.is_probe
            if self._failures >= self._policy.tries:
                raise error
            wait_s, count = None, self._failures
        if wait_s is None or wait_s > self._policy.ceiling_s:
            longest = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** max(0, count - 1))
            delay_s = random.uniform(0.1 * longest, longest)  # full jitter
        else:
            delay_s = max(SHORTEST_WAIT_S, wait_s)
        self._left_s -= delay_s
        if self._left_s <= 0:
            raise error
        logger.debug("a call is tried again in %.1f s: %s", delay_s, type(error).__name__)
        await self._policy.sleep(delay_s)


@asynccontextmanager
async def whole_reply(timeout_s: float, key: str) -> AsyncIterator[None]:
    """Around a call: ends a reply that drips in, which no wait for its next byte ends. `key` is
    what sets `timeout_s`. Raises Unavailable."""
    try:
        async with asyncio.timeout(timeout_s + SILENCE_S) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        raise Unavailable(f"the reply was not whole within {timeout_s:g} s ({key})") from None


def parse_retry_after(value: str | None, now_s: float | None = None) -> float | None:
    """Seconds to wait by a Retry-After header ("1.5", or an HTTP date); None if unreadable,
    negative, or a date of more than DAY_S ago."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return seconds if seconds >= 0 else None  # NaN neither
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    seconds = moment - (time.time() if now_s is None else now_s)
    return max(0.0, seconds) if seconds >= -DAY_S else None
