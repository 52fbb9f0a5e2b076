"""A run never spends more than it may, in whatever order its calls start and end."""

import asyncio
import math
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.config.sections import Budget
from memray_eval.judges.limits.budget import (
    DUST_USD,
    BudgetLedger,
    Spending,
    most_spending,
    spending_of,
)
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prices import Price
from memray_eval.judges.prompt_cache import most_tokens, tokens_of


def usd(amount: float) -> Spending:
    return Spending(usd=amount)


def tokens(count: int) -> Spending:
    return Spending(tokens=count)


@pytest.mark.parametrize(
    ("budget", "wanted", "granted"),
    [
        (Budget(), [Spending(usd=1e6, tokens=10**12)] * 3, 3),
        (Budget(usd=1.0), [usd(0.5)] * 3, 2),
        (Budget(usd=1.0), [usd(0.1)] * 11, 10),  # ten times 0.1 in floats is not 1.0
        (Budget(usd=0.3), [usd(0.1)] * 3, 3),  # and three times is more than 0.3
        (
            Budget(usd=1.0),
            [usd(0.9), usd(0.2), usd(0.1)],
            1,
        ),  # a prefix: what comes after a refused one waits too
        (Budget(usd=0.0), [usd(0.001)], 0),
        (Budget(usd=1.0), [usd(1.0 + 1e-8)], 0),  # dust is less than the cheapest call
        (Budget(usd=0.0), [tokens(5)], 1),
        (Budget(tokens=100), [tokens(50)] * 3, 2),
        (Budget(tokens=100), [Spending(usd=1e6, tokens=100)], 1),
        (Budget(usd=1.0, tokens=100), [Spending(usd=0.1, tokens=40)] * 5, 2),  # both must fit
        (Budget(usd=1.0, tokens=100), [Spending(usd=0.4, tokens=10)] * 5, 2),
    ],
)
async def test_calls_are_granted_while_they_fit(
    budget: Budget, wanted: list[Spending], granted: int
) -> None:
    ledger = BudgetLedger(budget)
    tickets = await ledger.reserve_all(wanted)
    assert sum(map(bool, tickets)) == granted
    assert ledger.spent() == Spending()
    assert ledger.committed().usd == pytest.approx(sum(call.usd for call in wanted[:granted]))
    assert ledger.committed().tokens == sum(call.tokens for call in wanted[:granted])


async def test_dust_of_summed_floats_holds_up_neither_calls_nor_the_end() -> None:
    ledger = BudgetLedger(Budget(usd=0.3))
    tickets = await ledger.reserve_all([usd(0.1)] * 4)
    assert len(tickets) == 3
    await ledger.settle_all([(ticket, usd(0.1)) for ticket in tickets])
    assert ledger._reserved.usd > 0.0, "else this tests nothing"
    assert await ledger.reserve_all([usd(0.1)]) == [0]


async def test_a_call_that_costs_more_than_its_estimate_is_booked() -> None:
    ledger = BudgetLedger(Budget(usd=1.0), usd(0.25))
    assert await ledger.reserve(usd(0.8)) == 0, "what was spent before counts"
    await ledger.settle(await ledger.reserve(usd(0.5)), usd(1.25))
    assert ledger.spent() == ledger.committed() == usd(1.5)
    assert await ledger.reserve(usd(0.01)) == 0


