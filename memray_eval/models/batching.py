"""Many small requests to one far place as few large ones: while batches are on their way, the next
gathers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """`send` takes up to `most` items and returns an answer for each, in order; what it raises,
    every item of the batch raises. It may answer the first of them only, at least one: the others
    are sent again, before those that came later. Up to `at_once` batches are on their way. For one
    event loop."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        most: int = 256,
        at_once: int = 1,
    ) -> None:
        self._send, self._most, self._at_once = send, most, at_once
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._pumps = set[asyncio.Task[None]]()

    async def __call__(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._pumps) < self._at_once:
            self._pumps.add(asyncio.create_task(self._send_all()))
        return await answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            # who was cancelled meanwhile wants no answer
            if batch := [(item, future) for item, future in batch if not future.done()]:
                await self._send_batch(batch)
        # not by a callback of the task: an item that comes before that would find no pump
        self._pumps.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
        except Exception as error:  # it belongs to those who asked
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        self._waiting.extendleft(reversed(batch[len(answers) :]))
        for (_, future), answer in zip(batch, answers, strict=False):
            if not future.done():
                future.set_result(answer)
