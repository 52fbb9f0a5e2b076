"""Small requests as few large ones: nobody's answer is another's, and nobody waits who need not; a
text is embedded once while its vector is at hand."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from memray_eval.execution.services import Batcher
from memray_eval.models import embeddings
from memray_eval.ports import FloatArray


async def test_what_comes_while_a_batch_is_on_its_way_is_the_next() -> None:
    batches: list[list[int]] = []

    async def send(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(0.01)
        return [item * 10 for item in items]

    batcher = Batcher(send, most=4)
    first = asyncio.create_task(batcher(0))
    await asyncio.sleep(0.005)
    seen = [*await asyncio.gather(*(batcher(number) for number in range(1, 7))), await first]
    assert seen == [10, 20, 30, 40, 50, 60, 0]
    assert batches == [[0], [1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_one_who_asks_again_at_once_is_answered(at_once: int) -> None:
    async def send(items: list[int]) -> list[int]:
        return items

    batcher = Batcher(send, at_once=at_once)
    async with asyncio.timeout(10):  # without a task between
        assert [await batcher(number) for number in range(20)] == list(range(20))


async def test_several_batches_may_be_on_their_way() -> None:
    under_way, most = 0, 0

    async def send(items: list[int]) -> list[int]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return items

    batcher = Batcher(send, most=2, at_once=3)
    assert (await asyncio.gather(*(batcher(number) for number in range(20)))) == list(range(20))
    assert most == 3


async def test_what_is_not_answered_is_sent_again_before_what_came_later() -> None:
    batches: list[list[int]] = []

    is_sent, may_answer = asyncio.Event(), asyncio.Event()

    async def send(items: list[int]) -> list[int]:
        batches.append(items)
        is_sent.set()
        await may_answer.wait()
        return items[:2]

    batcher = Batcher(send, most=4)
    early = [asyncio.create_task(batcher(number)) for number in range(3)]
    await is_sent.wait()
    late = [asyncio.create_task(batcher(number)) for number in (3, 4)]
    await asyncio.sleep(0)  # they have come
    may_answer.set()
    assert (await asyncio.gather(*early, *late)) == [0, 1, 2, 3, 4]
    assert batches == [[0, 1, 2], [2, 3, 4], [4]]


async def test_an_error_is_of_its_batch_and_a_cancelled_item_is_not_sent() -> None:
    batches: list[list[int]] = []

    async def send(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(0.01)
        if 0 in items:
            raise ValueError("no")
        return items

    batcher = Batcher(send)
    first = asyncio.create_task(batcher(0))
    await asyncio.sleep(0.005)
    cancelled, last = (asyncio.create_task(batcher(number)) for number in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(ValueError, match="no"):
        await first
    assert (await last) == 2
    assert batches == [[0], [2]]


class Lengths:
    """A model whose vectors are the lengths of texts."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str], **options: Any) -> FloatArray:
        self.encoded += texts
        return np.array([[len(text)] for text in texts], np.float64)


def test_a_text_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "CACHED_TEXTS", 3)
    model = Lengths()
    cached = embeddings._CachedModel(model)
    for texts in (["a", "bb", "a"], ["bb", "ccc"], ["dddd", "ccc"]):
        assert cached.encode(texts, 64).ravel().tolist() == [len(text) for text in texts]
    assert model.encoded == ["a", "bb", "ccc", "dddd"]
    cached.encode(["a", "dddd"], 64)  # the oldest is gone
    assert model.encoded[4:] == ["a"]