@pytest.mark.parametrize(
    "wrong", [{"usd": -0.1}, {"usd": math.nan}, {"usd": math.inf}, {"tokens": -1}]
)
def test_no_spending_is_negative_or_endless(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Spending(**wrong)


async def test_money_goes_to_who_came_first_and_waits_for_what_may_come_back() -> None:
    ledger = BudgetLedger(Budget(tokens=100))
    first, second = await ledger.reserve_all([tokens(60), tokens(40)])
    waiting = [asyncio.create_task(ledger.reserve_all([tokens(count)])) for count in (50, 10)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await ledger.settle_all([(first, tokens(10))])
    (third,) = await waiting[0]
    await ledger.settle_all([(second, tokens(40)), (third, tokens(50))])
    assert ledger.spent().tokens == 100
    expected = [True, True, True, False]
    assert [bool(ticket) for ticket in (first, second, third, *await waiting[1])] == expected


async def test_of_a_batch_those_are_granted_that_fit_and_none_waits_for_another() -> None:
    ledger = BudgetLedger(Budget(tokens=100))
    (first,) = await ledger.reserve_all([tokens(60), tokens(60), tokens(10)])
    await ledger.settle_all([(first, tokens(60))])
    assert await ledger.reserve_all([tokens(60), tokens(10)]) == [0], "the first never will"
    assert [bool(ticket) for ticket in await ledger.reserve_all([tokens(10)])] == [True]


async def test_what_a_dead_actor_had_reserved_comes_back() -> None:
    moment = [0.0]

    ledger = BudgetLedger(Budget(tokens=100), stale_s=50.0, clock=lambda: moment[0])
    (lost,) = await ledger.reserve_all([tokens(100)])
    waiting = asyncio.create_task(ledger.reserve_all([tokens(100)]))
    await asyncio.sleep(0)
    moment[0] = 51.0
    (ticket,) = await asyncio.wait_for(waiting, 10)
    await ledger.settle_all([(lost, tokens(1))])  # it had not died: what it spent counts
    assert ledger.spent() == tokens(1)
    assert ticket


class Kept:
    """What a ledger has saved, as a run that is resumed after a kill finds it."""

    def __init__(self) -> None:
        self.saved = list[Spending]()

    async def __call__(self, spent: Spending) -> None:
        await asyncio.sleep(0)
        self.saved.append(spent)

    @property
    def last(self) -> Spending:
        return self.saved[-1] if self.saved else Spending()


async def test_what_was_saved_covers_what_was_spent_and_is_near_to_it() -> None:
    """However the run is killed, and in few writes: a call is reserved at 50 times its cost."""
    kept, at_once = Kept(), 8
    ledger = BudgetLedger(Budget(usd=100.0, tokens=10**6), tokens(500), save=kept)
    kept.saved.append(tokens(500))
    places = asyncio.Semaphore(at_once)

    async def call(number: int) -> None:
        async with places:
            (ticket,) = await ledger.reserve_all([Spending(usd=0.5, tokens=5000)])
            if number == 0:
                assert covers(kept.last, ledger.committed()), "nothing is known of the calls yet"
            assert covers(kept.last, ledger.spent())
            await asyncio.sleep(0)
            cost = 0.05 if number % 50 == 1 else 0.01  # more, now and then
            await ledger.settle_all([(ticket, Spending(usd=cost, tokens=100))])
            assert covers(kept.last, ledger.spent())
            near = kept.last.less(ledger.spent())
            assert near.usd <= 0.003 * 100 + at_once * 0.05
            assert near.tokens <= 0.003 * 10**6 + at_once * 100

    await asyncio.gather(*(call(number) for number in range(1000)))
    assert ledger.committed() == ledger.spent()
    assert ledger.spent().tokens == 500 + 100_000
    assert len(kept.saved) < 150
    assert ledger.spent().usd == pytest.approx(10.8)


def covers(saved: Spending, committed: Spending) -> bool:
    return saved.usd + DUST_USD >= committed.usd and saved.tokens >= committed.tokens


async def test_a_batch_holds_what_it_may_cost_and_gives_back_what_it_did_not() -> None:
    """The book of live calls leaves it out."""
    kept = Kept()
    ledger = BudgetLedger(Budget(usd=10.0), save=kept)
    batch = await ledger.reserve(usd(6.0), "batch")
    assert batch
    assert not await ledger.reserve(usd(6.0), "batch")
    call = await ledger.reserve(usd(1.0))
    assert kept.last.usd == pytest.approx(1.0, abs=0.02)
    await ledger.settle(batch, usd(1.5))
    await ledger.settle(call, usd(0.5))
    assert ledger.committed().usd == pytest.approx(0.5)
    assert ledger.spent().usd == pytest.approx(2.0)
    assert await ledger.reserve(usd(8.0), "batch")


async def test_a_batch_under_way_is_held_though_it_does_not_fit_and_however_long_it_takes() -> None:
    moment = [0.0]

    ledger = BudgetLedger(Budget(usd=1.0), stale_s=50.0, clock=lambda: moment[0])
    batch = await ledger.reserve(usd(3.0), "batch under way")
    waiting = asyncio.create_task(ledger.reserve(usd(0.1)))
    moment[0] = 51.0
    await asyncio.sleep(0)
    assert not waiting.done()
    await ledger.settle(batch, usd(0.2))
    assert await waiting


OPUS = Price(5.0, 25.0, 0.5, 6.25, 10.0, batch_factor=0.5)
TEXTS = {  # with as many tokens as a provider may count
    "English": ("What did the user say of her sister? " * 100, 1000),
    "Chinese": ("用户昨天说她的妹妹住在哪里" * 100, 1300),
    "Korean": ("사용자가 어제 무엇을 말했나요? " * 100, 1500),
    "ids": ('{"id": 48213977, "at": "2026-11-29T20:03:11Z"}, ' * 100, 3200),
}


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("language", TEXTS)
def test_what_is_reserved_is_at_least_what_is_billed(
    language: str, is_marked: bool, is_batch: bool
) -> None:
    text, counted = TEXTS[language]
    assert most_tokens(text) >= tokens_of(text)
    most = most_spending(most_tokens(text), 250, OPUS, is_batch, is_marked)
    written = counted if is_marked else 0
    billed = spending_of(CallCost(counted, 250, 0, written), OPUS, is_batch)
    assert billed.usd <= most.usd <= 3 * billed.usd
    assert billed.tokens <= most.tokens


def test_a_cache_that_is_written_to_free_of_charge_makes_no_prompt_free() -> None:
    price = Price(5.0, 25.0, cache_write_usd=0.0)
    assert most_spending(1000, 0, price).usd == pytest.approx(0.006)
