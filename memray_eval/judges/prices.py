"""What tokens cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from memray_eval.errors import JudgeError
from memray_eval.ports import Verdict
from memray_eval.types import TokenCounts, Usage


class Price(NamedTuple):
    """US dollars per million tokens, and `batch_factor`, the share that a batch's calls are billed.
    None: not known; cached input then costs what other input does. `above` has the prices of
    prompts of more than this many tokens, in ascending order."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_input_usd: float | None = None
    cache_write_usd: float | None = None
    cache_write_1h_usd: float | None = None
    batch_factor: float | None = None
    above: tuple[tuple[int, Price | None], ...] = ()

    def of(self, spent: TokenCounts, is_batch: bool = False, calls: float = 1.0) -> float | None:
        """US dollars for the tokens of this many calls of one length, None if their price is not
        known; `is_batch` where a batch's calls took them, whose cache writes last an hour."""
        price = self._for_length(spent.input_tokens / max(1.0, calls))
        return None if price is None else price._share(is_batch) * price._live(spent, is_batch)

    def saved_on(self, spent: TokenCounts, is_batch: bool = False) -> float:
        """What the prompt cache saved on one call's tokens, in US dollars; below 0 where what it
        was paid for writing was not read often enough."""
        price = self._for_length(spent.input_tokens)
        if price is None:
            return 0.0
        usd = spent.input_tokens * price.input_usd + spent.output_tokens * price.output_usd
        return price._share(is_batch) * (usd / 1e6 - price._live(spent, is_batch))

    @property
    def is_whole(self) -> bool:
        """Whether the price of every prompt is known, however long."""
        return all(price is not None for _, price in self.above)

    def band(self, tokens: float) -> int:
        """Which price a prompt of this many tokens has: 0 the own one, 1 the first of `above`."""
        return sum(tokens > most for most, _ in self.above)

    def _for_length(self, tokens: float) -> Price | None:
        band = self.band(tokens)
        return self.above[band - 1][1] if band else self

    def _live(self, spent: TokenCounts, is_batch: bool) -> float:
        write_usd = self.cache_write_1h_usd if is_batch else self.cache_write_usd
        plain = spent.input_tokens - spent.cached_input_tokens - spent.cache_write_tokens
        usd = plain * self.input_usd + spent.output_tokens * self.output_usd
        usd += spent.cached_input_tokens * _or_else(self.cached_input_usd, self.input_usd)
        usd += spent.cache_write_tokens * _or_else(write_usd, self.input_usd)
        return usd / 1e6

    def _share(self, is_batch: bool) -> float:
        return _or_else(self.batch_factor, 1.0) if is_batch else 1.0


def _or_else(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


FREE = Price()


@dataclass
class Spent:
    """What a verdict has taken so far: calls `sent`, how many of them were `answered`, and the
    tokens of them all with their cost; `uncounted` of the calls did not give theirs."""

    sent: int = 0
    answered: int = 0
    uncounted: int = 0
    served_model: str = ""  # of the last answer
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    saved_usd: float = 0.0

    def add(self, usage: Usage, price: Price | None, is_batch: bool = False) -> None:
        """Counts an answer; its cost and the cache's savings, if its price is known."""
        self.answered += 1
        usd = None if price is None else price.of(usage, is_batch)
        if price is None or usd is None:
            self.usage += usage.model_copy(update={"unpriced_calls": 1})
            return
        self.usage += usage
        self.cost_usd += usd
        self.saved_usd += price.saved_on(usage, is_batch)

    def take(self, error: JudgeError) -> Spent:
        """Adds what the attempts of an error took."""
        self.usage += Usage.of(error)
        self.cost_usd += error.cost_usd
        self.saved_usd += error.saved_usd
        self.answered += error.calls
        return self

    def put_on(self, error: JudgeError) -> None:
        error.set_tokens(self.usage)
        error.cost_usd, error.saved_usd, error.calls = self.cost_usd, self.saved_usd, self.answered

    def verdict(self, judgment: BaseModel, judge: str, **fields: Any) -> Verdict:
        return Verdict(
            judgment=judgment,
            judge=judge,
            served_model=self.served_model or None,
            usage=self.usage,
            cost_usd=self.cost_usd,
            saved_usd=self.saved_usd,
            calls=self.answered,
            **fields,
        )


def cost_text(usd: float | None, unpriced_calls: int, digits: str = ",.4g") -> str:
    """A sum of judge calls' costs for a person: of `unpriced_calls` the price is not known."""
    if not unpriced_calls:
        return f"${usd or 0.0:{digits}}"
    calls = f"{unpriced_calls:,} {'call' if unpriced_calls == 1 else 'calls'} of unknown price"
    return f"at least ${usd:{digits}} ({calls})" if usd else f"an unknown sum ({calls})"
