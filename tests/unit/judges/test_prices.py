"""What tokens cost, with prompt caches and in batches."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from memray_eval.config.sections import JudgePrice, JudgingConfig
from memray_eval.errors import ConfigError
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prices import FREE, ModelEntry, Price, cost_text, load_table
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
    assert JudgeAccount("anthropic/claude-opus-4-5", config, table).price == OPUS
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
        return JudgeAccount(opus, config, table).cache.floor_tokens

    assert JudgeAccount(opus, JudgingConfig(), table).cache.floor_tokens == 4096
    assert floor() is None
    assert floor(cached_input_usd=0.4) is None  # it bills what is written as well
    assert floor(cached_input_usd=0.4, cache_write_usd=5.0) == 4096
    assert JudgeAccount("openai/unheard-of", JudgingConfig(), table).cache.floor_tokens is None
    assert JudgeAccount("embedded", JudgingConfig(), table).cache.floor_tokens is None


def test_cached_tokens_count_where_both_kinds_do_and_not_where_input_counts_apart() -> None:
    cost = CallCost(100.0, 10.0, 80.0, 5.0)
    assert cost.in_lane("tokens_per_min") == 110.0
    assert cost.in_lane("input_tokens_per_min") == 20.0
    assert cost.minus(CallCost(30.0, 1.0, 30.0)) == CallCost(70.0, 9.0, 50.0, 5.0)
    assert cost.plus(cost).tokens == 220.0


def priced_by(bands: str) -> ModelEntry:
    return ModelEntry.model_validate(yaml.safe_load(bands))


BANDS = """
{input_usd: 2, output_usd: 10, until: 2026-12-31, batch_factor: 0.5, bands: [
  {until: 2026-12-31, above_tokens: 1000, input_usd: 4, output_usd: 15},
  {until: 2026-12-31, above_tokens: 9000},
  {since: 2027-01-01, until: 2027-06-30, input_usd: 3, output_usd: 12}]}
"""


@pytest.mark.parametrize(
    ("day", "tokens", "usd"),
    [
        ("2026-12-31", 1000, 1000 * 2 + 100 * 10),
        ("2026-12-31", 1001, 1001 * 4 + 100 * 15),
        ("2026-12-31", 9001, None),
        ("2027-01-01", 9001, 9001 * 3 + 100 * 12),
        ("2027-06-30", 10, 10 * 3 + 100 * 12),
    ],
)
def test_a_price_goes_by_the_day_and_by_the_length_of_the_prompt(
    day: str, tokens: int, usd: float | None
) -> None:
    price = priced_by(BANDS).price_on(date.fromisoformat(day))
    assert price is not None
    spent = Usage(input_tokens=tokens, output_tokens=100)
    assert price.of(spent) == (None if usd is None else pytest.approx(usd / 1e6))
    assert price.is_whole == (day >= "2027")
    if usd is not None:
        assert price.of(spent, is_batch=True) == pytest.approx(usd / 2e6)
        ten = CallCost(10.0 * tokens, 1000.0)
        assert price.of(ten, calls=10) == pytest.approx(usd / 1e5)


def test_a_day_that_no_price_covers_has_none() -> None:
    assert priced_by(BANDS).price_on(date(2027, 7, 1)) is None
    assert ModelEntry().price_on(date(2026, 11, 25)) is None


@pytest.mark.parametrize(
    ("bands", "message"),
    [
        ("{input_usd: 1}", "input_usd and output_usd belong together"),
        ("{bands: [{above_tokens: 10, input_usd: 1, output_usd: 1}]}", "each once, from 0 on"),
        (
            "{input_usd: 1, output_usd: 1, bands: [{input_usd: 2, output_usd: 2}]}",
            "each once, from 0 on",
        ),
        (
            "{input_usd: 1, output_usd: 1, until: 2026-12-31, bands: "
            "[{since: 2027-01-02, input_usd: 2, output_usd: 2}]}",
            "end on 2026-12-31 and begin again on 2027-01-02",
        ),
        (
            "{input_usd: 1, output_usd: 1, bands: "
            "[{since: 2027-01-02, input_usd: 2, output_usd: 2}]}",
            "begin again on 2027-01-02",
        ),
        ("{input_usd: -1, output_usd: 1}", "input_usd"),
    ],
)
def test_a_table_with_a_gap_is_refused(tmp_path: Path, bands: str, message: str) -> None:
    path = tmp_path / "judges.yaml"
    path.write_text(f"models: {{openai/mine: {bands}}}")
    with pytest.raises(ConfigError, match=message):
        load_table(str(path))


@pytest.mark.parametrize(
    ("usd", "unpriced", "text"),
    [
        (1.5, 0, "$1.5"),
        (0.0, 3, "an unknown sum (3 calls of unknown price)"),
        (None, 1, "an unknown sum (1 call of unknown price)"),
        (0.25, 3, "at least $0.25 (3 calls of unknown price)"),
    ],
)
def test_an_unknown_price_is_no_zero(usd: float | None, unpriced: int, text: str) -> None:
    assert cost_text(usd, unpriced) == text
