"""The shared resources of a run's samples: the counts, the pools, and the user's own texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from memray_eval.benchmarks.generator.pools import Corpus, Pile, TextUnit, UnitPool
from memray_eval.benchmarks.generator.prose import paragraph
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.errors import DataError, reason_of
from memray_eval.ports import Tokenizer
from memray_eval.storage.paths import locate, open_reader
from memray_eval.types import Frozen, Name

NOISE = {
    "en": "The hills are quiet. The road is long. The wind is mild. On we walk. Over there and "
    "home again.\n",
    "zh": "山是静的。路是长的。风是轻的。我们往前走。去了那边又回来。\n",
}
LONGEST_LINE = 600  # characters; longer paragraphs are cut at the ends of sentences
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|[。！？]|$)\s*")


class QuestionedText(Frozen):
    """A question over documents: `gold` hold the answer, `documents` are about the same."""

    question: Name
    answers: Annotated[tuple[Name, ...], Field(min_length=1)]
    gold: Annotated[tuple[Name, ...], Field(min_length=1)]
    documents: tuple[Name, ...] = ()

    @field_validator("answers", "gold", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("gold", "documents")
    @classmethod
    def _on_one_line(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" ".join(text.split()) for text in texts)


class Library:
    """The user's documents, as lines from `before` on; by question its answers and others."""

    def __init__(
        self, questions: Sequence[QuestionedText], before: str, counter: TokenCounter
    ) -> None:
        numbers: dict[str, int] = {}
        self.gold: list[list[int]] = []
        self.own: list[list[int]] = []
        for question in questions:
            gold = {numbers.setdefault(text, len(numbers)) for text in question.gold}
            own = {numbers.setdefault(text, len(numbers)) for text in question.documents}
            self.gold.append(sorted(gold))
            self.own.append(sorted(own - gold))
        self.texts = [f"{before}{text}\n" for text in numbers]
        self.counts = counter.lines(self.texts)

    def others(self, rng: Random, tokens: int, excluded: set[int]) -> list[int]:
        """Documents but for the known ones, enough for so many tokens if there are."""
        wanted = int(tokens / max(1.0, float(self.counts.mean())) * 2) + len(excluded) + 8
        drawn = rng.sample(range(len(self.texts)), min(len(self.texts), wanted))
        return [number for number in drawn if number not in excluded]


class Resources:
    """The user's `haystack` (lines of text) and `questions` in place of generated ones."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        seed: int,
        haystack: Sequence[str] = (),
        questions: Sequence[QuestionedText] = (),
    ) -> None:
        self.counter = TokenCounter(tokenizer)
        self.seed = seed
        self.questions = questions
        self.haystack_text = "".join(haystack)
        self._haystack = haystack
        self._piles: dict[tuple[str, str], Pile] = {}
        self._libraries: dict[str, Library] = {}

    def pool(
        self,
        name: str,
        language: str,
        make: Callable[[Random, int], TextUnit],
        *,
        measure: Callable[[str], int] | None = None,
        capacity: int | None = None,
    ) -> UnitPool:
        """The pool of this name, made when first asked for."""
        pool = self._piles.get((name, language))
        if not isinstance(pool, UnitPool):
            pool = UnitPool(
                (self.seed, name, language), make, measure or self.counter.line, capacity
            )
            self._piles[name, language] = pool
        return pool

    def noise(self, language: str) -> Pile:
        """One line, again and again."""
        if ("noise", language) not in self._piles:
            self._piles["noise", language] = Corpus((NOISE[language],), self.counter.line)
        return self._piles["noise", language]

    def essay(self, language: str) -> Pile:
        """Invented prose, no paragraph twice in a sample; or the user's text in its order."""
        if not self._haystack:
            return self.pool(
                "paragraphs", language, lambda rng, _: TextUnit(paragraph(rng, language))
            )
        if ("text", "") not in self._piles:
            self._piles["text", ""] = Corpus(self._haystack, self.counter.line)
        return self._piles["text", ""]

    def library(self, before: str) -> Library:
        """The documents of the user's questions."""
        if before not in self._libraries:
            self._libraries[before] = Library(self.questions, before, self.counter)
        return self._libraries[before]


def read_haystack(path: str) -> list[str]:
    """A UTF-8 text as lines of up to about LONGEST_LINE characters. Raises DataError."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in read_text(path).splitlines())
    lines = [line for paragraph in paragraphs for line in _cut_paragraph(paragraph)]
    if not lines:
        raise DataError(f"{path} has no text")
    return lines


def _cut_paragraph(paragraph: str) -> Iterator[str]:
    """Cuts a paragraph into lines of up to about LONGEST_LINE characters, at ends of sentences."""
    line = ""
    for sentence in _SENTENCE.findall(paragraph):
        if line and len(line) + len(sentence) > LONGEST_LINE:
            yield line.rstrip() + "\n"
            line = ""
        line += sentence
    if line:
        yield line.rstrip() + "\n"


def read_questions(path: str) -> list[QuestionedText]:
    """A JSONL file of QuestionedText. Raises DataError that names line and field."""
    questions = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            try:
                questions.append(QuestionedText.model_validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                field = ".".join(str(part) for part in first["loc"])
                raise DataError(
                    f"{path}, line {number}: {field + ': ' if field else ''}{first['msg']}"
                ) from None
    if not questions:
        raise DataError(f"{path} has no questions")
    return questions


def read_text(path: str) -> str:
    """A text file (UTF-8). Raises DataError."""
    try:
        with open_reader(*locate(path)) as file:
            return file.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
