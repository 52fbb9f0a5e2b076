"""The material of haystacks: numbered units of text, made and counted once, for every sample."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np

from memray_eval.benchmarks.generator.question_order import IntArray, distinct, seeded_generator
from memray_eval.errors import ConfigError

BLOCK = 256  # units that share a generator
SMALLEST = 1024  # units of a pool, however short the samples
SPARE = 1.2  # units drawn for a sample, over what its length takes on the average

_FIRST_SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|[。！？])")


class TextUnit(NamedTuple):
    """A stretch of text and, where questions are asked about it, its key and its values."""

    text: str
    key: str = ""
    values: tuple[str, ...] = ()


class Pile:
    """Units that samples draw from, and their tokens."""

    def __init__(self) -> None:
        self._units: list[TextUnit] = []
        self._counts = np.zeros(0, np.int64)

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        """Numbers of units: `extra`, then enough for so many tokens, whatever was drawn before."""
        raise NotImplementedError

    def unit(self, number: int) -> TextUnit:
        return self._units[number]

    def texts(self, numbers: Sequence[int]) -> list[str]:
        units = self._units
        return [units[number].text for number in numbers]

    def counts(self, numbers: Sequence[int]) -> IntArray:
        return self._counts[numbers]

    def totals(self, numbers: Sequence[int]) -> IntArray:
        """Tokens of the first 1, 2, ... of these units."""
        return np.cumsum(self._counts[numbers])


class UnitPool(Pile):
    """Units that `make` makes from their number, each its own. No sample draws one twice."""

    def __init__(
        self,
        name: tuple[object, ...],
        make: Callable[[Random, int], TextUnit],
        measure: Callable[[str], int],
        capacity: int | None = None,
    ) -> None:
        super().__init__()
        self._name, self._make, self._measure, self._capacity = name, make, measure, capacity
        self._mean = 0.0

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        return self.sample(rng, math.ceil(tokens / self.mean * SPARE) + extra + 8)

    def sample(self, rng: Random, n: int) -> list[int]:
        """The numbers of `n` different units. Raises ConfigError if there cannot be so many."""
        if self._capacity is not None and n > self._capacity:
            raise ConfigError(
                f"there are {self._capacity:,} different {self._name[-2]} ({self._name[-1]}), and "
                f"a sample of this length draws from {n:,}: its largest length is about "
                f"{int(self._capacity / SPARE * self.mean):,} tokens"
            )
        size = max(SMALLEST, 1 << math.ceil(math.log2(2 * n)))
        size = size if self._capacity is None else min(size, self._capacity)
        self.grow(size)
        return distinct(rng, n, size)

    @property
    def mean(self) -> float:
        """Tokens of a unit, by the first block."""
        if not self._mean:
            self.grow(BLOCK)
            self._mean = max(1.0, float(self._counts[:BLOCK].mean()))
        return self._mean

    def grow(self, size: int) -> None:
        """Makes the units up to a number, where they are not there yet."""
        before = len(self._units)
        if before >= size:
            return
        for first in range(before, size, BLOCK):
            rng = seeded_generator("pool", *self._name, first // BLOCK)
            self._units.extend(self._make(rng, number) for number in range(first, first + BLOCK))
        new = np.fromiter((self._measure(unit.text) for unit in self._units[before:]), np.int64)
        self._counts = np.concatenate([self._counts, new])


class Corpus(Pile):
    """Lines of a text in order, from the sample's own line on, and again after the end."""

    def __init__(self, lines: Sequence[str], measure: Callable[[str], int]) -> None:
        super().__init__()
        self._units = [TextUnit(line) for line in lines]
        self._counts = np.fromiter((measure(line) for line in lines), np.int64, len(lines))

    def draw(self, rng: Random, tokens: int, extra: int = 0) -> list[int]:
        n = math.ceil(tokens / max(1.0, float(self._counts.mean())) * SPARE) + extra + 8
        size = len(self._units)
        if size > 1:  # lines differ in length: never short of what the mean promises
            n += size
        start = rng.randrange(size)
        return [number % size for number in range(start, start + n)]


@lru_cache(maxsize=64)
def scatter(size: int, *name: object) -> Callable[[int], int]:
    """A one-to-one map of 0 to size - 1 onto itself that scatters neighbours."""
    rng = seeded_generator("spread", *name)
    step = next(
        step
        for step in iter(lambda: rng.randrange(size // 3, size), -1)
        if math.gcd(step, size) == 1
    )
    start = rng.randrange(size)
    return lambda number: (number * step + start) % size


def insert_sentence(paragraph: str, sentence: str) -> str:
    """The paragraph with a sentence put in after its first one."""
    match = _FIRST_SENTENCE.match(paragraph)
    first = match.group() if match else ""
    if not first or not paragraph[len(first) :].strip():
        return f"{sentence}\n"
    if first[-1] in "。！？":
        return first + sentence + paragraph[len(first) :]
    return f"{first} {sentence}{paragraph[len(first) :]}"


def nearest_cut(totals: IntArray, depth: int) -> int:
    """Before which unit a needle stands so that `depth` percent of the tokens are above it."""
    cuts = np.concatenate([np.zeros(1, np.int64), totals])
    return int(np.argmin(np.abs(cuts - depth / 100 * cuts[-1])))


def insert_needles(texts: list[str], needles: Sequence[tuple[int, str]]) -> str:
    """The texts in a row, each needle before the text of its number, in order."""
    pieces = list(texts)
    for number, needle in reversed(sorted(needles, key=lambda item: item[0])):
        pieces.insert(number, needle)
    return "".join(pieces)
