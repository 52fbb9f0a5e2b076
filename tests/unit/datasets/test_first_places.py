"""Where ids stood first, as a dict of texts would have it."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from memray_eval.datasets.scan import FirstPlaces

# Few of the small ones, so that ids meet
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)
places = st.sampled_from(
    ["row 7", "row 0", "row 007", "line 12", "item 3, question 4", "a/b c.json", "12", "", "row ²"]
) | st.sampled_from(["half \ud800", "nothing \x00 here"])
stood = st.lists(st.tuples(numbers, places), max_size=60)


def collected(rows: list[tuple[int, str]]) -> FirstPlaces:
    table = FirstPlaces()
    for number, label in rows:
        table.find_or_add(number, label)
    return table


@given(stood)
def test_the_first_place_of_each_id_is_found(rows: list[tuple[int, str]]) -> None:
    table, first = FirstPlaces(), dict[int, str]()
    for number, label in rows:
        assert table.find_or_add(number, label) == first.get(number)
        first.setdefault(number, label)


@given(stood, stood)
def test_those_of_two_are_joined_where_they_share_none(
    rows: list[tuple[int, str]], others: list[tuple[int, str]]
) -> None:
    first, second = (dict(reversed(of)) for of in (rows, others))
    left, other = collected(rows), pickle.loads(pickle.dumps(collected(others)))
    is_apart = first.keys().isdisjoint(second)
    assert left.add_all(other) == is_apart
    for number, label in first.items():
        assert left.find_or_add(number, "elsewhere") == label
    for number in second.keys() - first.keys():
        expected = second[number] if is_apart else None
        assert left.find_or_add(number, "elsewhere") == expected


def test_a_hundred_thousand_ids_take_under_48_bytes_each() -> None:
    table = FirstPlaces()
    for number in range(100_000):
        spread = number * 0x9E3779B97F4A7C15 % 2**64 - 2**63
        assert table.find_or_add(spread, f"row {number}") is None
    assert table.find_or_add(5 * 0x9E3779B97F4A7C15 % 2**64 - 2**63, "row 200000") == "row 5"
    assert len(pickle.dumps(table)) < 48 * 100_000
    again = collected([(7 * 0x9E3779B97F4A7C15 % 2**64 - 2**63, "row 1")])
    assert not table.add_all(again)
