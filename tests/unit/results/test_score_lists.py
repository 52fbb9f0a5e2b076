"""Scores in their short form become the same columns as whole scores, and records are known as
they will read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memray_eval.results.parts import unit_number, unit_numbers
from memray_eval.results.schema import (
    RECORD_SCHEMA,
    as_stored,
    from_table,
    set_responses,
    to_score_lists,
    to_table,
)
from memray_eval.types import ComputedScore, Record, Response, Score
from tests.unit.results.test_schema import names, numbers, records, responses, scores, text

computed = st.builds(
    ComputedScore,
    metric=names,
    value=numbers,
    judge=text,
    parts=st.dictionaries(names, numbers, max_size=2),
)


@given(st.lists(st.lists(computed | scores, max_size=3), max_size=5))
def test_short_scores_are_the_columns_of_whole_ones(
    outcomes: list[list[ComputedScore | Score]],
) -> None:
    whole = [
        [item.to_score() if isinstance(item, ComputedScore) else item for item in unit]
        for unit in outcomes
    ]
    column = to_score_lists(outcomes)
    assert column.type == RECORD_SCHEMA.field("scores").type
    assert column.to_pylist() == to_score_lists(whole).to_pylist()


@given(st.lists(records, max_size=4))
def test_records_are_as_they_will_read_back(held: list[Record]) -> None:
    assert list(map(as_stored, held)) == list(from_table(to_table(held)))


@given(st.lists(st.tuples(records, responses), max_size=4))
def test_responses_become_columns_of_the_rows(held: list[tuple[Record, Response | None]]) -> None:
    answered = [
        record if response is None else record.model_copy(update={"response": response})
        for record, response in held
    ]
    rows = set_responses(to_table(record for record, _ in held), [answer for _, answer in held])
    assert rows == to_table(answered)


@given(st.lists(st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}") | text, max_size=6))
def test_the_numbers_of_units_are_those_of_each(ids: list[str]) -> None:
    assert unit_numbers(ids).tolist() == [unit_number(item) for item in ids]


def test_blanks_are_no_digits() -> None:
    odd = ["00000000000000 1", "0000000000000001", " " * 16, "+000000000000001"]
    assert unit_numbers(odd).tolist() == [unit_number(item) for item in odd]
    assert unit_numbers(odd[1:2]).tolist() == [1]
