"""The budget of a run's judges: a call is made only when its estimate still fits what is left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, Protocol, TypeAlias

from pydantic import NonNegativeInt

from memray_eval.config.sections import Budget, Dollars
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prices import Price, cost_text
from memray_eval.types import Frozen

LOOK_S = 1.0  # how often a call that waits for money looks for what nobody will settle any more
DUST_USD = 1e-9  # what adding and subtracting floats may leave behind; no call is so cheap


class Spending(Frozen):
    """Money and tokens of calls; the money without that of `unpriced_calls`, of unknown price."""

    usd: Dollars = 0.0
    tokens: NonNegativeInt = 0
    unpriced_calls: NonNegativeInt = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{name: amount + getattr(other, name) for name, amount in self})

    def less(self, other: Spending) -> Spending:
        """What is left of it without `other`; never below nothing."""
        return Spending(**{name: max(0, amount - getattr(other, name)) for name, amount in self})

    @property
    def known_usd(self) -> float | None:
        """The money; None if the price of no call is known."""
        return None if self.unpriced_calls and not self.usd else self.usd

    @property
    def cost(self) -> str:
        """The money in words."""
        return cost_text(self.usd, self.unpriced_calls)

    @property
    def is_nothing(self) -> bool:
        return self.usd <= DUST_USD and self.tokens == 0


NOTHING = Spending()
NO_MONEY = "does not fit the budget"  # of what stopped a run
# Of the budget: what a kill may count too much, so that not every call has to wait for a write.
AHEAD = 0.001
MARGIN = 1.2  # of a prompt's tokens, as a provider may count more than we do
# A call waits for what others may give back, a batch does not, and one that is under way is paid
# whether it fits or not
Claim: TypeAlias = Literal["call", "batch", "batch under way"]


def spending_of(cost: CallCost, price: Price | None, is_batch: bool = False) -> Spending:
    """What a call takes of a budget; one of unknown price its tokens alone."""
    usd, tokens = None if price is None else price.of(cost, is_batch), math.ceil(cost.tokens)
    return Spending(usd=usd or 0.0, tokens=tokens, unpriced_calls=int(usd is None and tokens > 0))


def most_spending(
    tokens: float,
    output_limit: int,
    price: Price | None,
    is_batch: bool = False,
    is_marked: bool = True,
) -> Spending:
    """What a call takes of a budget at most, by its prompt's tokens at most. All of those may go
    into the provider's cache, at a price, if `is_marked`."""
    plain = CallCost(MARGIN * tokens, float(output_limit))
    kept = plain._replace(cache_write_tokens=plain.input_tokens)
    costs = [spending_of(cost, price, is_batch) for cost in (plain, kept)[: 1 + is_marked]]
    return max(costs, key=lambda spent: spent.usd)


class BudgetPort(Protocol):
    """The run's budget, near or far: `reserve` gives a ticket for what a call or a batch may cost
    at most, 0 if it does not fit, and `settle` books what it did cost."""

    async def reserve(self, most: Spending, claim: Claim = "call") -> int: ...

    async def settle(self, ticket: int, spent: Spending) -> None: ...


class _Reservation(NamedTuple):
    most: Spending
    made_at: float
    is_batch: bool = False


