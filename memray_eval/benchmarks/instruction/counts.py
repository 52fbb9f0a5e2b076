"""Words and sentences of a text, counted; and how many of something a prompt asks for.

A contraction (what's), a hyphenated compound and a number (1,200.5) are ONE word each; in scripts
without spaces (Chinese, Japanese, Thai) each character counts. All takes linear time."""

import re
from functools import cache
from typing import NamedTuple

from memray_eval.benchmarks.longbench.rules import segment
from memray_eval.text_processing.matching import (
    MARKS,
    NUMBER_WORD,
    mark_blocks,
    quantities,
    sentences,
)

_UNSPACED = "\u0e00-\u0eff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # noqa: E501
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{MARKS}])"
_WORD = re.compile(
    rf"[{_UNSPACED}]|(?=[^\W_]){_LETTER}+(?:(?:['’ʼ‘‑.-]|(?<=\d),(?=\d)){_LETTER}+)*"
)
_UNSPACED_PUNCTUATION = re.compile(r"[\u0e2f\u0e5a\u0e5b\u30fb\u30a0]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
# jieba takes quadratic time on a run without punctuation, which no text of people is
_HAN_RUN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]{1,400}|[^\u3400-\u4dbf\u4e00-\u9fff]+")
_FULL_STOP = re.compile(r"(?<=[。！？])")

_BELOW_100 = rf"(?:{NUMBER_WORD})(?:[- ](?:{NUMBER_WORD}))?"
_SCALE = r"(?:hundred|thousand)"
_NUMBER = (
    rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,6}}"
    rf"|(?:a|{_BELOW_100})\s+(?:thousand,?\s+{_BELOW_100}\s+hundred|{_SCALE})"
    rf"(?:,?\s+(?:and\s+)?{_BELOW_100}(?![\w-]|\s+{_SCALE}))?"
    rf"|{_BELOW_100}|a\s+single|single)"
)
_QUALIFIERS = {
    "range": r"between|from",
    "at_most": r"at\s+most|no\s+(?:more|longer)\s+than|not\s+more\s+than|up\s+to"
    r"|(?:a\s+)?max(?:imum)?(?:\s+of)?|within|(?:a\s+)?limit(?:ed)?\s+(?:of|to)"
    r"|(?:keep|limit|restrict)\s+(?:it|yourself|(?:your|the|this|each)(?:\s+\w+){1,2})\s+to"
    r"|not\s+exceed(?:ing)?",
    "under": r"under|below|(?:less|fewer|shorter)\s+than",
    "at_least": r"at\s+least|no\s+(?:fewer|less|shorter)\s+than|not\s+(?:fewer|less)\s+than"
    r"|(?:a\s+)?min(?:imum)?(?:\s+of)?",
    "over": r"(?:more|longer)\s+than|over|above",
    "about": r"about|around|roughly|approximately|approx\.?",
    "exact": r"exactly|precisely|just|only|in|into|with|using|use|write|say"
    r"|(?:sentence|answer|reply|response|greeting|line|phrase|title|name|summary|story|poem|text"
    r"|slogan|description)\s+of",
}
_ANY_QUALIFIER = "|".join(_QUALIFIERS.values())
_AFTER = {
    "at_most": r"or\s+(?:less|fewer)|at\s+most|max(?:imum)?\b",
    "at_least": r"or\s+more|at\s+least|min(?:imum)?\b",
}
_ABOUT_SHARE = 0.1
WORDS = "words?"
STEPS = (
    r"(?:steps?|actions?)(?!\s+(?:forwards?|backwards?|back|left|right|ahead|away"
    r"|to\s+the\s+(?:left|right))\b)"
)


class Bounds(NamedTuple):
    """From `low` to `high` of something, both counted in; no `high`: any number from `low` on."""

    low: int
    high: int | None

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        if self.high is None:
            return f"at least {self.low}"
        return f"{self.low}-{self.high}" if self.low else f"at most {self.high}"

    def off(self, count: int) -> int:
        """The distance of a count from the bounds; 0 within them."""
        return max(self.low - count, 0 if self.high is None else count - self.high, 0)

    def share_off(self, count: int) -> float:
        """`off` as a share of the bound that the count missed (of 1 if that is 0)."""
        missed = self.low if count < self.low else self.high or 0
        return self.off(count) / max(missed, 1)


def words_of(text: str) -> list[str]:
    """The words of a text in order, as written."""
    return _WORD.findall(_UNSPACED_PUNCTUATION.sub(" ", text))


def count_words(text: str) -> int:
    return len(words_of(text))


