"""What a sample's right answer is, and whether a response gives it word for word: no model, any language.

Whole words and whole numbers are compared, never substrings: "12345678" does not give 1234567, "二十" does not give 十.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from memray_eval.metrics.matching import normalise
from memray_eval.types import Sample

Kind = Literal["any", "all", "list"]
# RULER's tasks whose answers are all asked for; any other sample may say so by metadata {"answers": "all"}.
_ALL_ASKED = frozenset({"niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"})
_LETTERS = "ABCDEFGHIJ"

_UNSPACED = "\u0e00-\u0eff\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"  # scripts that need no spaces
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
    r"(?:(?:answer|option|choice)(?:\s+is)?|答案(?:是|为)?|选项?)\W{0,4}(?-i:([A-J]))(?![A-Za-z0-9])", re.IGNORECASE
)
_MARKS_LETTER = re.compile(r"(?<![A-Za-z0-9])([A-J])(?=[.):,，。、：）*]|\s*$)", re.MULTILINE)
_ACCENT = re.compile("[\u0300-\u036f]")
_YES_NO = frozenset({"yes", "no"})


class Reference(NamedTuple):
    """A sample's right answer: any one of several texts, all of them, or one list of numbers, whole and in its order."""

    kind: Kind
    answers: tuple[str, ...]

    @property
    def text(self) -> str:
        """For a judge: a list of numbers with commas, one answer as it is, several as a JSON list."""
        if self.kind == "list":
            return ", ".join(self.answers)
        return self.answers[0] if len(self.answers) == 1 else json.dumps(self.answers, ensure_ascii=False)


def reference(sample: Sample) -> Reference:
    """The right answer of a sample. Its metadata's `label`, where that is a list of numbers, is one answer as a whole."""
    label = sample.metadata.get("label")
    if isinstance(label, list) and label and all(isinstance(x, int | float) and not isinstance(x, bool) for x in label):
        return Reference("list", tuple(str(number) for number in label))
    answers = tuple(dict.fromkeys(answer.strip() for answer in sample.answers if answer.strip()))
    says_so = sample.metadata.get("answers") == "all" or sample.metadata.get("needs_all") is True
    is_all = len(answers) > 1 and (says_so or sample.task in _ALL_ASKED)
    return Reference("all" if is_all else "any", answers)


def options(sample: Sample) -> dict[str, str]:
    """The options of a multiple-choice question by their letters, from its metadata (`options`, `choices` or `choice_A` ...);
    empty where it has none."""
    found: Any = sample.metadata.get("options") or sample.metadata.get("choices")
    if isinstance(found, Mapping):
        return {str(letter): str(text) for letter, text in found.items()}
    if isinstance(found, Sequence) and not isinstance(found, str):
        return dict(zip(_LETTERS, map(str, found), strict=False))
    return {letter: str(sample.metadata[key]) for letter in _LETTERS if (key := f"choice_{letter}") in sample.metadata}


def tokens(text: str) -> list[str]:
    """Words, numbers and, in scripts without spaces, characters: lower case, no articles, accents or punctuation; numbers
    without the commas between thousands and the zeros after a fraction."""
    return [_canonical(found) for found in _TOKEN.finditer(_ARTICLE.sub("", _plain(normalise(text)))) if found[0].strip("_")]


def is_given(sample: Sample, response: str) -> bool:
    """Whether a response holds the right answer: a word or number is held whole; yes or no is the first that is said; the
    letter of an option is the one that the response says is its answer, else the first that it marks ("B.", "(B)").
    A list of numbers stands in the response as one run. It is not asked what else the response says."""
    kind, answers = reference(sample)
    if kind == "list":
        return _holds(_NUMBER.findall(_plain(normalise(response))), [_canonical_number(answer) for answer in answers])
    said = tokens(response)
    if kind == "all":
        return all(_gives(response, said, answer) for answer in answers)
    return any(_gives(response, said, answer) for answer in (*answers, *_as_options(sample, answers)))


def _as_options(sample: Sample, answers: Sequence[str]) -> list[str]:
    """The letters of answers that are options, and the options of answers that are letters."""
    named = options(sample)
    letters = [letter for letter, text in named.items() if text.strip() in answers]
    return [*letters, *(named[answer] for answer in answers if answer in named)]


def _gives(response: str, said: Sequence[str], answer: str) -> bool:
    if len(answer) == 1 and answer in _LETTERS:
        return _chosen(response) == answer
    wanted = tokens(answer)
    if len(wanted) == 1 and wanted[0] in _YES_NO:
        return next((word for word in said if word in _YES_NO), "") == wanted[0]
    return _holds(said, wanted)


def _chosen(response: str) -> str:
    """The letter that a response settles on, "" for none."""
    told = _SAYS_LETTER.findall(response)
    marked = _MARKS_LETTER.search(response)
    return told[-1] if told else marked[1] if marked else ""


def _holds(said: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted tokens stand in what was said, next to each other."""
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(said)} "


def _plain(text: str) -> str:
    """Without the accents of Latin, Greek and Cyrillic letters; the marks of other scripts are letters of theirs."""
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFKC", _ACCENT.sub("", decomposed))


def _canonical(found: re.Match[str]) -> str:
    return _canonical_number(found["number"]) if found["number"] else found[0].strip("_")


def _canonical_number(number: str) -> str:
    bare = number.replace(",", "")
    return bare.rstrip("0").rstrip(".") if "." in bare and bare[-1].isascii() else bare
