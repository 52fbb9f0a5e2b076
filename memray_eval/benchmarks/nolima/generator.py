"""NoLiMa's samples: a needle at each of several depths of a book's beginning.

A sample's tokens are those of `plain_prompt(context, query)`, the needle and the question included
(the benchmark counts the book alone). The book ends after a word, so that a sample is short of its
length by less than what its next word takes, and never above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from memray_eval.benchmarks.generator.question_order import IntArray, length_label, seeded_generator
from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.benchmarks.nolima.needle_sets import CHARACTER, Book, NeedleQuestion
from memray_eval.errors import ConfigError
from memray_eval.types import Sample

APART = 20  # percent of the text between a needle and its distractor, at the least


class CountedBook(NamedTuple):
    """A book with where its lines begin and its words end, and the tokens before each line."""

    name: str
    text: str
    line_starts: IntArray
    word_ends: IntArray
    tokens_before: IntArray


def count_book(book: Book, counter: TokenCounter) -> CountedBook:
    lines = book.text.splitlines(keepends=True)
    starts = np.cumsum([0, *map(len, lines)])
    ends = np.fromiter((match.end() for match in re.finditer(r"\S+", book.text)), np.int64)
    before = np.cumsum([0, *map(counter.line, lines)])
    return CountedBook(book.name, book.text, starts, ends, before)


def samples(
    questions: Sequence[NeedleQuestion],
    books: Sequence[Book],
    lengths: Sequence[int],
    depths: Sequence[int],
    counter: TokenCounter,
    seed: int,
) -> Iterator[Sample]:
    """By length, question, book and depth. Raises ConfigError at once where a book is too short, or
    a length."""
    counted = [count_book(book, counter) for book in books]
    for book in counted:
        if book.tokens_before[-1] < max(lengths):
            raise ConfigError(
                f"--lengths {length_label(max(lengths))}: the book {book.name} has "
                f"{int(book.tokens_before[-1]):,} tokens"
            )
    return (
        _make(question, book, length, depth, counter, seed)
        for length in lengths
        for question in questions
        for book in counted
        for depth in depths
    )


def _make(
    question: NeedleQuestion,
    book: CountedBook,
    length: int,
    depth: int,
    counter: TokenCounter,
    seed: int,
) -> Sample:
    name = f"{question.id}-{book.name}-{length_label(length)}-d{depth}"
    rng = seeded_generator(seed, "nolima", name)
    character = rng.choice(question.characters) if question.characters else ""
    needle = question.needle.replace(CHARACTER, character)
    query = question.question.replace(CHARACTER, character)
    placed = [(depth, needle)]
    if question.distractor:
        far = [other for other in range(101) if abs(other - depth) >= APART]
        placed.append((rng.choice(far), question.distractor.replace(CHARACTER, character)))

    def text_to(word: int) -> str:
        return _insert(book, int(book.word_ends[word]), placed)

    def count_to(word: int) -> int:
        return counter.whole(plain_prompt(text_to(word), query))

    word = _last_word(book, length, count_to)
    if word is None:
        raise ConfigError(f"--lengths {length_label(length)}: {name} takes more tokens than that")
    return Sample(
        id=name,
        suite="nolima",
        task=question.task,
        query=query,
        context=text_to(word),
        answers=(character,) if character else question.answers,
        metadata={
            "length": length,
            "tokens": count_to(word),
            "depth": depth,
            "seed": seed,
            "bucket": length_label(length),
            "book": book.name,
            "needle": needle,
        },
    )


def _last_word(book: CountedBook, length: int, count_to: Callable[[int], int]) -> int | None:
    """The last word of the book with which a sample is within its length: guessed from the lines'
    tokens and then counted. None if not even the first is."""
    line = int(np.searchsorted(book.tokens_before, length))
    word = min(
        int(np.searchsorted(book.word_ends, book.line_starts[line])), len(book.word_ends) - 1
    )
    while (excess := count_to(word) - length) > 0:
        if word == 0:
            return None
        word = max(0, word - max(1, excess // 2))
    while word + 1 < len(book.word_ends) and count_to(word + 1) <= length:
        word += 1
    return word


def _insert(book: CountedBook, end: int, placed: Sequence[tuple[int, str]]) -> str:
    """The book's text up to `end`, with each text as a line of its own before the line that begins
    nearest to its depth, in percent of the tokens."""
    n = int(np.searchsorted(book.line_starts, end))
    text, cuts = book.text[:end], book.tokens_before[:n]
    for depth, line in sorted(placed, reverse=True):
        wanted = depth / 100 * int(cuts[-1])
        start = int(book.line_starts[int(np.argmin(np.abs(cuts - wanted)))])
        text = f"{text[:start]}{line}\n{text[start:]}"
    return text