def is_chinese(text: str) -> bool:
    """Returns True if a text holds any Chinese character."""
    return _HAN.search(text) is not None


def chinese_words(text: str) -> list[str]:
    """A text cut into words by jieba, as longbench.segment does, in linear time."""
    return [word for run in _HAN_RUN.findall(text) for word in segment(run)]


def sentences_of(text: str) -> list[str]:
    """Sentences, headers and list items, also those that end with 。！？, that have a word."""
    blocks = mark_blocks("\n".join(text.splitlines()), "\0").replace("\n", " ").replace("\0", "\n")
    return [
        sentence for sentence in sentences(_FULL_STOP.sub("\n", blocks)) if _WORD.search(sentence)
    ]


def asked_words(prompt: str) -> Bounds | None:
    """The number of words that a prompt asks for ("in 3 words", "under 20 words", "between 5 and 10
    words"); None if it sets no target. "About N" allows a tenth more or less. Words per sentence,
    or words that the prompt talks about, are no target; of several targets all hold."""
    return _asked_bounds(prompt, WORDS, bare=False)


def asked_steps(prompt: str) -> Bounds | None:
    """As `asked_words`, for the steps or actions of a plan, whose bare number ("a plan with 3
    steps", "3 steps") is a target; "move 3 steps forward" is not."""
    return _asked_bounds(prompt, STEPS, bare=True)


def _asked_bounds(prompt: str, value_label: str, bare: bool) -> Bounds | None:
    text = " ".join(prompt.casefold().translate({0x2013: "-", 0x2014: "-", 0x2011: "-"}).split())
    mentions = (_bounds(match, bare) for match in _pattern(value_label).finditer(text))
    targets = [bounds for bounds in mentions if bounds is not None]
    if not targets:
        return None
    low = max(bounds.low for bounds in targets)
    high = min((bounds.high for bounds in targets if bounds.high is not None), default=None)
    return Bounds(low, high) if high is None or low <= high else targets[0]


@cache
def _pattern(value_label: str) -> re.Pattern[str]:
    """A qualifier, a number or range, the noun (after a word such as "short"), and what may follow
    it. The first half of "at least 5 but under 10 words" has no noun of its own."""
    qualified = rf"[\s-]+(?:(?!sentences?|lines?|paragraphs?|and|or|but)[a-z]+\s+)?{value_label}\b"
    after = "|".join((*_AFTER.values(), r"long\b"))
    tail = rf"(?P<noun>{qualified})(?:,?\s*(?P<after>{after})|\s+(?P<per>each|per)\b)?"
    chained = rf"(?=\s*,?\s*(?:and|but)\s+(?:{_ANY_QUALIFIER})\s+{_NUMBER}[\s-]+{value_label}\b)"
    return re.compile(
        rf"(?<![\w.])(?:(?P<qualifier>{_ANY_QUALIFIER})\s+)?(?P<low>{_NUMBER})(?![\w.])(?P<plus>\+)?"
        rf"(?:\s*(?:-|\bto\b|\band\b|\bor\b)\s*(?P<high>{_NUMBER})(?!\w))?(?:{tail}|{chained})"
    )


def _bounds(match: re.Match[str], bare: bool) -> Bounds | None:
    """The bounds of one mention; None if it sets no target."""
    low, high = _number(match["low"]), _number(match["high"]) if match["high"] else None
    after = match["after"] or ""
    if match["per"] and not bare:
        return None
    if high is not None:
        return Bounds(min(low, high), max(low, high))
    if match["plus"]:
        return Bounds(low, None)
    kind = ""
    for words, kinds in ((match["qualifier"] or "", _QUALIFIERS), (after, _AFTER)):
        named = (name for name, pattern in kinds.items() if words and re.fullmatch(pattern, words))
        kind = next(named, kind)
    is_target = bare or kind or after == "long" or (match["noun"] or "").startswith("-")
    return _of_kind(kind, low) if is_target else None


def _of_kind(kind: str, n: int) -> Bounds:
    slack = max(1, round(_ABOUT_SHARE * n))
    return {
        "at_most": Bounds(0, n),
        "under": Bounds(0, max(n - 1, 0)),
        "at_least": Bounds(n, None),
        "over": Bounds(n + 1, None),
        "about": Bounds(max(n - slack, 0), n + slack),
    }.get(kind, Bounds(n, n))


def _number(text: str) -> int:
    if text[0].isdigit():
        return int(text.replace(",", ""))
    if text.endswith("single"):
        return 1
    spelled = f"one {text[2:]}" if text.startswith("a ") else text
    return int(sum(part.value for part in quantities(f"{spelled} steps")))
