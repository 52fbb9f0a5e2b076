"""The token count of a text, by parts: a part is tokenised once and its count kept. Counts add up
where a tokenizer cuts in any case; generate.py measures that for the tokenizer at hand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from memray_eval.benchmarks.generator.question_order import IntArray
from memray_eval.ports import Tokenizer

# what stands before a line when it is counted: a tokenizer may treat the start of a text in its own
# way
LINE = "Anchor.\n"
LONGEST_FILLER = 2048
# The start, what is repeated, the end of a filler line: the first kind that has a text of so many
# tokens is taken.
FILLERS = {
    "en": (
        ("And so", (" on", " and", " so"), ".\n"),
        ("Well", (" so", " and", " on"), ".\n"),
        ("So it went", (" on",), "\n"),
        ("On", (" a",), "!\n"),
    ),
    "zh": (
        ("如此", ("这", "样", "，", "那", "样", "，"), "。\n"),
        ("就这样", ("，",), "。\n"),
        ("再说", ("的",), "。\n"),
        ("好", (" a",), "。\n"),
        ("And so", (" on", " and", " so"), ".\n"),
        ("On", (" a",), "!\n"),
    ),
}


class TokenCounter:
    """Counts texts for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.whole = tokenizer.count  # tokens of a text by itself
        self._anchors: dict[str, int] = {}
        self._tables: dict[tuple[str, str], IntArray] = {}
        self._pieces: dict[tuple[str, tuple[str, ...]], IntArray] = {}
        self.known = lru_cache(maxsize=1024)(self.after)  # `after`, of texts that come back
        # `whole`, of the lines that texts start with
        self.start = lru_cache(maxsize=256)(self.whole)
        self._fillers = {language: Fillers(self, language) for language in FILLERS}

    def after(self, anchor: str, text: str) -> int:
        """Tokens that a text adds to an anchor that it follows."""
        if anchor not in self._anchors:
            self._anchors[anchor] = self.whole(anchor)
        return self.whole(anchor + text) - self._anchors[anchor]

    def line(self, text: str) -> int:
        """Tokens of one or several lines that follow a line."""
        return self.after(LINE, text)

    def lines(self, texts: Iterable[str]) -> IntArray:
        return np.fromiter((self.line(text) for text in texts), np.int64)

    def table(self, pattern: str, numbers: range, anchor: str) -> IntArray:
        """Tokens that `pattern` adds after the anchor, by the number in place of its {}. Kept."""
        counts = self._tables.get((pattern, anchor), np.zeros(0, np.int64))
        if len(counts) < len(numbers):
            more = (
                self.after(anchor, pattern.replace("{}", str(number)))
                for number in numbers[len(counts) :]
            )
            counts = self._tables[pattern, anchor] = np.concatenate(
                [counts, np.fromiter(more, np.int64)]
            )
        return counts[: len(numbers)]

    def pieces(self, texts: tuple[str, ...], anchor: str) -> IntArray:
        """Tokens that each of the texts adds after the anchor. Kept."""
        if (anchor, texts) not in self._pieces:
            counts = (self.after(anchor, text) for text in texts)
            self._pieces[anchor, texts] = np.fromiter(counts, np.int64, len(texts))
        return self._pieces[anchor, texts]

    def filler(self, tokens: int, language: str) -> str | None:
        """A line of filler words of exactly this many tokens; None if there is none."""
        return self._fillers[language].exactly(tokens)


class Fillers:
    """Lines of filler words by their number of tokens, made as they are asked for."""

    def __init__(self, counter: TokenCounter, language: str) -> None:
        self._counter = counter
        self._kinds = FILLERS[language]
        self._texts: dict[int, str] = {0: ""}
        self._reach = 0

    def exactly(self, tokens: int) -> str | None:
        if tokens > self._reach and tokens <= LONGEST_FILLER:
            self._grow(min(LONGEST_FILLER, max(64, 2 * tokens)))
        return self._texts.get(tokens)

    def _grow(self, reach: int) -> None:
        for start, words, end in self._kinds:
            text, count, repeats = start, 0, 0
            while count < reach:
                count = self._counter.line(text + end)
                if count > self._reach:
                    self._texts.setdefault(count, text + end)
                text += words[repeats % len(words)]
                repeats += 1
                # words that cost nothing: such a tokenizer has an unknown token for them
                if repeats > 4 * reach:
                    break
            if all(
                tokens in self._texts
                for tokens in range(self._counter.line(start + end), reach + 1)
            ):
                break
        self._reach = reach
