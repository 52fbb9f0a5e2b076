"""Whether a text is in a language whose words the rules do not know, and whether a value stands in
it all the same. The rules know English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from functools import lru_cache

from memray_eval.text_processing.matching import COMMON_UNITS, STOPWORDS, stems, words
from memray_eval.text_processing.values import NUMBER, as_float, fold

READ_CHARS = 5_000  # of a text, to tell its language
FOREIGN_SHARE = 0.3  # of the letters, in other scripts than Latin
# Of German, French, Spanish, Portuguese and Italian, what English does not have
_FOREIGN = (
    frozenset(
        """
    der die das und ist nicht ein eine einen sie ihr ihre ihrer dein deine du mit für auf den dem zu
    im von auch wenn oder bei sind wird haben dich dir sich noch nach
    le la les et est de du des que qui une votre vos vous pour avec dans ne pas plus sur au aux ce
    el los las en un su sus tu por con para se como pero si del al esta tiene muy
    os um uma seu sua com não na nos mais você ao dos das
    il lo gli di per non più della nel sono che una tuo tua suo hai ha
""".split()
    )
    - STOPWORDS
)
_ENGLISH = STOPWORDS - frozenset("a an am as do i in me no on or so was will".split())
_NUMBER = re.compile(rf"(?<![a-z\d.,])(?:{NUMBER})")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![\d.,]?\d)")  # thousands
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARABIC = re.compile(r"[\u0600-\u06ff]")  # whose articles and particles are a part of the word


def may_be_foreign(text: str, unique: Set[str]) -> bool:
    """Returns False if the different words of a text tell that it is not foreign, in a tenth of the
    time of `is_foreign`."""
    if not _FOREIGN.isdisjoint(unique):
        return True
    is_plain = text.isascii() or len(text.encode("utf-8", "replace")) < 1.1 * len(text)
    return not is_plain or (not text.isascii() and _ENGLISH.isdisjoint(unique))


def is_unspaced(text: str) -> bool:
    """Returns True if a text is of a script whose words no spaces part, such as Chinese."""
    return len(_UNSPACED.findall(text)) > FOREIGN_SHARE * sum(map(str.isalpha, text))


@lru_cache(maxsize=1024)
def is_foreign(text: str, *, is_prose: bool = True) -> bool:
    """Returns True if a text is in another script than Latin, or has more function words of another
    language than of English. Without any, prose with other letters than a to z is foreign."""
    text = fold(text[:READ_CHARS])
    letters = [char for char in text if char.isalpha()]
    other = sum(ord(char) > 0x24F and not 0x1E00 <= ord(char) < 0x1F00 for char in letters)
    if other > FOREIGN_SHARE * len(letters):
        return True
    spoken = words(text)
    foreign = sum(word in _FOREIGN for word in spoken)
    english = sum(word in _ENGLISH for word in spoken)
    if english or not is_prose:
        return foreign >= 2 and foreign > english
    return foreign > 0 or not all(map(str.isascii, letters))


def holds_value(text: str, value: str) -> bool:
    """Returns True if a value stands in a text of any language: its words as they are written, or,
    of a figure, its numbers, however they are written. A number of one digit says too little."""
    numbers = _numbers(value)
    if numbers and len(stems(value) - COMMON_UNITS) <= 1:
        heard = _numbers(text) | {float(m[0].replace(".", "")) for m in _GROUPED.finditer(text)}
        return numbers <= heard and any(one >= 10 or one % 1 for one in numbers)
    wanted = " ".join(fold(value).split())
    least = 3 if _ARABIC.match(wanted) else 2
    return len(wanted) >= least and _stands_in(" ".join(fold(text).split()), wanted)


def _numbers(text: str) -> frozenset[float]:
    return frozenset(as_float(match[0]) for match in _NUMBER.finditer(fold(text)))


def _stands_in(text: str, value: str) -> bool:
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if not (
            _joins(text[start - 1 : start], value[0]) or _joins(text[end : end + 1], value[-1])
        ):
            return True
        start = text.find(value, start + 1)
    return False


def _joins(outside: str, inside: str) -> bool:
    """Returns True if two neighbouring characters are parts of one word."""
    both = (outside, inside)
    if any(map(_UNSPACED.match, both)) or all(map(_ARABIC.match, both)):
        return False
    return all(char and unicodedata.category(char)[0] in "LMN" for char in both)
