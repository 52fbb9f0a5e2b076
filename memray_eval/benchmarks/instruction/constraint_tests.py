"""Whether a text follows a constraint: one function a kind, of the text and the kind's arguments.
Linear in the text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from memray_eval.benchmarks.instruction.answers import read_json, strip_fence
from memray_eval.benchmarks.instruction.constraint_arguments import (
    SCRIPTS,
    Count,
    Marker,
    Nothing,
    NthParagraph,
    Occurrences,
    OneOf,
    Phrase,
    Related,
    Script,
    WordRange,
    Words,
)
from memray_eval.benchmarks.instruction.counts import (
    count_words,
    is_unspaced,
    paragraphs_of,
    sentences_of,
    words_of,
)
from memray_eval.text_processing.matching import contains_phrase, words

SCRIPT_SHARE = 0.9  # of a text's letters: names and units of other scripts are allowed

_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|-(?!-)|•)[ \t]*\S", re.MULTILINE)
_TITLE = re.compile(r"<<[ \t]*[^\s<>][^\n<>]*>>")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]+\]")
_HIGHLIGHT = re.compile(r"\*\*[^\s*][^\n*]*\*\*|(?<!\*)\*[^\s*][^\n*]*\*(?!\*)")
_TWO_RESPONSES = "******"
_QUOTES = {'"': '"', "“": "”", "«": "»", "「": "」"}
_COMMAS = frozenset(",，、،")


def min_words(text: str, wanted: Count) -> bool:
    return count_words(text) >= wanted.n


def max_words(text: str, wanted: Count) -> bool:
    return count_words(text) <= wanted.n


def words_between(text: str, wanted: WordRange) -> bool:
    return wanted.low <= count_words(text) <= wanted.high


def min_sentences(text: str, wanted: Count) -> bool:
    return len(sentences_of(text)) >= wanted.n


def max_sentences(text: str, wanted: Count) -> bool:
    return len(sentences_of(text)) <= wanted.n


def paragraphs(text: str, wanted: Count) -> bool:
    """Exactly so many, kept apart by blank lines or dividers."""
    return len(paragraphs_of(text)) == wanted.n


def nth_paragraph_starts(text: str, wanted: NthParagraph) -> bool:
    """Whatever the case; there may be more paragraphs than n."""
    paragraphs, word = paragraphs_of(text), words(wanted.word)
    return len(paragraphs) >= wanted.n and words(paragraphs[wanted.n - 1])[: len(word)] == word


def keywords_present(text: str, wanted: Words) -> bool:
    return all(contains_phrase(text, word) for word in wanted.words)


def keywords_absent(text: str, unwanted: Words) -> bool:
    return not any(contains_phrase(text, word) for word in unwanted.words)


def keyword_frequency(text: str, wanted: Occurrences) -> bool:
    """Whole words, whatever the case; in scripts without spaces, wherever the characters stand."""
    pattern = re.escape(wanted.of)
    if not is_unspaced(wanted.of):
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return _compares(len(re.findall(pattern, text, re.IGNORECASE)), wanted)


def letter_frequency(text: str, wanted: Occurrences) -> bool:
    """Whatever the case."""
    return _compares(text.lower().count(wanted.of.lower()), wanted)


def _compares(count: int, wanted: Related) -> bool:
    if wanted.relation == "exactly":
        return count == wanted.n
    return count <= wanted.n if wanted.relation == "at_most" else count >= wanted.n


def is_json(text: str, wanted: Nothing) -> bool:
    """The whole text is JSON, within one code fence perhaps."""
    return read_json(text) is not None or strip_fence(text) == "null"


def upper_case(text: str, wanted: Nothing) -> bool:
    """Letters without case are as good; there must be one with."""
    return text.isupper()


def lower_case(text: str, wanted: Nothing) -> bool:
    return text.islower()


def capital_words(text: str, wanted: Related) -> bool:
    """Words all of whose letters are capitals ("I" is one)."""
    return _compares(sum(word.isupper() for word in words_of(text)), wanted)


def in_script(text: str, wanted: Script) -> bool:
    """SCRIPT_SHARE of the letters are of the script; Japanese needs some kana among its
    characters."""
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if letter.isalpha():
            counts[unicodedata.name(letter, "").split(" ")[0]] += count
    total = counts.total()
    if not total or (wanted.script == "japanese" and not counts["HIRAGANA"] + counts["KATAKANA"]):
        return False
    return sum(counts[name] for name in SCRIPTS[wanted.script]) >= SCRIPT_SHARE * total


def starts_with(text: str, wanted: Phrase) -> bool:
    """Word for word, but for case and space around it."""
    return text.strip().casefold().startswith(wanted.text.strip().casefold())


def ends_with(text: str, wanted: Phrase) -> bool:
    """Word for word, but for case, and space and quotation marks around the text."""
    return text.strip().strip('"').strip().casefold().endswith(wanted.text.strip().casefold())


def quoted(text: str, wanted: Nothing) -> bool:
    """The whole text stands in quotation marks."""
    bare = text.strip()
    return len(bare) > 1 and _QUOTES.get(bare[0]) == bare[-1]


def bullets(text: str, wanted: Count) -> bool:
    """Exactly so many lines begin with *, - or •; numbered ones don't count."""
    return len(_BULLET.findall(text)) == wanted.n


def title(text: str, wanted: Nothing) -> bool:
    """A title in double angular brackets: <<Tides>>."""
    return _TITLE.search(text) is not None


def no_commas(text: str, wanted: Nothing) -> bool:
    return _COMMAS.isdisjoint(text)


def placeholders(text: str, wanted: Count) -> bool:
    """At least so many in square brackets: [name]."""
    return len(_PLACEHOLDER.findall(text)) >= wanted.n


def sections(text: str, wanted: Marker) -> bool:
    """At least so many of the marker with a number after it."""
    return len(re.findall(rf"(?<!\w){re.escape(wanted.marker)} ?\d", text)) >= wanted.n


def highlights(text: str, wanted: Count) -> bool:
    """At least so many in *one* or **two** asterisks."""
    return len(_HIGHLIGHT.findall(text)) >= wanted.n


def postscript(text: str, wanted: Phrase) -> bool:
    """A line begins with the marker, such as "P.S.", whatever the case."""
    marker = wanted.text.strip().casefold()
    return any(line.strip().casefold().startswith(marker) for line in text.splitlines())


def one_of(text: str, wanted: OneOf) -> bool:
    """Nothing but one of the options, whatever the case; a full stop after it is let through."""
    reply = text.strip().rstrip(".").casefold()
    return any(reply == option.strip().rstrip(".").casefold() for option in wanted.options)


def two_responses(text: str, wanted: Nothing) -> bool:
    """Two different texts, kept apart by six asterisks."""
    parts = [part.strip() for part in text.split(_TWO_RESPONSES) if part.strip()]
    return len(parts) == 2 and parts[0] != parts[1]
