"""Porter's stemmer (Program 14, 1980) with the departures of NLTK's default mode, which published
scores rest on: irregular words; words of up to two letters stay; "dies" gives "die"; a final y
turns to i after a consonant alone; -alli, -fulli and -logi; and *o holds for "ate" too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

_VOWELS = "aeiou"
_STEM_OF = {
    **{"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie"},
    **{"innings": "inning", "outings": "outing", "cannings": "canning"},
    **{word: word for word in "sky news inning outing canning howe proceed exceed succeed".split()},
}
Rule = tuple[str, str, int]  # suffix, what replaces it, the least measure of the stem


@lru_cache(maxsize=1 << 16)
def porter_stem(word: str) -> str:
    """The stem of one lower-case word."""
    if word in _STEM_OF or len(word) <= 2:
        return _STEM_OF.get(word, word)
    word = _replace(_step_2(_step_1c(_step_1b(_step_1a(word)))), _STEP_3)
    is_ion = word.endswith("ion") and word[-4:-3] not in ("s", "t")
    return _step_5(word if is_ion else _replace(word, _STEP_4))


def _kinds(word: str) -> list[bool]:
    """Whether each letter is a consonant; y is one at the start and after a vowel."""
    kinds = list[bool]()
    for letter in word:
        kinds.append(letter not in _VOWELS and not (letter == "y" and kinds and kinds[-1]))
    return kinds


def _measure(stem: str) -> int:
    """m of [C](VC){m}[V]."""
    return sum(not before and after for before, after in pairwise(_kinds(stem)))


def _ends_in_cvc(word: str) -> bool:
    """*o: consonant, vowel, consonant other than w, x, y; or just vowel and consonant."""
    kinds = _kinds(word)
    is_cvc = kinds[-3:] == [True, False, True] and word[-1] not in "wxy"
    return is_cvc or kinds == [False, True]


def _replace(word: str, rules: Sequence[Rule]) -> str:
    """The first rule whose suffix the word has decides, whether its stem is long enough or not."""
    for suffix, instead, least in rules:
        if word.endswith(suffix):
            stem = word[: len(word) - len(suffix)]
            return stem + instead if _measure(stem) >= least else word
    return word


def _step_1a(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replace(word, _STEP_1A)


def _step_1b(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        stem = word[: len(word) - len(suffix)]
        if word.endswith(suffix) and not all(_kinds(stem)):
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem[-2:-1] == stem[-1:] and _kinds(stem)[-1]:  # a double consonant
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_in_cvc(stem) else stem


def _step_1c(word: str) -> str:
    if word.endswith("y") and len(word) > 2 and _kinds(word)[-2]:
        return word[:-1] + "i"
    return word


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):  # its l counts in the stem
        return word[:-1] if _measure(word[:-3]) else word
    return _replace(word, _STEP_2)


def _step_5(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        if _measure(stem) > 1 or (_measure(stem) == 1 and not _ends_in_cvc(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _rules(pairs: str, least: int = 1) -> tuple[Rule, ...]:
    """The rules of pairs of a suffix and what replaces it, such as "ational-ate"."""
    split = (pair.split("-") for pair in pairs.split())
    return tuple((suffix, instead, least) for suffix, instead in split)


_STEP_1A = _rules("sses-ss ies-i ss-ss s-", 0)
_STEP_2 = _rules(
    "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e "
    "ousli-ous ization-ize ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous "
    "aliti-al iviti-ive biliti-ble fulli-ful"
)
_STEP_3 = _rules("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")
_STEP_4 = _rules(
    "al- ance- ence- er- ic- able- ible- ant- ement- ment- ent- ion- ou- ism- ate- iti- ous- ive- "
    "ize-",
    2,
)
