"""The plan of a generation: the kinds of task, cells of task, length and depth, and the samples of
each, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from memray_eval.benchmarks.needles.prose import (
    UNITS,
    IntArray,
    Pile,
    QuestionOrder,
    insert_needles,
    nearest_cut,
)
from memray_eval.benchmarks.needles.resources import LINE, Resources
from memray_eval.errors import ConfigError

MIDDLE = 50  # the only depth of a sweep of one


class Task(NamedTuple):
    """One kind of task, made by a function (order, resources, slack) -> SampleDraft of at most
    `order.length - slack` tokens. It `has_depth` of one needle. `needs_all` answers, or any one."""

    make: Callable[[QuestionOrder, Resources, int], SampleDraft]
    has_depth: bool = True
    needs_all: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep. `depths` are percents; a task without depth gets `samples` a length."""

    tasks: Mapping[str, Task]
    lengths: tuple[int, ...]
    depths: tuple[int, ...]
    samples: int = 1
    seed: int = 0

    def groups(self) -> Iterator[tuple[str, int]]:
        return product(self.tasks, self.lengths)

    def orders(self, task: str, length: int) -> Iterator[QuestionOrder]:
        has_depth = self.tasks[task].has_depth
        cells = product(self.depths if has_depth else (None,), range(self.samples))
        return (QuestionOrder(self.seed, task, length, *cell) for cell in cells)

    @property
    def n_samples(self) -> int:
        return sum(1 for group in self.groups() for _ in self.orders(*group))


def plan_of(
    by_name: Mapping[str, Task], tasks: str, lengths: str, depths: int, samples: int, seed: int
) -> Plan:
    """A plan from names with commas, `all` for all, lengths such as 4k. Raises ConfigError."""
    if samples < 1:
        raise ConfigError(f"--samples {samples}: must be 1 or more")
    names = [*by_name] if tasks.strip() == "all" else _words(tasks, "--tasks")
    for name in names:
        if name not in by_name:
            raise ConfigError(f"--tasks: no {name!r}; there are: {', '.join(by_name)}")
    return Plan(
        tasks={name: by_name[name] for name in names},
        lengths=tuple(dict.fromkeys(map(length_of, _words(lengths, "--lengths")))),
        depths=even_depths(depths),
        samples=samples,
        seed=seed,
    )


def even_depths(n: int) -> tuple[int, ...]:
    """`n` depths of 0 to 100 percent, in even whole steps; one alone is the middle."""
    if not 1 <= n <= 101:
        raise ConfigError(f"--depths {n}: the number of depths must be 1 to 101")
    return (MIDDLE,) if n == 1 else tuple(int(100 * i / (n - 1) + 0.5) for i in range(n))


def length_of(text: str) -> int:
    """Tokens of a length such as 4096, 4k (k = 1024) or 1M. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]+)([km]?)", text.lower())
    if not match or not int(match[1]):
        raise ConfigError(
            f"--lengths {text}: not a length; write tokens such as 4096, 4k (k = 1024) or 1M"
        )
    return int(match[1]) * UNITS[match[2]]


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigError(f"{option} names nothing")
    return words


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
    and the question below; `slack` tokens stay free. What is left is `room`, for units of text that
    are counted one by one and a line of filler words."""

    def __init__(
        self,
        order: QuestionOrder,
        resources: Resources,
        slack: int,
        head: str,
        closing: str,
        query: str,
    ) -> None:
        self._counter = resources.counter
        self._head, self._closing, self._query = head, closing, query
        end = self._counter.cached(LINE, plain_prompt(closing, query))
        self._fixed = self._counter.start(head) + end
        self.room = order.length - slack - self._fixed

    def fits(self, used: int) -> bool:
        """Returns True if a filler line makes up the rest exactly."""
        return used <= self.room and self._counter.filler(self.room - used) is not None

    def most(self, totals: IntArray, least: int = 1) -> int:
        """The number of units to take, by the tokens of the first 1, 2, .... Raises TooShort."""
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
            text = self._counter.filler(tokens)
            if text is not None:
                return text, tokens
        return "", 0

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
