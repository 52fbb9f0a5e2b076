"""Constraints that code can verify, in the manner of IFEval (arXiv 2311.07911), as {"kind": name,
argument: value, ...}. Unlike IFEval's, these count and find whole words (a contraction is one), and
tell a script by its letters."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, StrictInt, StrictStr, ValidationError, field_validator, model_validator

from memray_eval.benchmarks.instruction.answers import read_json, strip_fence
from memray_eval.benchmarks.instruction.counts import (
    count_words,
    is_unspaced,
    paragraphs_of,
    sentences_of,
    words_of,
)
from memray_eval.text_processing.matching import contains_phrase, words
from memray_eval.types import Frozen

A = TypeVar("A", bound=Frozen)
Text = Annotated[StrictStr, Field(min_length=1)]
Number = Annotated[StrictInt, Field(ge=0)]
Relation = Literal["at_least", "at_most", "exactly"]

_OWN_NAMED = "latin cyrillic greek arabic hebrew devanagari bengali tamil telugu thai hangul"
# By script, how the Unicode names of its letters begin
SCRIPTS = {
    **{name: (name.upper(),) for name in _OWN_NAMED.split()},
    "han": ("CJK",),
    "japanese": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"),
}


class Nothing(Frozen):
    """A kind without arguments."""


class Count(Frozen):
    n: Number


class WordRange(Frozen):
    """From `low` to `high`, both counted in."""

    low: Number
    high: Number

    @model_validator(mode="after")
    def _in_order(self) -> WordRange:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self


class Related(Count):
    """At least (unless said otherwise), at most or exactly `n`."""

    relation: Relation = "at_least"


class Occurrences(Related):
    """How often `of`, a word, a phrase or a letter, is there."""

    of: Text


class Words(Frozen):
    words: tuple[Text, ...] = Field(min_length=1)

    @field_validator("words")
    @classmethod
    def _are_words(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        if wordless := [word for word in texts if not words(word)]:
            raise ValueError(f"{wordless[0]!r} holds no word")
        return texts


class Phrase(Frozen):
    text: Text


class OneOf(Frozen):
    options: tuple[Text, ...] = Field(min_length=1)


class NthParagraph(Frozen):
    """The n-th paragraph, from 1, begins with a word."""

    n: Annotated[StrictInt, Field(ge=1)]
    word: Text


class Marker(Count):
    """At least `n` parts that a marker and a number open: "Section 1"."""

    marker: Text = "Section"


class Script(Frozen):
    script: StrictStr

    @field_validator("script")
    @classmethod
    def _is_known(cls, script: str) -> str:
        if script not in SCRIPTS:
            raise ValueError(f"must be one of {', '.join(SCRIPTS)}")
        return script


SCRIPT_SHARE = 0.9  # of a text's letters: names and units of other scripts are allowed

_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|-(?!-)|•)[ \t]*\S", re.MULTILINE)
_TITLE = re.compile(r"<<[ \t]*[^\s<>][^\n<>]*>>")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")
_HIGHLIGHT = re.compile(r"\*\*[^\s*][^\n*]*\*\*|(?<!\*)\*[^\s*][^\n*]*\*(?!\*)")
_TWO_RESPONSES = "******"
_QUOTES = {'"': '"', "“": "”", "«": "»", "「": "」"}
_COMMAS = frozenset(",，、،")


def _frequency(text: str, of: str) -> int:
    """The number of whole words that are `of`; in scripts without spaces, of its characters."""
    pattern = re.escape(of) if is_unspaced(of) else rf"(?<!\w){re.escape(of)}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE))


def _compares(count: int, wanted: Related) -> bool:
    if wanted.relation == "exactly":
        return count == wanted.n
    return count <= wanted.n if wanted.relation == "at_most" else count >= wanted.n


def _starts_paragraph(text: str, wanted: NthParagraph) -> bool:
    """Whatever the case; there may be more paragraphs than n."""
    paragraphs, word = paragraphs_of(text), words(wanted.word)
    return len(paragraphs) >= wanted.n and words(paragraphs[wanted.n - 1])[: len(word)] == word


def _is_in_script(text: str, wanted: Script) -> bool:
    """SCRIPT_SHARE of the letters are of the script; Japanese needs some kana."""
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if letter.isalpha():
            counts[unicodedata.name(letter, "").split(" ")[0]] += count
    total = counts.total()
    if not total or (wanted.script == "japanese" and not counts["HIRAGANA"] + counts["KATAKANA"]):
        return False
    return sum(counts[name] for name in SCRIPTS[wanted.script]) >= SCRIPT_SHARE * total


def _starts_with(text: str, wanted: Phrase) -> bool:
    """Word for word, but for case and space around it."""
    return text.strip().casefold().startswith(wanted.text.strip().casefold())


def _ends_with(text: str, wanted: Phrase) -> bool:
    """Word for word, but for case, and space and quotation marks around the text."""
    return text.strip().strip('"').strip().casefold().endswith(wanted.text.strip().casefold())


def _is_quoted(text: str, wanted: Nothing) -> bool:
    bare = text.strip()
    return len(bare) > 1 and _QUOTES.get(bare[0]) == bare[-1]


def _has_postscript(text: str, wanted: Phrase) -> bool:
    """A line begins with the marker, such as "P.S.", whatever the case."""
    return any(_starts_with(line, wanted) for line in text.splitlines())


def _is_one_of(text: str, wanted: OneOf) -> bool:
    """Nothing but one of the options, whatever the case; a full stop after it is let through."""
    reply = text.strip().rstrip(".").casefold()
    return any(reply == option.strip().rstrip(".").casefold() for option in wanted.options)


def _are_two_responses(text: str, wanted: Nothing) -> bool:
    """Two different texts, kept apart by six asterisks."""
    parts = [part.strip() for part in text.split(_TWO_RESPONSES) if part.strip()]
    return len(parts) == 2 and parts[0] != parts[1]


class ConstraintKind(NamedTuple):
    """What arguments a kind takes, and whether a text that is not empty follows it."""

    arguments: type[Frozen]
    holds: Callable[[str, Any], bool]


def _kind(arguments: type[A], holds: Callable[[str, A], bool]) -> ConstraintKind:
    return ConstraintKind(arguments, holds)


KINDS: Mapping[str, ConstraintKind] = {
    "min_words": _kind(Count, lambda text, wanted: count_words(text) >= wanted.n),
    "max_words": _kind(Count, lambda text, wanted: count_words(text) <= wanted.n),
    "words": _kind(WordRange, lambda text, wanted: wanted.low <= count_words(text) <= wanted.high),
    "min_sentences": _kind(Count, lambda text, wanted: len(sentences_of(text)) >= wanted.n),
    "max_sentences": _kind(Count, lambda text, wanted: len(sentences_of(text)) <= wanted.n),
    "paragraphs": _kind(Count, lambda text, wanted: len(paragraphs_of(text)) == wanted.n),
    "nth_paragraph_starts": _kind(NthParagraph, _starts_paragraph),
    "keywords_present": _kind(
        Words, lambda text, wanted: all(contains_phrase(text, word) for word in wanted.words)
    ),
    "keywords_absent": _kind(
        Words, lambda text, wanted: not any(contains_phrase(text, word) for word in wanted.words)
    ),
    "keyword_frequency": _kind(
        Occurrences, lambda text, wanted: _compares(_frequency(text, wanted.of), wanted)
    ),
    "letter_frequency": _kind(
        Occurrences, lambda text, wanted: _compares(text.lower().count(wanted.of.lower()), wanted)
    ),
    "json": _kind(
        Nothing, lambda text, _: read_json(text) is not None or strip_fence(text) == "null"
    ),
    "upper_case": _kind(Nothing, lambda text, _: text.isupper()),  # one letter at least has a case
    "lower_case": _kind(Nothing, lambda text, _: text.islower()),
    "capital_words": _kind(  # "I" is one
        Related, lambda text, wanted: _compares(sum(map(str.isupper, words_of(text))), wanted)
    ),
    "script": _kind(Script, _is_in_script),
    "starts_with": _kind(Phrase, _starts_with),
    "ends_with": _kind(Phrase, _ends_with),
    "quoted": _kind(Nothing, _is_quoted),
    "bullets": _kind(Count, lambda text, wanted: len(_BULLET.findall(text)) == wanted.n),
    "title": _kind(Nothing, lambda text, _: _TITLE.search(text) is not None),
    "no_commas": _kind(Nothing, lambda text, _: _COMMAS.isdisjoint(text)),
    "placeholders": _kind(Count, lambda text, wanted: len(_PLACEHOLDER.findall(text)) >= wanted.n),
    "sections": _kind(
        Marker,
        lambda text, wanted: (
            len(re.findall(rf"(?<!\w){re.escape(wanted.marker)} ?\d", text)) >= wanted.n
        ),
    ),
    "highlights": _kind(Count, lambda text, wanted: len(_HIGHLIGHT.findall(text)) >= wanted.n),
    "repeat_prompt": _kind(Phrase, _starts_with),
    "postscript": _kind(Phrase, _has_postscript),
    "one_of": _kind(OneOf, _is_one_of),
    "two_responses": _kind(Nothing, _are_two_responses),
}


class Constraint(NamedTuple):
    """A kind with its arguments."""

    kind: str
    arguments: Frozen

    def holds(self, text: str) -> bool:
        """Returns True if the text follows it; an empty one follows nothing."""
        return bool(text.strip()) and KINDS[self.kind].holds(text, self.arguments)


class Followed(NamedTuple):
    """Which of a response's constraints it follows, in their order."""

    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


