"""Many small requests to one far place as few large ones: while one batch is on its way, the next
gathers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """`send` takes up to `most` items and returns an answer for each, in order; what it raises,
    every item of the batch raises. For one event loop."""

    def __init__(
        self, send: Callable[[list[Item]], Awaitable[Sequence[Answer]]], most: int = 256
    ) -> None:
        self._send, self._most = send, most
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            try:
                answers = await self._send([item for item, _ in batch])
            except Exception as error:  # it belongs to those who asked
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
