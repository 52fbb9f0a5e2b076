"""Words, numbers and sentences, normalised so that what means the same compares equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import snowballstemmer

from memray_eval.text_processing.values import NUMBER, UNIT_OF, as_float, fold

_STEMMER = snowballstemmer.stemmer("english")
_STEMMING = Lock()  # a stemmer keeps the word that it is at: two threads spoil each other's

STOPWORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each even every few for from further
    had has have having he her here hers him his how i if in into is it its itself just like made
    make many may me might more most much must my myself near no nor not now of off on once one only
    or other our out over own per please quite rather really same she should since so some still
    such than that the their them then there these they this those though through to too under until
    up upon us use very via was we were what when where which while who whom whose why will with
    within without would yet you your yours yourself im ive id ill youre youve youll dont doesnt
    cant isnt arent s t re ve ll d m
""".split()
)

COMMON_UNITS = frozenset("hour minute second day night week month year time step cup glass".split())

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
NUMBER_OF = {word: value for value, word in enumerate(_SMALL)} | {
    word: 20 + 10 * i for i, word in enumerate(TENS)
}
NUMBER_WORD = "|".join(sorted(NUMBER_OF, key=len, reverse=True))
_SPELLED = re.compile(
    rf"\b(?P<first>{NUMBER_WORD})(?:[- "
    rf"](?P<second>{NUMBER_WORD}))?(?:\s+(?P<scale>hundred|thousand))?"
    rf"(?P<half>\s+and\s+a\s+half)?\b"
)
_HALF = re.compile(
    r"\b(?:(?P<one>an?|one) (?P<whole>[a-z]+) and a half|(?<!and a )half(?:[- ]an?)?[- "
    r"](?P<part>[a-z]+))\b"
)
_DIGITS = re.compile(
    rf"(?<![\w.])(?P<number>{NUMBER})(?:\^(?P<power>-?\d)(?!\d))?(?P<ordinal>st|nd|rd|th)?"
)
_FRACTION = re.compile(r"(?<![\w/.,])(?:(\d{1,3}) )?([1-7])/([2348])(?![\w/])(?!\.\d)")
_PAIR = re.compile(r"(?<![\w/.])(\d{2,3})\s*(?:/|over)\s*(\d{2,3})(?![\w/])")
_CLOCK = re.compile(
    rf"(?<![\w:])(?P<hour>\d{{1,2}})[:.](?P<minute>\d{{2}})\s*(?P<half>am\b|pm\b|a\.m\.|p\.m\.)?"
    rf"|(?<![\w:.])(?P<hour2>\d{{1,2}}|{NUMBER_WORD})\s*(?P<half2>am\b|pm\b|a\.m\.|p\.m\.|o'clock)"
    rf"|\b(?P<past>half|quarter)[- ](?P<side>past|to)[- ](?P<hour3>\d{{1,2}}|{NUMBER_WORD})\b"
)
_AFTER_NUMBER = re.compile(r"\s*[- ]?\s*(mmol/l|mmol/mol|mg/dl|°c|°f|%|[a-zµμ]+)")
_ABOUT = re.compile(
    r"\b(?:about|around|roughly|approximately|nearly|almost|under|over|below|above|less than|more "
    r"than|just|close to)"
    r"(?: just| only)?\s*$"
)
ABOUT_SHARE = 0.15  # "under five hours" says 4.5 hours
_TEMPERATURES = ({"degree", "celsius"}, {"degree", "fahrenheit"})
_MOST_DIGITS = 300  # that a float holds
_IN_MINUTES = {"hour": 60.0, "minute": 1.0}

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*]*\s+(?=[\"'(\[*]*[^\s.])")
_ABBREVIATION = re.compile(
    r"\b(?:dr|mr|mrs|ms|prof|st|vs|e\.g|i\.e|approx|no|etc|a\.m|p\.m)\.$", re.IGNORECASE
)
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+")
_MARKER = r"(?:\d{1,3}[.)]|[-*•–]|\#+)[^\S\n]+"
_BREAK = re.compile(rf"\n(?:\s*\n[^\S\n]*(?:{_MARKER})*|[^\S\n]*(?:{_MARKER})+)")
_HASH_LINE = re.compile(r"\n([^\S\n]*#+[^\S\n][^\n]*)")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
# Marks and joiners that Python does not count among \w though words of many scripts hold them
MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
    "\u1000-\u1049\u1780-\u17d3\u200c\u200d"
)
_LETTERS = rf"[^\W_]++(?:[{MARKS}][^\W_]*+)*+"
WORD = re.compile(rf"{_LETTERS}(?:['’]{_LETTERS})*")


