"""What tokens cost."""

from __future__ import annotations

from typing import NamedTuple


class Price(NamedTuple):
    """US dollars per million tokens."""

    input_usd: float = 0.0
    output_usd: float = 0.0

    def of(self, input_tokens: float, output_tokens: float) -> float:
        """US dollars for so many tokens."""
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6


FREE = Price()
