"""What tokens cost."""

from __future__ import annotations

from typing import NamedTuple

from memray_eval.types import TokenCounts


class Price(NamedTuple):
    """US dollars per million tokens, and `batch_factor`, the share of them that a batch's calls are
    billed. None: not known.

    Tokens that were read from a prompt cache, or written into it for five minutes or an hour, are
    reckoned as any other input where their price is not known, and a batch's calls as live ones."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_input_usd: float | None = None
    cache_write_usd: float | None = None
    cache_write_1h_usd: float | None = None
    batch_factor: float | None = None

    def of(self, spent: TokenCounts, is_batch: bool = False) -> float:
        """US dollars for so many tokens; `is_batch` where a batch's calls took them, whose cache
        writes last an hour."""
        write_usd = self.cache_write_1h_usd if is_batch else self.cache_write_usd
        plain = spent.input_tokens - spent.cached_input_tokens - spent.cache_write_tokens
        usd = plain * self.input_usd + spent.output_tokens * self.output_usd
        usd += spent.cached_input_tokens * _known(self.cached_input_usd, self.input_usd)
        usd += spent.cache_write_tokens * _known(write_usd, self.input_usd)
        return usd / 1e6 * self._share(is_batch)

    def saved_on(self, spent: TokenCounts, is_batch: bool = False) -> float:
        """What the prompt cache saved on these tokens, in US dollars; below 0 where what it was
        paid for writing was not read often enough."""
        usd = spent.input_tokens * self.input_usd + spent.output_tokens * self.output_usd
        return usd / 1e6 * self._share(is_batch) - self.of(spent, is_batch)

    def _share(self, is_batch: bool) -> float:
        return _known(self.batch_factor, 1.0) if is_batch else 1.0


def _known(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


FREE = Price()