class Quantity(NamedTuple):
    """A number of a text, with its canonical unit when one follows. A clock time has unit `clock`
    (minutes of the day); the parts of a pair such as 142/90 have unit `pair`. `is_about`: the text
    says about, under, nearly, ... before it."""

    value: float
    unit: str | None
    is_about: bool = False

    @property
    def is_distinctive(self) -> bool:
        """True if the number alone is telling: a fraction, clock time, large or measured."""
        if self.unit in ("pair", "clock"):
            return True
        measured = self.unit is not None and self.unit not in COMMON_UNITS
        return self.value != int(self.value) or self.value >= 100 or measured

    def matches(self, other: Quantity) -> bool:
        """Same number, and the same unit unless one has none. Hours and minutes compare; clock
        times on a twelve-hour clock; an about number may be off by ABOUT_SHARE."""
        left, right = self.value, other.value
        has_units = None not in (self.unit, other.unit)
        if self.unit == other.unit == "clock":
            return left % 720 == right % 720
        if self.unit in _IN_MINUTES and other.unit in _IN_MINUTES:
            left, right = left * _IN_MINUTES[self.unit], right * _IN_MINUTES[other.unit]
        elif has_units and self.unit != other.unit:
            return {self.unit, other.unit} in _TEMPERATURES and left == right
        is_about = has_units and (self.is_about or other.is_about)
        return abs(left - right) <= (ABOUT_SHARE * max(left, right) if is_about else 1e-9)


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """Folded (text_processing/values.py), with single spaces."""
    return " ".join(fold(text).split())


def words(text: str) -> list[str]:
    """The words of a text in order, normalised, without punctuation; possessive 's is dropped."""
    return [word.removesuffix("'s").replace("'", "") for word in WORD.findall(normalise(text))]


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    with _STEMMING:
        return str(_STEMMER.stemWord(word))


def stem_each(text: str) -> frozenset[str]:
    """Stems of all words of a text, or of a key."""
    return frozenset(map(stem, words(text.replace("_", " "))))


@lru_cache(maxsize=4096)
def stems(text: str) -> frozenset[str]:
    """Stems of a text's content words: no stopwords, no numbers, no units, no single letters."""
    return frozenset(
        stem(word)
        for word in words(text.replace("_", " "))
        if word not in STOPWORDS
        and word not in UNIT_OF
        and word not in NUMBER_OF
        and (len(word) > 1 or not word.isascii())
        and not word[0].isdigit()
    )


@lru_cache(maxsize=4096)
def quantities(text: str) -> tuple[Quantity, ...]:
    """Every number of a text, in digits or words: "five and a half hours", "142/90", "9:30 pm"; by
    kind of spelling, the most telling first, of which none takes what another has taken."""
    text, taken, found = normalise(text), list[tuple[int, int]](), list[Quantity]()
    for pattern, read in _KINDS:
        for match in pattern.finditer(text):
            is_taken = any(match.start() < end and start < match.end() for start, end in taken)
            if not is_taken and (numbers := read(match, text)):
                taken.append(match.span())
                is_about = _ABOUT.search(text, 0, match.start()) is not None
                found += [Quantity(value, unit, is_about) for value, unit in numbers]
    return tuple(found)


def _read_clock_time(match: re.Match[str], text: str) -> list[tuple[float, str | None]]:
    """A clock time in minutes of the day; nothing for "5.30" without am or pm, or "25:00"."""
    if match["past"]:
        minutes = {"half": 30, "quarter": 15}[match["past"]]
        minutes = minutes if match["side"] == "past" else -minutes
        return [(float(60 * _whole(match["hour3"]) + minutes), "clock")]
    hour, minute = _whole(match["hour"] or match["hour2"]), int(match["minute"] or 0)
    half = (match["half"] or match["half2"] or "").replace(".", "")
    if hour > 24 or minute > 59 or not (half or ":" in match[0]):
        return []
    if half in ("am", "pm"):
        hour = hour % 12 + 12 * (half == "pm")
    return [(float(hour * 60 + minute), "clock")]