def read_constraints(raw: Any) -> tuple[Constraint, ...]:
    """The constraints in a sample's metadata. Raises ValueError that names kind and field."""
    if not isinstance(raw, list | tuple) or not raw:
        raise ValueError(f"constraints: must be a list of objects with a kind, not {raw!r}"[:200])
    return tuple(
        _read(f"constraints.{number}", constraint) for number, constraint in enumerate(raw)
    )


def _read(where: str, raw: Any) -> Constraint:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("kind"), str):
        raise ValueError(f"{where}: must be an object with a kind, not {raw!r}"[:200])
    kind = raw["kind"]
    if kind not in KINDS:
        raise ValueError(f"{where}: no kind {kind!r}; there are: {', '.join(KINDS)}")
    # Parquet fills arguments of other kinds with null.
    arguments = {name: value for name, value in raw.items() if name != "kind" and value is not None}
    try:
        return Constraint(kind, KINDS[kind].arguments.model_validate(arguments))
    except ValidationError as error:
        raise ValueError(f"{where}: {_describe_fault(kind, error)}") from None


def _describe_fault(kind: str, error: ValidationError) -> str:
    """The first thing that is wrong with a kind's arguments."""
    fault = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"]) or "arguments"
    names = ", ".join(KINDS[kind].arguments.model_fields) or "none"
    if fault["type"] == "missing":
        return f"{kind} lacks {name}; it takes: {names}"
    if fault["type"] == "extra_forbidden":
        return f"{kind} has no argument {name!r}; it takes: {names}"
    return f"{kind}.{name}: {fault['msg'].removeprefix('Value error, ')}, not {fault['input']!r}"[
        :300
    ]


def follow(constraints: Sequence[Constraint], response: str) -> Followed:
    """Each constraint on the response as it is, and on any of its loose variants."""
    variants = loose_variants(response)
    return Followed(
        strict=tuple(constraint.holds(response) for constraint in constraints),
        loose=tuple(any(constraint.holds(text) for text in variants) for constraint in constraints),
    )


def loose_variants(response: str) -> tuple[str, ...]:
    """IFEval's eight: as it is, without first line, last, both; each also without asterisks."""
    lines = response.split("\n")
    cut = ("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))
    kept = (response, *cut)
    return tuple(dict.fromkeys((*kept, *(text.replace("*", "") for text in kept))))
