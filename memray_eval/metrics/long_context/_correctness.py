"""What a sample's right answer is, and whether a response gives it word for word: no model, any
language.

Whole words and whole numbers are compared, never substrings: "12345678" does not give 1234567, "二十"
does not give 十. Numbers are the same in digits, English words and Chinese numerals
(text_processing/numerals.py), and what the response denies where it says it ("definitely not
Tokyo") is not given (text_processing/denials.py)."""  # noqa: E501

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from memray_eval.text_processing.denials import LOOKS_BACK, LOOKS_ON, is_denied
from memray_eval.text_processing.matching import normalise
from memray_eval.text_processing.numerals import in_digits
from memray_eval.types import Sample

Kind = Literal["any", "all", "list"]
# RULER's tasks whose answers are all asked for; any other sample may say so by metadata {"answers":
# "all"}.
_ALL_ASKED = frozenset({"niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"})
_LETTERS = "ABCDEFGHIJ"

# scripts that need no spaces
_UNSPACED = "\u0e00-\u0eff\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_LETTER = rf"[^\W{_UNSPACED}]"  # of a script with spaces; digits too
_CHINESE_DIGITS = "〇零一二三四五六七八九十百千万亿两"
_ARTICLE = re.compile(rf"(?<!{_LETTER})(?:an?|the)\s+")
_TOKEN = re.compile(
    rf"(?P<number>(?:(?<!{_LETTER})(?<![)\].])-)?(?<!{_LETTER})(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
    rf"[{_CHINESE_DIGITS}]*)"  # 3万 is no 3
    rf"|{_LETTER}+|[{_CHINESE_DIGITS}]+|[{_UNSPACED}]"
)
_NUMBER = re.compile(rf"(?:(?<!{_LETTER})(?<![)\].])-)?\d+(?:\.\d+)?")
_SAYS_LETTER = re.compile(
    r"(?:(?:answer|option|choice)(?:\s+is)?|答案(?:是|为)?|选项?)\W{0,4}(?-i:([A-J]))(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_MARKS_LETTER = re.compile(r"(?<![A-Za-z0-9])([A-J])(?=[.):,，。、：）*]|\s*$)", re.MULTILINE)
_ACCENT = re.compile("[\u0300-\u036f]")
_YES_NO = frozenset({"yes", "no"})


class Reference(NamedTuple):
    """A sample's right answer: any one of several texts, all of them, or one list of numbers, whole
    and in its order."""

    kind: Kind
    answers: tuple[str, ...]

    @property
    def text(self) -> str:
        """For a judge: a list of numbers with commas, one answer as it is, several as a JSON
        list."""
        if self.kind == "list" or len(self.answers) == 1:
            return ", ".join(self.answers)
        return json.dumps(self.answers, ensure_ascii=False)


def reference(sample: Sample) -> Reference:
    """The right answer of a sample. Its metadata's `label`, where that is a list of numbers, is one
    answer as a whole."""
    label = sample.metadata.get("label")
    if (
        isinstance(label, list)
        and label
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in label)
    ):
        return Reference("list", tuple(str(number) for number in label))
    answers = tuple(dict.fromkeys(answer.strip() for answer in sample.answers if answer.strip()))
    says_so = sample.metadata.get("answers") == "all" or sample.metadata.get("needs_all") is True
    is_all = len(answers) > 1 and (says_so or sample.task in _ALL_ASKED)
    return Reference("all" if is_all else "any", answers)


def options(sample: Sample) -> dict[str, str]:
    """The options of a multiple-choice question by their letters, from its metadata (`options`,
    `choices` or `choice_A` ...); empty where it has none."""
    listed: Any = sample.metadata.get("options") or sample.metadata.get("choices")
    if isinstance(listed, Mapping):
        return {str(letter): str(text) for letter, text in listed.items()}
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return dict(zip(_LETTERS, map(str, listed), strict=False))
    return {
        letter: str(sample.metadata[key])
        for letter in _LETTERS
        if (key := f"choice_{letter}") in sample.metadata
    }


def tokens(text: str) -> list[str]:
    """Words, numbers and, in scripts without spaces, characters: lower case, no articles, accents
    or punctuation; numbers without the commas between thousands and the zeros after a fraction."""
    return [word for word, _, _ in _place_tokens(_strip_to_words(text))]


def _strip_to_words(text: str) -> str:
    """The text that tokens are taken of."""
    return _ARTICLE.sub("", _drop_accents(normalise(text)))


def _place_tokens(bare: str) -> list[tuple[str, int, int]]:
    """The tokens of a bare text, each with where it begins and ends there."""
    return [
        (
            _canonical_number(match["number"]) if match["number"] else match[0].strip("_"),
            *match.span(),
        )
        for match in _TOKEN.finditer(bare)
        if match[0].strip("_")
    ]


