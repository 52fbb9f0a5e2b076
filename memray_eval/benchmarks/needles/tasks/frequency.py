"""Counting words: cwe (ten common words among rare ones) and fwe (frequencies by rank squared)."""

import math
from functools import lru_cache
from random import Random

import numpy as np

from memray_eval.benchmarks.needles.plan import SampleDraft, SampleSpec, TooShort
from memray_eval.benchmarks.needles.prose import (
    IntArray,
    QuestionOrder,
    TextUnit,
    UnitPool,
    scatter,
    shuffle,
    word_of,
)
from memray_eval.benchmarks.needles.resources import LINE, Resources
from memray_eval.benchmarks.needles.tasks.words import CONSONANTS, LETTERS, VOWELS

WORDS = {
    "cwe_head": "Below is a numbered list of words. A few of them occur far more often than "
    "the others. For example, in\n"
    "{example}the words {common} occur most often.\nThe list follows.\n",
    "cwe_closing": "This is the end of the list.",
    "cwe_query": "Which {n} words occur most often in the list above? Name these {n} words "
    "and nothing else.",
    "fwe_head": "Below is a text of made-up words. Dots stand for nothing and do not count.\n",
    "fwe_closing": "This is the end of the text.",
    "fwe_query": "Which three made-up words occur most often in the text above? Name these "
    "three words and nothing else.",
}
COMMON, LEAST_RARE = 10, 10  # words of a list
# times that a common and a rare word occur: from LONG tokens on, and below or where these do not
# fit
OFTEN, SELDOM = (30, 3), (6, 1)
LONG = 4096
SHOWN = (3, 3, 6)  # the example of cwe: common words, times of each, rare words
# the last item is always the same, for it may become one token with the newline
NOTHING, LAST = " ...", " ...\n"
ZETA_2 = math.pi**2 / 6
LEAST_ITEMS = 60  # of fwe: from there on ranks 2 to 4 occur more often than any other word


def cwe(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """As many rare words as fit. Coined words of one length: none is part of another."""
    if order.length >= LONG:
        try:
            return _cwe(order, resources, slack, *OFTEN)
        except TooShort:  # a tokenizer that needs many tokens a word
            pass
    return _cwe(order, resources, slack, *SELDOM)


def _cwe(
    order: QuestionOrder, resources: Resources, slack: int, often: int, seldom: int
) -> SampleDraft:
    rng, words = order.rng(), WORDS
    pool = _coined_words(resources)
    drawn = pool.sample(
        rng, math.ceil(order.length / (seldom * (pool.mean + 2))) + sum(SHOWN) + COMMON + LEAST_RARE
    )
    shown, drawn = drawn[: SHOWN[0] + SHOWN[2]], drawn[SHOWN[0] + SHOWN[2] :]
    n, shown_times, _ = SHOWN
    listed = shuffle(rng, np.array([*range(n)] * shown_times + [*range(n, len(shown))]))
    head = words["cwe_head"].format(
        example=_number_words(pool.texts(shown), listed),
        common=", ".join(pool.unit(number).key for number in shown[:n]),
    )
    query = words["cwe_query"].format(n=COMMON)
    spec = SampleSpec(order, resources, slack, head, words["cwe_closing"], query)
    times = np.full(len(drawn), seldom)
    times[:COMMON] = often
    items = np.cumsum(times)
    numbering = resources.counter.table("{}.", range(1, int(items[-1]) + 1), LINE)
    totals = np.cumsum(times * pool.counts(drawn)) + np.cumsum(numbering)[items - 1]
    n = spec.most(totals, COMMON + LEAST_RARE)
    body = _number_words(pool.texts(drawn[:n]), shuffle(rng, np.repeat(np.arange(n), times[:n])))
    return spec.finish(
        body, int(totals[n - 1]), tuple(pool.unit(number).key for number in drawn[:COMMON])
    )


def _number_words(texts: list[str], listed: IntArray) -> str:
    pieces = [""] * (2 * len(listed))
    pieces[::2] = _places(1 << len(listed).bit_length())[: len(listed)]
    pieces[1::2] = [texts[number] for number in listed.tolist()]
    return "".join(pieces)


@lru_cache(maxsize=2)
def _places(n: int) -> list[str]:
    return [f"{number}." for number in range(1, n + 1)]


def _coined_words(resources: Resources) -> UnitPool:
    """Words that sound like words: consonant-vowel three times."""
    sounds = [c + v for c in CONSONANTS for v in VOWELS]
    size = len(sounds)
    scattered = scatter(size**3, resources.seed, "coined", "en")

    def make(_: Random, number: int) -> TextUnit:
        spread = scattered(number)
        word = sounds[spread % size] + sounds[spread // size % size] + sounds[spread // size**2]
        return TextUnit(f" {word}\n", word)

    measure = resources.counter.after
    return resources.pool(
        "coined words:en", make, measure=lambda text: measure("1.", text), capacity=size**3
    )


def fwe(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Rank k occurs floor(n / (zeta(2) k^2)) times; rank 1 is dots, 2 to 4 the answer."""
    rng, words = order.rng(), WORDS
    pool = _random_words(resources)
    drawn = pool.sample(rng, math.isqrt(order.length) + 1)
    head, closing, query = (words[f"fwe_{part}"] for part in ("head", "closing", "query"))
    spec = SampleSpec(order, resources, slack, head, closing, query)
    costs = np.concatenate([[resources.counter.cached("...", NOTHING)], pool.counts(drawn)])
    ends = resources.counter.cached(LINE, "...") + resources.counter.cached("...", LAST)
    n = _most_items(spec, costs, ends)
    times = _times(n, len(costs))
    texts = [NOTHING, *pool.texts(drawn)]
    items = shuffle(rng, np.repeat(np.arange(len(texts)), times))
    body = "..." + "".join([texts[item] for item in items.tolist()]) + LAST
    return spec.finish(
        body, ends + int(times @ costs), tuple(pool.unit(number).key for number in drawn[:3])
    )


def _times(n: int, ranks: int) -> IntArray:
    return np.floor(n / (ZETA_2 * np.arange(1, ranks + 1, dtype=np.float64) ** 2)).astype(np.int64)


def _most_items(spec: SampleSpec, costs: IntArray, ends: int) -> int:
    """The largest n whose items fit, and whose rest a filler fits. Raises TooShort."""

    def used(n: int) -> int:
        return ends + int(_times(n, len(costs)) @ costs)

    low, high = LEAST_ITEMS, max(LEAST_ITEMS, spec.room)
    if used(low) > spec.room:
        raise TooShort(used(low) - spec.room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if used(middle) <= spec.room else (low, middle - 1)
    totals = np.array([used(n) for n in range(max(LEAST_ITEMS, low - 16), low + 1)])
    return low - len(totals) + spec.most(totals)


def _random_words(resources: Resources) -> UnitPool:
    taken: set[str] = set()

    def make(rng: Random, _: int) -> TextUnit:
        word = word_of(rng, LETTERS, 6)
        while word in taken:
            word = word_of(rng, LETTERS, 6)
        taken.add(word)
        return TextUnit(f" {word}", word)

    measure = resources.counter.after
    return resources.pool("random words:en", make, measure=lambda text: measure("...", text))
