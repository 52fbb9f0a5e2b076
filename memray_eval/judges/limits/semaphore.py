"""A semaphore whose number of places may change."""

from __future__ import annotations

import asyncio
from collections import deque


class ResizableSemaphore:
    """Places in flight whose number may change: asyncio's semaphore has a fixed one."""

    def __init__(self, places: int) -> None:
        self._places, self._taken = places, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def places(self) -> int:
        return self._places

    @property
    def is_full(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    def resize(self, places: int) -> None:
        self._places = places
        self._admit_waiting()

    async def __aenter__(self) -> None:
        if self._taken < self._places:
            self._taken += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it got the place, and gives it back
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._taken < self._places:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
