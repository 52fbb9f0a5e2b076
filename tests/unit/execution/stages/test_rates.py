"""Each speed has one definition, and every place that shows it takes it from there."""

import duckdb
import pytest

from memray_eval.analysis.rates import (
    ANSWER_TOKENS_PER_S,
    answer_tokens_per_s,
    generated_tokens_per_s,
    period_per_s,
    rows_per_s,
)


def test_a_rate_is_an_amount_over_its_seconds() -> None:
    assert rows_per_s(30, 10.0) == 3.0
    assert period_per_s(500, 10.0) == 50.0
    assert generated_tokens_per_s(900, 3.0) == 300.0
    assert generated_tokens_per_s(0, 3.0) is None  # a baseline: no tokens, not a speed of 0
    assert answer_tokens_per_s(100, 4.0) == 25.0


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0])
def test_what_was_not_measured_is_no_rate(seconds: float | None) -> None:
    assert rows_per_s(3, seconds) is None
    assert generated_tokens_per_s(3, seconds) is None
    assert answer_tokens_per_s(3, seconds) is None


def test_without_tokens_there_is_no_speed() -> None:
    assert answer_tokens_per_s(None, 5.0) is None


def test_the_speed_of_many_answers_weighs_them_by_their_time() -> None:
    def speed_of(rows: str) -> float:
        query = f"SELECT {ANSWER_TOKENS_PER_S} AS speed FROM (VALUES {rows}) AS rows(tokens, duration_s, is_timed)"  # noqa: E501
        with duckdb.connect() as database:
            (row,) = database.sql(query).to_arrow_table().to_pylist()
        return float(row["speed"])

    assert speed_of("(100, 4.0, true), (10, 1.0, true), (7, 9.0, false)") == 110 / 5
    assert speed_of("(100, 4.0, true)") == answer_tokens_per_s(100, 4.0)
