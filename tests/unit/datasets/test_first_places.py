"""Where ids stood first, as a dict of texts would have it."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from memray_eval.datasets.first_places import FirstPlaces

# Few low bits, so that ids want the same slots
numbers = st.integers(0, 2**64 - 1) | st.integers(0, 40).map(lambda number: number << 10)
places = st.sampled_from(
    ["row 7", "row 0", "row 007", "line 12", "item 3, question 4", "a/b c.json", "12", "", "row ²"]
) | st.integers(0, 2**64).map(lambda number: f"row {number}")
stood = st.lists(st.tuples(numbers, places), max_size=60)


@given(stood)
def test_the_first_place_of_each_id_is_found(rows: list[tuple[int, str]]) -> None:
    found, first = FirstPlaces(), dict[int, str]()
    for number, place in rows:
        assert found.find_or_add(number, place) == first.get(number or 1)
        first.setdefault(number or 1, place)
    assert len(found) == len(first)


@given(stood, stood)
def test_two_of_them_are_joined(rows: list[tuple[int, str]], others: list[tuple[int, str]]) -> None:
    first = {number or 1: place for number, place in reversed(rows)}
    second = {
        number or 1: place for number, place in reversed(others) if (number or 1) not in first
    }
    one, other = FirstPlaces(), FirstPlaces()
    for number, place in first.items():
        one.find_or_add(number, place)
    for number, place in second.items():
        other.find_or_add(number, place)
    assert one.isdisjoint(other)
    one.update(pickle.loads(pickle.dumps(other)))
    assert len(one) == len(first) + len(second)
    for number, place in {**first, **second}.items():
        assert one.find_or_add(number, "elsewhere") == place


def test_a_hundred_thousand_ids_take_under_48_bytes_each() -> None:
    found = FirstPlaces()
    for number in range(100_000):
        assert found.find_or_add(number * 0x9E3779B97F4A7C15 % 2**64, f"row {number}") is None
    assert found.find_or_add(5 * 0x9E3779B97F4A7C15 % 2**64, "row 200000") == "row 5"
    assert len(pickle.dumps(found)) < 48 * 100_000
    again = FirstPlaces()
    again.find_or_add(7 * 0x9E3779B97F4A7C15 % 2**64, "row 1")
    assert not found.isdisjoint(again)
