"""What tokens cost, with prompt caches and in batches."""

from __future__ import annotations

import pytest

from memray_eval.config.sections import JudgePrice, JudgingConfig
from memray_eval.judges.limits.rate_limiter import CallCost
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.router import cache_of, load_table, price_of
from memray_eval.types import Usage

OPUS = Price(5.0, 25.0, 0.5, 6.25, 10.0, 0.5)
PLAIN = Usage(input_tokens=1_000_000, output_tokens=100_000)
READ = PLAIN.model_copy(update={"cached_input_tokens": 900_000})
WRITTEN = PLAIN.model_copy(update={"cache_write_tokens": 900_000})


@pytest.mark.parametrize(
    ("price", "usage", "live", "batch"),
    [
        (OPUS, PLAIN, 7.5, 3.75),
        (OPUS, READ, 0.5 + 0.45 + 2.5, 1.725),
        (OPUS, WRITTEN, 0.5 + 5.625 + 2.5, (0.5 + 9.0 + 2.5) / 2),  # an hour's, in a batch
        # what is not known is reckoned as other input, and a batch's calls as live ones
        (Price(5.0, 25.0), READ, 7.5, 7.5),
        (Price(5.0, 25.0), WRITTEN, 7.5, 7.5),
        (FREE, READ, 0.0, 0.0),
        # a cache that costs nothing is known
        (Price(5.0, 25.0, 0.0), READ, 3.0, 3.0),
    ],
)
def test_every_kind_of_token_has_its_price(
    price: Price, usage: Usage, live: float, batch: float
) -> None:
    assert price.of(usage) == pytest.approx(live)
    assert price.of(CallCost.from_usage(usage)) == pytest.approx(live)
    assert price.of(usage, is_batch=True) == pytest.approx(batch)


def test_what_a_cache_saves_may_be_less_than_nothing() -> None:
    assert OPUS.saved_on(READ) == pytest.approx(7.5 - 3.45)
    assert OPUS.saved_on(WRITTEN) == pytest.approx(7.5 - 8.625)
    assert OPUS.saved_on(READ, is_batch=True) == pytest.approx((7.5 - 3.45) / 2)
    assert OPUS.saved_on(PLAIN) == 0.0


def test_the_table_has_the_prices_of_caches_and_batches() -> None:
    table, config = load_table(None), JudgingConfig()
    assert price_of("anthropic/claude-opus-4-5", config, table) == OPUS
    gemini = table.models["google/gemini-2.0-flash"]
    assert (gemini.cached_input_usd, gemini.takes_batches, gemini.cache_floor_tokens) == (None,) * 3
    for name, entry in table.models.items():
        if entry.cached_input_usd is not None:
            assert entry.cache_date != "unknown", name
            assert (entry.cache_write_usd is not None) == entry.cache_marks, name


def test_a_cache_whose_price_is_not_known_is_left_alone() -> None:
    table, opus = load_table(None), "anthropic/claude-opus-4-5"
    own = {"input_usd": 4.0, "output_usd": 20.0}

    def floor(**price: float) -> int | None:
        config = JudgingConfig(price={opus: JudgePrice(**own, **price)})
        return cache_of(opus, config, table).floor_tokens

    assert cache_of(opus, JudgingConfig(), table).floor_tokens == 4096
    assert floor() is None
    assert floor(cached_input_usd=0.4) is None  # it bills what is written as well
    assert floor(cached_input_usd=0.4, cache_write_usd=5.0) == 4096
    assert cache_of("openai/unheard-of", JudgingConfig(), table).floor_tokens is None
    assert cache_of("embedded", JudgingConfig(), table).floor_tokens is None


def test_cached_tokens_count_where_both_kinds_do_and_not_where_input_counts_apart() -> None:
    cost = CallCost(100.0, 10.0, 80.0, 5.0)
    assert cost.of("tokens_per_min") == 110.0
    assert cost.of("input_tokens_per_min") == 20.0
    assert cost.minus(CallCost(30.0, 1.0, 30.0)) == CallCost(70.0, 9.0, 50.0, 5.0)
    assert cost.plus(cost).tokens == 220.0
