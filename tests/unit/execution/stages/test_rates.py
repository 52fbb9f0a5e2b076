"""Each speed has one definition, and every place that shows it takes it from there."""

import duckdb
import pytest

from memray_eval.analysis.rates import ANSWER_TOKENS_PER_S, per_s


@pytest.mark.parametrize(
    ("amount", "seconds", "rate"),
    [(30, 10.0, 3.0), (0, 10.0, 0.0), (3, None, None), (3, 0.0, None), (3, -1.0, None),
     (None, 5.0, None)],
)  # fmt: skip
def test_a_rate_is_an_amount_over_its_seconds_if_both_were_measured(
    amount: int | None, seconds: float | None, rate: float | None
) -> None:
    assert per_s(amount, seconds) == rate


def test_the_speed_of_many_answers_weighs_them_by_their_time() -> None:
    def speed_of(rows: str) -> float:
        query = f"SELECT {ANSWER_TOKENS_PER_S} AS speed FROM (VALUES {rows}) AS rows(tokens, duration_s, is_timed)"  # noqa: E501
        with duckdb.connect() as database:
            (row,) = database.sql(query).to_arrow_table().to_pylist()
        return float(row["speed"])

    assert speed_of("(100, 4.0, true), (10, 1.0, true), (7, 9.0, false)") == 110 / 5
    assert speed_of("(100, 4.0, true)") == per_s(100, 4.0)
