"""NoLiMa's samples: a needle at each of several depths of a book's beginning.

Needle sets and books come from the user's copy (hf://datasets/amodaresi/NoLiMa: needlesets/*.json,
haystack/rand_shuffle/*.txt; evaluation/run_tests.py at 7532e4e): their licence is non-commercial.
Tokens are those of `plain_prompt(context, query)`. The book ends after a word, so a sample is short
of its length by less than a word, and never above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from memray_eval.benchmarks.conversations.conversation import find_named
from memray_eval.benchmarks.generator.question_order import IntArray, length_label, seeded_generator
from memray_eval.benchmarks.generator.resources import read_text
from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.errors import ConfigError, DataError
from memray_eval.types import Frozen, Name, Sample

APART = 20  # percent of the text between a needle and its distractor, at the least
CHARACTER = "{CHAR}"
Texts = Annotated[
    tuple[Name, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]


class _Test(BaseModel, frozen=True):
    input_args: tuple[str, ...] = ()
    gold_answers: Texts = ()


class _Experiment(BaseModel, frozen=True):
    """One entry of a needle set. What is asked of it differs by its questions' types (onehop,
    twohop, direct, ...) and its tests, which fill the places {1}, {2}, ..."""

    id: Name
    needle: Name
    questions: Annotated[dict[Name, Name], Field(min_length=1)]
    tests: Annotated[dict[Name, _Test], Field(min_length=1)]
    character_set: tuple[Name, ...] = ()
    distractors: dict[str, str] = Field(default_factory=dict)


class NeedleQuestion(Frozen):
    """A needle and the question about it, ready but for the character whose name is drawn for each
    sample: where there are `characters`, that one is the answer."""

    id: str
    task: str
    needle: str
    question: str
    characters: tuple[str, ...]
    answers: tuple[str, ...]
    distractor: str = ""


class Book(Frozen):
    """A text by the name of its file."""

    name: str
    text: str


_SET = TypeAdapter(Annotated[tuple[_Experiment, ...], Field(min_length=1)])


def read_needle_set(path: str) -> list[NeedleQuestion]:
    """The questions of a needle set, by experiment, type and test. Raises DataError."""
    try:
        experiments = _SET.validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{path}: no needle set of NoLiMa's: {field + ': ' if field else ''}{first['msg']}"
        ) from None
    return [question for experiment in experiments for question in _questions_of(experiment, path)]


def _questions_of(experiment: _Experiment, path: str) -> Iterator[NeedleQuestion]:
    for task, question in experiment.questions.items():
        for name, test in experiment.tests.items():
            texts = [experiment.needle, question, experiment.distractors.get(task, "")]
            for number, value in enumerate(test.input_args, 1):
                texts = [text.replace(f"{{{number}}}", value) for text in texts]
            needle, query, distractor = texts
            draws = CHARACTER in needle
            if draws and not experiment.character_set:
                raise DataError(
                    f"{path}: {experiment.id}: its needle has {CHARACTER}, and no names to it"
                )
            if not draws and not test.gold_answers:
                raise DataError(f"{path}: {experiment.id}, test {name}: it has no gold_answers")
            yield NeedleQuestion(
                id=f"{experiment.id}_{name}_{task}",
                task=task,
                needle=needle,
                question=query,
                characters=experiment.character_set if draws else (),
                answers=test.gold_answers,
                distractor=distractor,
            )


def read_books(path: str) -> list[Book]:
    """A .txt file, or those of a folder, in the order of their names. Raises DataError."""
    paths = find_named(path, lambda name: name.endswith(".txt"))
    if not paths:
        raise DataError(f"--books {path}: no .txt file there")
    names = (file.rpartition("/")[2].removesuffix(".txt") for file in paths)
    books = [Book(name=name, text=read_text(file)) for name, file in zip(names, paths, strict=True)]
    if empty := next((book.name for book in books if not book.text.strip()), None):
        raise DataError(f"--books {path}: {empty}.txt has no text")
    return books


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
    """By length, question, book and depth. Raises ConfigError at once for a short book."""
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
