from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from memray_eval.storage.paths import map_ahead


def test_results_come_in_the_order_of_the_items_however_long_each_takes() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.05 if number % 4 == 0 else 0.0)
        return number

    assert list(map_ahead(slow_first, range(20), at_once=4)) == list(range(20))
    assert list(map_ahead(slow_first, [], at_once=4)) == []


def test_calls_are_side_by_side_and_never_more_than_are_taken_soon() -> None:
    meeting, started = threading.Barrier(3, timeout=20), []

    def numbers() -> Iterator[int]:
        for number in range(9):
            started.append(number)
            yield number

    def meet(number: int) -> int:
        meeting.wait()  # for two others: one after the other, none would ever end
        return number

    results = map_ahead(meet, numbers(), at_once=3)
    assert next(results) == 0
    assert len(started) <= 4
    assert list(results) == list(range(1, 9))


def test_an_error_ends_it_and_calls_that_wait_are_not_made() -> None:
    calls = []

    def fail(number: int) -> int:
        calls.append(number)
        time.sleep(0.01)
        raise ValueError(f"no {number}")

    with pytest.raises(ValueError, match="no 0"):
        list(map_ahead(fail, range(100), at_once=2))
    assert len(calls) <= 3
