"""Calls that mostly wait, as requests to an object store do, made side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int
) -> Iterator[Result]:
    """Yields the result for each item, in the order of the items. Up to `at_once` calls are under
    way, or done and not yet taken, so what is in memory does not grow with the items. Raises what
    `function` raises; calls that have not begun by then are not made."""
    ahead: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for item in items:
                if len(ahead) == at_once:
                    yield ahead.popleft().result()
                ahead.append(pool.submit(function, item))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for call in ahead:
                call.cancel()
