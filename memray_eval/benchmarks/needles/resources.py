"""The shared resources of a run's samples: the counts, the pools, and the user's own text."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import cycle, islice
from random import Random

import numpy as np

from memray_eval.benchmarks.needles.prose import (
    Corpus,
    IntArray,
    Pile,
    TextUnit,
    UnitPool,
    paragraph,
)
from memray_eval.errors import DataError, reason_of
from memray_eval.ports import Tokenizer
from memray_eval.storage.paths import locate, open_reader

NOISE = (
    "The hills are quiet. The road is long. The wind is mild. On we walk. Over there and "
    "home again.\n"
)
LONGEST_LINE = 600  # characters; longer paragraphs are cut at the ends of sentences
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|[。！？]|$)\s*")


class Resources:
    """The counts and pools of a run; the user's `haystack` (lines) in place of invented prose."""

    def __init__(self, tokenizer: Tokenizer, seed: int, haystack: Sequence[str] = ()) -> None:
        self.counter = TokenCounter(tokenizer)
        self.seed = seed
        self.haystack_text = "".join(haystack)
        self._haystack = tuple(haystack)
        self._pools: dict[str, UnitPool] = {}
        self._corpus = cache(lambda lines: Corpus(lines, self.counter.line))

    def pool(
        self,
        name: str,
        make: Callable[[Random, int], TextUnit],
        *,
        measure: Callable[[str], int] | None = None,
        capacity: int | None = None,
    ) -> UnitPool:
        """The pool of this name, made when first asked for."""
        if name not in self._pools:
            measure = measure or self.counter.line
            self._pools[name] = UnitPool(self.seed, name, make, measure, capacity)
        return self._pools[name]

    def noise(self) -> Pile:
        """One line, again and again."""
        return self._corpus((NOISE,))

    def essay(self) -> Pile:
        """Invented prose, no paragraph twice in a sample; or the user's text in its order."""
        if self._haystack:
            return self._corpus(self._haystack)
        return self.pool("paragraphs:en", lambda rng, _: TextUnit(paragraph(rng)))


def read_haystack(path: str) -> list[str]:
    """A UTF-8 text as lines of up to about LONGEST_LINE characters. Raises DataError."""
    try:
        with open_reader(*locate(path)) as file:
            text = file.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.splitlines())
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


# what precedes a line when it is counted: a tokenizer may treat the start of a text in its own
# way
LINE = "Anchor.\n"
LONGEST_FILLER = 2048
# The start, what is repeated, the end of a filler line: the first kind that has a text of so many
# tokens is taken.
FILLERS = (
    ("And so", (" on", " and", " so"), ".\n"),
    ("Well", (" so", " and", " on"), ".\n"),
    ("So it went", (" on",), "\n"),
    ("On", (" a",), "!\n"),
)


class TokenCounter:
    """Counts texts for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.whole = tokenizer.count  # tokens of a text by itself
        self._anchors: dict[str, int] = {}
        self._tables: dict[tuple[str, str], IntArray] = {}
        self.cached = lru_cache(maxsize=1024)(self.after)  # `after`, of texts that come back
        # `whole`, of the lines that texts start with
        self.start = lru_cache(maxsize=256)(self.whole)
        # lines of filler words by their tokens, and up to how many tokens they were made
        self._fillers, self._reach = {0: ""}, 0

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
            more = (pattern.replace("{}", str(number)) for number in numbers[len(counts) :])
            new = np.fromiter((self.after(anchor, text) for text in more), np.int64)
            counts = self._tables[pattern, anchor] = np.concatenate([counts, new])
        return counts[: len(numbers)]

    def filler(self, tokens: int) -> str | None:
        """A line of filler words of exactly this many tokens; None if there is none."""
        if self._reach < tokens <= LONGEST_FILLER:
            self._make_fillers(min(LONGEST_FILLER, max(64, 2 * tokens)))
        return self._fillers.get(tokens)

    def _make_fillers(self, reach: int) -> None:
        texts, longest = self._fillers, self._reach
        for start, words, end in FILLERS:
            text, count = start, 0
            # 4 * reach: words that cost nothing (such a tokenizer has an unknown token for them)
            for word in islice(cycle(words), 4 * reach + 1):
                count = self.line(text + end)
                if count > longest:
                    texts.setdefault(count, text + end)
                if count >= reach:
                    break
                text += word
            if all(tokens in texts for tokens in range(self.line(start + end), reach + 1)):
                break
        self._reach = reach