class _Said:
    """What a response says, read in three ways: as it stands, with its numbers in digits, and with
    its ordinals so too."""

    def __init__(self, response: str, question: str) -> None:
        self.response, self.question = response, normalise(question)
        self._bare = _strip_to_words(response)
        self._texts: dict[str, tuple[str, list[tuple[str, int, int]]]] = {}

    def gives(self, answer: str) -> bool:
        """Returns True if the answer stands in it word for word, and not only where it is
        denied."""
        bare = _strip_to_words(answer)
        if self._states("plain", bare):
            return True
        counted, ordered = in_digits(bare), in_digits(bare, ordinals=True)
        by_number = any(char.isdigit() for char in counted) and self._states("digits", counted)
        return by_number or (ordered != counted and self._states("ordinals", ordered))

    def words(self) -> list[str]:
        return [word for word, _, _ in self._read("plain")[1]]

    def _states(self, way: str, answer: str) -> bool:
        text, placed = self._read(way)
        wanted = [word for word, _, _ in _place_tokens(answer)]
        return any(
            not is_denied(
                text[max(0, start - LOOKS_BACK) : start], text[end : end + LOOKS_ON], self.question
            )
            for start, end in _find_places(placed, wanted)
        )

    def _read(self, way: str) -> tuple[str, list[tuple[str, int, int]]]:
        if way not in self._texts:
            text = self._bare
            if way != "plain":
                text = in_digits(text, ordinals=way == "ordinals")
            self._texts[way] = text, _place_tokens(text)
        return self._texts[way]


def _find_places(
    placed: Sequence[tuple[str, int, int]], wanted: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Where the wanted tokens stand in what was said, next to each other."""
    for first in range(len(placed) - len(wanted) + 1 if wanted else 0):
        if placed[first][0] == wanted[0] and [
            word for word, _, _ in placed[first : first + len(wanted)]
        ] == list(wanted):
            yield placed[first][1], placed[first + len(wanted) - 1][2]


def is_given(sample: Sample, response: str) -> bool:
    """Returns True if a response holds the right answer: a word or number is held whole; yes or no
    is the first that is said; the letter of an option is the one that the response says is its
    answer, else the first that it marks ("B.", "(B)"). Numbers count in words, digits and numerals
    alike, and what is denied where it stands does not count. A list of numbers stands in the
    response as one run. It is not asked what else the response says."""
    kind, answers = reference(sample)
    if kind == "list":
        numbers = " ".join(_NUMBER.findall(_drop_accents(normalise(response))))
        wanted = " ".join(_canonical_number(answer) for answer in answers)
        return f" {wanted} " in f" {numbers} "
    reading = _Said(response, sample.query)
    if kind == "all":
        return all(_gives(reading, answer) for answer in answers)
    # the letters of answers that are options, and the options of answers that are letters
    named = options(sample)
    letters = [letter for letter, text in named.items() if text.strip() in answers]
    texts = [named[answer] for answer in answers if answer in named]
    return any(_gives(reading, answer) for answer in (*answers, *letters, *texts))


def _gives(reading: _Said, answer: str) -> bool:
    if len(answer) == 1 and answer in _LETTERS:
        return _find_letter(reading.response) == answer
    wanted = tokens(answer)
    if len(wanted) == 1 and wanted[0] in _YES_NO:
        return next((word for word in reading.words() if word in _YES_NO), "") == wanted[0]
    return reading.gives(answer)


def _find_letter(response: str) -> str:
    """The letter that a response settles on, "" for none: the last that it says is its answer, else
    the first that it marks, those that it denies left out."""
    if stated := _letters_not_denied(_SAYS_LETTER, response):
        return stated[-1]
    return next(iter(_letters_not_denied(_MARKS_LETTER, response)), "")


def _letters_not_denied(pattern: re.Pattern[str], response: str) -> list[str]:
    letters = []
    for match in pattern.finditer(response):
        before = response[max(0, match.start() - LOOKS_BACK) : match.start()].casefold()
        after = response[match.end() : match.end() + LOOKS_ON].casefold()
        if not is_denied(_ARTICLE.sub("", before), after, ""):
            letters.append(match[1])
    return letters


def _drop_accents(text: str) -> str:
    """Without the accents of Latin, Greek and Cyrillic letters; the marks of other scripts are
    letters of theirs."""
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFKC", _ACCENT.sub("", decomposed))


def _canonical_number(number: str) -> str:
    bare = number.replace(",", "")
    return bare.rstrip("0").rstrip(".") if "." in bare and bare[-1].isascii() else bare
