"""One sample's text: what is fixed of it, the room that is left, and the filler that makes its
length exact, in tokens of `plain_prompt(context, query)` without special tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from memray_eval.benchmarks.generator.pools import Pile, insert_needles, nearest_cut
from memray_eval.benchmarks.generator.question_order import IntArray, QuestionOrder
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.token_counter import LINE, TokenCounter

TRIES = 64  # units taken back in search of a rest that a filler line fits exactly


class TooShort(Exception):
    """A task does not fit its length: `missing` more tokens are needed."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} more tokens needed")
        self.missing = missing


class SampleDraft(NamedTuple):
    """A sample's text, with its tokens as the parts add up; `about` goes to its metadata."""

    context: str
    query: str
    answers: tuple[str, ...]
    label: Any
    tokens: int
    about: Mapping[str, Any] = MappingProxyType({})


def plain_prompt(context: str, query: str) -> str:
    """The plain user prompt that a sample's tokens are counted in."""
    return f"{context}\n\n{query}"


class Room:
    """Room in tokens, for units of text that are counted one by one and a line of filler words."""

    def __init__(self, counter: TokenCounter, language: str, tokens: int) -> None:
        self._counter, self._language = counter, language
        self.room = tokens

    def fits(self, used: int) -> bool:
        """Returns True if a filler line makes up the rest exactly."""
        return (
            used <= self.room and self._counter.filler(self.room - used, self._language) is not None
        )

    def most(self, totals: IntArray, least: int = 1) -> int:
        """The number of units to take, given the tokens of the first 1, 2, ... of them. Raises
        TooShort if not even `least` fit."""
        most = n = int(np.searchsorted(totals, self.room, side="right"))
        while n > max(least, most - TRIES) and not self.fits(int(totals[n - 1])):
            n -= 1
        if most < least:
            raise TooShort(int(totals[least - 1]) - self.room if len(totals) >= least else 1)
        return n if self.fits(int(totals[n - 1])) else most

    def fill(self, used: int) -> tuple[str, int]:
        """The longest filler line that fits beside `used` tokens, with its own; else empty."""
        rest = max(0, self.room - used)
        for tokens in range(rest, max(-1, rest - TRIES), -1):
            text = self._counter.filler(tokens, self._language)
            if text is not None:
                return text, tokens
        return "", 0


class SampleSpec(Room):
    """The frame of a sample: `head` (whole lines) above the body, `closing` (no newline at its end)
    and the question below; `slack` tokens stay free."""

    def __init__(
        self,
        order: QuestionOrder,
        resources: Resources,
        slack: int,
        head: str,
        closing: str,
        query: str,
    ) -> None:
        counter = resources.counter
        self._head, self._closing, self._query = head, closing, query
        self._fixed = counter.start(head) + counter.known(LINE, plain_prompt(closing, query))
        super().__init__(counter, order.language, order.length - slack - self._fixed)

    def hide(
        self,
        needles: Sequence[str],
        pile: Pile,
        numbers: Sequence[int],
        answers: tuple[str, ...],
        *,
        depth: int | None = None,
        draw_places: Callable[[int], list[int]] = lambda n: [0],
        least: int = 2,
    ) -> SampleDraft:
        """The draft of needles among as many of the pile's units as fit, before those that
        `draw_places` draws; with a `depth` the first needle is there."""
        totals, tokens = pile.totals(numbers), int(self._counter.lines(needles).sum())
        n = self.most(totals + tokens, least)
        places = draw_places(n)
        if depth is not None:
            places[0] = nearest_cut(totals[:n], depth)
        body = insert_needles(pile.texts(numbers[:n]), list(zip(places, needles, strict=True)))
        return self.finish(body, tokens + int(totals[n - 1]), answers)

    def finish(
        self, body: str, used: int, answers: tuple[str, ...], label: Any = None
    ) -> SampleDraft:
        """The draft with this body of `used` tokens and the longest filler that fits."""
        filler, tokens = self.fill(used)
        context = f"{self._head}{filler}{body}{self._closing}"
        return SampleDraft(context, self._query, answers, label, self._fixed + used + tokens)
