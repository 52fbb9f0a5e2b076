"""Porter's stemmer (Program 14, 1980) with the departures of NLTK's default mode, which published
scores rest on: irregular words; words of up to two letters stay; "dies" gives "die"; a final y
turns to i after a consonant alone; -alli, -fulli and -logi; and *o holds for "ate" too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_STEM_OF = {
    **{"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie"},
    **{"innings": "inning", "outings": "outing", "cannings": "canning"},
    **{word: word for word in "sky news inning outing canning howe proceed exceed succeed".split()},
}


def _rules(pairs: str) -> Sequence[tuple[str, ...]]:
    """Pairs of a suffix and what replaces it, such as "ational-ate"."""
    return [tuple(pair.split("-")) for pair in pairs.split()]


_STEP_1A = _rules("sses-ss ies-i ss-ss s-")
_STEP_2 = _rules(
    "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e "
    "ousli-ous ization-ize ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous "
    "aliti-al iviti-ive biliti-ble fulli-ful"
)
_STEP_3 = _rules("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")
_STEP_4 = _rules(
    "al- ance- ence- er- ic- able- ible- ant- ement- ment- ent- ion- ou- ism- ate- iti- ous- ive- "
    "ize-"
)


@lru_cache(maxsize=1 << 16)
def porter_stem(word: str) -> str:
    """The stem of one lower-case word."""
    if word in _STEM_OF or len(word) <= 2:
        return _STEM_OF.get(word, word)
    is_short = word.endswith("ies") and len(word) == 4
    word = _step_1b(word[:-1] if is_short else _replace(word, _STEP_1A, 0))
    if word.endswith("y") and len(word) > 2 and _form(word)[-2] == "c":
        word = word[:-1] + "i"
    word = _replace(_step_2(word), _STEP_3, 1)
    is_ion = word.endswith("ion") and word[-4:-3] not in ("s", "t")
    word = word if is_ion else _replace(word, _STEP_4, 2)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_in_cvc(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _form(word: str) -> str:
    """A c for each consonant, a v for each vowel; y is a consonant at the start and after one."""
    form = ""
    for letter in word:
        form += "v" if letter in "aeiou" or (letter == "y" and form[-1:] == "c") else "c"
    return form


def _measure(stem: str) -> int:
    """m of [C](VC){m}[V]."""
    return _form(stem).count("vc")


def _ends_in_cvc(word: str) -> bool:
    """*o: consonant, vowel, consonant other than w, x, y; or just vowel and consonant."""
    form = _form(word)
    return (form.endswith("cvc") and word[-1] not in "wxy") or form == "vc"


def _replace(word: str, rules: Sequence[tuple[str, ...]], least: int) -> str:
    """The first rule whose suffix the word has decides, whether its stem's measure is at least this
    or not."""
    suffix, instead = next((rule for rule in rules if word.endswith(rule[0])), ("", ""))
    stem = word.removesuffix(suffix)
    return stem + instead if _measure(stem) >= least else word


def _step_1b(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    stem = word[:-2] if word.endswith("ed") else word.removesuffix("ing")
    if stem == word or "v" not in _form(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem[-2:-1] == stem[-1:] and _form(stem)[-1] == "c":  # a double consonant
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_in_cvc(stem) else stem


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):  # its l counts in the stem
        return word[:-1] if _measure(word[:-3]) else word
    return _replace(word, _STEP_2, 1)
