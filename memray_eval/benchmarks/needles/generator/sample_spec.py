"""One sample's text: what is fixed of it, the room that is left, and the filler that makes its
length exact.

What is counted: the tokens of `plain_prompt(context, query)`, that is the context, an empty line,
and the question, without special tokens and without a chat template's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from memray_eval.benchmarks.needles.generator.seeded_random import IntArray
from memray_eval.benchmarks.needles.generator.token_counter import LINE, TokenCounter

TRIES = 64  # units taken back in search of a rest that a filler line fits exactly


class TooShort(Exception):
    """A task does not fit its length: `missing` more tokens are needed."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} more tokens needed")
        self.missing = missing


class SampleDraft(NamedTuple):
    """A sample's text, with its tokens as the parts add up."""

    context: str
    query: str
    answers: tuple[str, ...]
    label: Any
    tokens: int


def plain_prompt(context: str, query: str) -> str:
    """The plain user prompt that a sample's tokens are counted in."""
    return f"{context}\n\n{query}"


class SampleSpec:
    """The frame of a sample: `head` (whole lines) above the body, `closing` (no newline at its end)
    and the question below."""

    def __init__(
        self, counter: TokenCounter, language: str, budget: int, head: str, closing: str, query: str
    ) -> None:
        self._counter, self._language = counter, language
        self._head, self._closing, self._query = head, closing, query
        self._fixed = counter.start(head) + counter.known(LINE, plain_prompt(closing, query))
        self.room = budget - self._fixed

    def fits(self, used: int) -> bool:
        """Whether a filler line makes up the rest exactly."""
        return (
            used <= self.room and self._counter.filler(self.room - used, self._language) is not None
        )

    def most(self, totals: IntArray, least: int = 1) -> int:
        """How many units to take, given the tokens of the first 1, 2, ... of them. Raises TooShort
        if not even `least` fit."""
        most = n = int(np.searchsorted(totals, self.room, side="right"))
        while n > max(least, most - TRIES) and not self.fits(int(totals[n - 1])):
            n -= 1
        if most < least:
            raise TooShort(int(totals[least - 1]) - self.room if len(totals) >= least else 1)
        return n if self.fits(int(totals[n - 1])) else most

    def finish(
        self, body: str, used: int, answers: tuple[str, ...], label: Any = None
    ) -> SampleDraft:
        """The draft with this body of `used` tokens and the longest filler that fits; a rest that
        none fits stays empty."""
        filler, rest = "", max(0, self.room - used)
        for tokens in range(rest, max(-1, rest - TRIES), -1):
            text = self._counter.filler(tokens, self._language)
            if text is not None:
                filler, rest = text, tokens
                break
        else:
            rest = 0
        context = f"{self._head}{filler}{body}{self._closing}"
        return SampleDraft(context, self._query, answers, label, self._fixed + used + rest)
