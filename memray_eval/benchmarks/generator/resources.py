"""What the samples of one run share: the counts, the pools, and the user's own texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from memray_eval.benchmarks.generator.pools import Corpus, Pile, Pool, Unit
from memray_eval.benchmarks.generator.prose import paragraph
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.benchmarks.generator.user_texts import QuestionedText
from memray_eval.ports import Tokenizer

NOISE = {
    "en": "The hills are quiet. The road is long. The wind is mild. On we walk. Over there and "
    "home again.\n",
    "zh": "山是静的。路是长的。风是轻的。我们往前走。去了那边又回来。\n",
}


class Library:
    """The user's documents, each once, as lines that start with `before`; by question those that
    answer it and its others."""

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

    def others(self, rng: Random, tokens: int, known: set[int]) -> list[int]:
        """Documents but for the known ones, enough for so many tokens if there are."""
        wanted = int(tokens / max(1.0, float(self.counts.mean())) * 2) + len(known) + 8
        drawn = rng.sample(range(len(self.texts)), min(len(self.texts), wanted))
        return [number for number in drawn if number not in known]


class Resources:
    """`haystack`: lines of the user's text instead of generated prose; `questions`: the user's
    instead of generated ones."""

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
        make: Callable[[Random, int], Unit],
        *,
        measure: Callable[[str], int] | None = None,
        capacity: int | None = None,
    ) -> Pool:
        """The pool of this name, made when first asked for."""
        found = self._piles.get((name, language))
        if not isinstance(found, Pool):
            found = Pool((self.seed, name, language), make, measure or self.counter.line, capacity)
            self._piles[name, language] = found
        return found

    def noise(self, language: str) -> Pile:
        """One line, again and again."""
        if ("noise", language) not in self._piles:
            self._piles["noise", language] = Corpus((NOISE[language],), self.counter.line)
        return self._piles["noise", language]

    def essay(self, language: str) -> Pile:
        """Invented prose, no paragraph twice in a sample; or the user's text in its order."""
        if not self._haystack:
            return self.pool("paragraphs", language, lambda rng, _: Unit(paragraph(rng, language)))
        if ("text", "") not in self._piles:
            self._piles["text", ""] = Corpus(self._haystack, self.counter.line)
        return self._piles["text", ""]

    def library(self, before: str) -> Library:
        """The documents of the user's questions."""
        if before not in self._libraries:
            self._libraries[before] = Library(self.questions, before, self.counter)
        return self._libraries[before]
