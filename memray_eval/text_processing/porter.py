"""Porter's stemmer (Program 14, 1980) with the departures of NLTK's default mode, which published
scores rest on: irregular words; words of up to two letters stay; "dies" gives "die"; a final y
turns to i after a consonant alone; -alli, -fulli and -logi; and *o holds for "ate" too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

_VOWELS = "aeiou"
_STEM_OF = {
    **{"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie"},
    **{"innings": "inning", "outings": "outing", "cannings": "canning"},
    **{word: word for word in "sky news inning outing canning howe proceed exceed succeed".split()},
}
Rule = tuple[str, str, Callable[[str], bool]]  # suffix, what replaces it, which stems


@lru_cache(maxsize=1 << 16)
def porter_stem(word: str) -> str:
    """The stem of one lower-case word."""
    if word in _STEM_OF or len(word) <= 2:
        return _STEM_OF.get(word, word)
    word = _step_2(_step_1c(_step_1b(_step_1a(word))))
    return _step_5(_replace(_replace(word, _STEP_3), _STEP_4))


def _is_consonant(word: str, position: int) -> bool:
    """Returns True if a letter is a consonant; y is one at the start and after a vowel."""
    is_consonant = word[position] not in _VOWELS
    while word[position] == "y" and position > 0:
        position -= 1
        if word[position] != "y":
            return word[position] in _VOWELS if is_consonant else word[position] not in _VOWELS
        is_consonant = not is_consonant
    return is_consonant


def _measure(stem: str) -> int:
    """m of [C](VC){m}[V]."""
    kinds = [_is_consonant(stem, position) for position in range(len(stem))]
    return sum(not before and after for before, after in pairwise(kinds))


def _ends_in_cvc(word: str) -> bool:
    """*o: consonant, vowel, consonant other than w, x, y; or just vowel and consonant."""
    kinds = [_is_consonant(word, position) for position in range(len(word))]
    is_cvc = kinds[-3:] == [True, False, True] and word[-1] not in "wxy"
    return is_cvc or kinds == [False, True]


def _is_measured(stem: str) -> bool:
    return _measure(stem) > 0


def _is_long(stem: str) -> bool:
    return _measure(stem) > 1


def _replace(word: str, rules: Sequence[Rule]) -> str:
    """The first rule whose suffix the word has decides, whether its condition holds or not."""
    for suffix, instead, holds in rules:
        if word.endswith(suffix):
            stem = word[: len(word) - len(suffix)]
            return stem + instead if holds(stem) else word
    return word


def _step_1a(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replace(word, _STEP_1A)


def _step_1b(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _is_measured(word[:-3]) else word
    for suffix in ("ed", "ing"):
        stem = word[: len(word) - len(suffix)]
        has_vowel = any(not _is_consonant(stem, position) for position in range(len(stem)))
        if word.endswith(suffix) and has_vowel:
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem[-2:-1] == stem[-1:] and _is_consonant(stem, len(stem) - 1):  # a double consonant
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_in_cvc(stem) else stem


def _step_1c(word: str) -> str:
    if word.endswith("y") and len(word) > 2 and _is_consonant(word, len(word) - 2):
        return word[:-1] + "i"
    return word


def _step_2(word: str) -> str:
    if word.endswith("alli") and _is_measured(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):  # its l counts in the stem
        return word[:-1] if _is_measured(word[:-3]) else word
    return _replace(word, _STEP_2)


def _step_5(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        if _measure(stem) > 1 or (_measure(stem) == 1 and not _ends_in_cvc(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _is_long(word[:-1]) else word


def _rules(pairs: str, holds: Callable[[str], bool] = _is_measured) -> tuple[Rule, ...]:
    """The rules of pairs of a suffix and what replaces it, such as "ational-ate"."""
    split = (pair.split("-") for pair in pairs.split())
    return tuple((suffix, instead, holds) for suffix, instead in split)


_STEP_1A = _rules("sses-ss ies-i ss-ss s-", lambda stem: True)
_STEP_2 = _rules(
    "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e "
    "ousli-ous ization-ize ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous "
    "aliti-al iviti-ive biliti-ble fulli-ful"
)
_STEP_3 = _rules("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")
_STEP_4: tuple[Rule, ...] = (
    *_rules("al- ance- ence- er- ic- able- ible- ant- ement- ment- ent-", _is_long),
    ("ion", "", lambda stem: _is_long(stem) and stem[-1] in "st"),
    *_rules("ou- ism- ate- iti- ous- ive- ize-", _is_long),
)