class BudgetLedger:
    """What a run spent and what is reserved for its calls under way, together within the budget:
    first come, first served. What is not settled after `stale_s` belongs to a lost actor. `save`
    keeps the likely cost so far, AHEAD of the budget ahead, before a call that is not covered;
    batches are in the run's journal instead."""

    def __init__(
        self,
        budget: Budget,
        spent: Spending = NOTHING,
        stale_s: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
        save: Callable[[Spending], Awaitable[None]] | None = None,
    ) -> None:
        self._budget, self._stale_s, self._clock = budget, stale_s, clock
        self._spent, self._reserved = spent, NOTHING
        # The part of it by single calls: paid before, paid, and under way
        self._before, self._paid, self._open = spent, spent, NOTHING
        self._n_paid = self._n_open = 0
        self._save, self._saved, self._saving = save, spent, asyncio.Lock()
        self._ahead = Spending(
            usd=AHEAD * (budget.usd or 0.0), tokens=math.ceil(AHEAD * (budget.tokens or 0))
        )
        self._reservations: dict[int, _Reservation] = {}
        self._tickets = itertools.count(1)
        self._settled = asyncio.Event()
        self._queue = asyncio.Lock()

    async def reserve(self, most: Spending, claim: Claim = "call") -> int:
        if claim == "call":
            return (await self.reserve_all([most]))[0]
        async with self._queue:
            if claim == "batch" and not self._fits(most):
                return 0
            return self._add_reservation(most, is_batch=True)

    async def settle(self, ticket: int, spent: Spending) -> None:
        await self.settle_all([(ticket, spent)])

    async def reserve_all(self, calls: Sequence[Spending]) -> list[int]:
        """Tickets for those of the calls, from the first on, that fit now. Waits while not even the
        first fits and others may give back. [0]: the first never will; the others may."""
        async with self._queue:
            while not self._fits(calls[0]):
                if self._reserved.is_nothing:
                    return [0]
                self._settled.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._settled.wait(), LOOK_S)
                oldest = self._clock() - self._stale_s
                for ticket, (_, made_at, is_batch) in list(self._reservations.items()):
                    if made_at < oldest and not is_batch:
                        self._settle(ticket, NOTHING)
            tickets = [self._add_reservation(call) for call in takewhile(self._fits, calls)]
            await self._save_ahead()
            return tickets

    async def settle_all(self, ended: Sequence[tuple[int, Spending]]) -> list[None]:
        """Books what calls or batches really cost, by their tickets."""
        for ticket, spent in ended:
            self._settle(ticket, spent)
        self._settled.set()
        await self._save_ahead()  # a call that cost more than its estimate
        return [None] * len(ended)

    def spent(self) -> Spending:
        return self._spent

    def committed(self) -> Spending:
        """What was spent, and what the calls under way may cost at most; without batches."""
        return self._paid + self._open

    def _likely(self) -> Spending:
        """What was spent, and what the calls under way may cost by the mean of those before, or at
        most if there are none; without batches."""
        if not self._n_paid:
            return self.committed()
        paid, times = self._paid.less(self._before), self._n_open / self._n_paid
        likely = Spending(usd=paid.usd * times, tokens=math.ceil(paid.tokens * times))
        return self._paid + likely

    def _fits(self, call: Spending) -> bool:
        total, budget = self._spent + self._reserved + call, self._budget
        if budget.usd is not None and total.usd > budget.usd + DUST_USD:
            return False
        return budget.tokens is None or total.tokens <= budget.tokens

    def _add_reservation(self, most: Spending, is_batch: bool = False) -> int:
        ticket = next(self._tickets)
        self._reserved += most
        if not is_batch:
            self._open, self._n_open = self._open + most, self._n_open + 1
        self._reservations[ticket] = _Reservation(most, self._clock(), is_batch)
        return ticket

    def _settle(self, ticket: int, spent: Spending) -> None:
        """What a call really cost takes the place of what was reserved."""
        is_open = ticket in self._reservations
        most, _, is_batch = self._reservations.pop(ticket, _Reservation(NOTHING, 0.0))
        self._reserved = self._reserved.less(most)
        self._spent += spent
        if not is_batch:
            self._open, self._n_open = self._open.less(most), self._n_open - is_open
            self._paid, self._n_paid = self._paid + spent, self._n_paid + (spent != NOTHING)

    async def _save_ahead(self) -> None:
        if self._save is None:
            return
        async with self._saving:
            counted = self._likely()
            is_covered = counted.usd <= self._saved.usd + DUST_USD
            is_covered = is_covered and counted.tokens <= self._saved.tokens
            # As when the first calls are settled, which were counted at their most
            beyond, far = self._saved.less(counted), (2 * self._ahead.usd, 2 * self._ahead.tokens)
            is_far = 0 < far[0] < beyond.usd or 0 < far[1] < beyond.tokens
            if not is_covered or is_far:
                ahead = counted + self._ahead
                await self._save(ahead)
                self._saved = ahead