def _read_half(match: re.Match[str], text: str) -> list[tuple[float, str | None]]:
    unit = UNIT_OF.get(match["whole"] or match["part"])
    return [(1.5 if match["one"] else 0.5, unit)] if unit else []


def _read_digits(match: re.Match[str], text: str) -> list[tuple[float, str | None]]:
    if len(match["number"]) > _MOST_DIGITS:
        return []
    value = as_float(match["number"])
    if match["power"]:
        if not value or abs(value) > 1e9:
            return []
        value **= int(match["power"])
    return [(value, _unit_after(text, match.end()))]


def _read_fraction(match: re.Match[str], text: str) -> list[tuple[float, str | None]]:
    whole, above, below = (int(part or 0) for part in match.groups())
    return [(whole + above / below, _unit_after(text, match.end()))] if above < below else []


def _read_words(match: re.Match[str], text: str) -> list[tuple[float, str | None]]:
    unit = _unit_after(text, match.end())
    if not unit and match[0] == "one":  # most likely a pronoun
        return []
    value = float(NUMBER_OF[match["first"]])
    if match["second"]:
        value += NUMBER_OF[match["second"]]
    value *= {"hundred": 100, "thousand": 1000}.get(match["scale"] or "", 1)
    return [(value + (0.5 if match["half"] else 0.0), unit)]


_KINDS = (
    (_PAIR, lambda found, text: [(float(part), "pair") for part in found.groups()]),
    (_CLOCK, _read_clock_time),
    (_HALF, _read_half),
    (_FRACTION, _read_fraction),
    (_DIGITS, _read_digits),
    (_SPELLED, _read_words),
)


def _whole(word: str) -> int:
    return int(word) if word.isdecimal() else NUMBER_OF[word]


def _unit_after(text: str, end: int) -> str | None:
    match = _AFTER_NUMBER.match(text, end)
    return UNIT_OF.get(match[1]) if match else None


def mark_blocks(text: str, mark: str) -> str:
    """The text with `mark` where a paragraph, a list item or a `#` header ends, and without the
    markers of items and headers. Other line breaks, which only wrap running text, stay."""
    lines = f"\n{text}"
    if "#" in text:
        lines = _HASH_LINE.sub(r"\n\1\n\n", lines)
    return _BREAK.sub(mark, lines)


def sentences(text: str) -> list[str]:
    """The sentences and list items of a text, bullets and emphasis marks stripped, in order."""
    out: list[str] = []
    for line in text.splitlines():
        parts = list[str]()  # of the sentence at hand: an abbreviation's full stop does not end it
        for piece in _SENTENCE_END.split(_BULLET.sub("", line)):
            if cleaned := piece.replace("**", "").replace("__", "").strip():
                parts.append(cleaned)
                if not _ABBREVIATION.search(cleaned[-8:]):
                    out.append(" ".join(parts))
                    parts = []
        out += [" ".join(parts)] if parts else []
    return out


def contains_phrase(text: str, phrase: str) -> bool:
    """True if `phrase` is in `text` by words, whatever case, punctuation, space or Unicode form;
    a phrase without words ("🙄", "?!") by its characters."""
    if sought := words(phrase):
        return in_a_row(sought, words(text))
    bare, plain = ("".join(normalise(part).split()) for part in (phrase, text))
    return bool(bare := bare.strip("\"'")) and bare in plain


def in_a_row(phrase: Sequence[str], spoken: Sequence[str]) -> bool:
    """True if words stand among others in a row; by character without spaces between words."""
    if any(map(_UNSPACED.search, phrase)):
        return "".join(phrase) in "".join(spoken)
    return bool(phrase) and f" {' '.join(phrase)} " in f" {' '.join(spoken)} "


# Porter's stemmer (Program 14, 1980) with the departures of NLTK's default mode, which published
# scores rest on: irregular words; words of up to two letters stay; "dies" gives "die"; a final y
# turns to i after a consonant alone; -alli, -fulli and -logi; and *o holds for "ate" too
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
