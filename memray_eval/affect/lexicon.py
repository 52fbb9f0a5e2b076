"""Reads emotion in text by a small English lexicon of our own, lexicon.txt: no model, readable,
weak."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from memray_eval.affect.features import normalise
from memray_eval.affect.labels import EKMAN, Distribution

REACH = 3  # words that a negation or an intensifier looks ahead
SHORTEST_STEM, LONGEST_STEM = 3, 16
NEUTRAL_WEIGHT, OTHER_WEIGHT = 1.0, 0.1  # of every text, before any word counts
_NEGATIONS = frozenset(
    "not no never none nobody nothing neither nor without hardly barely scarcely cannot "
    "cant dont".split()
)
_STRONGER = frozenset(
    "very so really too extremely absolutely totally completely incredibly super truly "
    "deeply".split()
)
_WEAKER = frozenset("slightly somewhat kinda sorta little bit fairly".split())
_STOPS = frozenset(".,;:!?")
_LATIN = re.compile(r"[a-z]")


class EmotionWord(NamedTuple):
    emotion: str
    strength: float


class Lexicon(NamedTuple):
    """Whole words, word stems, and the pattern that splits a text into signs and words."""

    words: dict[str, EmotionWord]
    stems: dict[str, EmotionWord]
    tokens: re.Pattern[str]

    def find(self, token: str) -> EmotionWord | None:
        if token in self.words:
            return self.words[token]
        lengths = range(min(len(token), LONGEST_STEM), SHORTEST_STEM - 1, -1)
        return next(
            (self.stems[token[:length]] for length in lengths if token[:length] in self.stems), None
        )


@cache
def load() -> Lexicon:
    """The lexicon that comes with the package."""
    return parse(
        (importlib.resources.files("memray_eval.affect") / "lexicon.txt").read_text("utf-8")
    )


def parse(text: str) -> Lexicon:
    """Parses "emotion strength: words" lines. Raises ValueError for a malformed line and for a word
    that is there twice."""
    words: dict[str, EmotionWord] = {}
    stems: dict[str, EmotionWord] = {}
    for line in filter(lambda line: line.strip() and not line.startswith("# "), text.splitlines()):
        head, _, entries = line.partition(": ")
        emotion, strength = head.split()
        if emotion not in EKMAN.labels:
            raise ValueError(f"lexicon: {emotion!r} is not one of {', '.join(EKMAN.labels)}")
        for word in entries.split():
            entries_of, key = (stems, word[:-1]) if word.endswith("*") else (words, word)
            if key in entries_of:
                raise ValueError(f"lexicon: {word!r} is there twice")
            if entries_of is stems and not SHORTEST_STEM <= len(key) <= LONGEST_STEM:
                raise ValueError(
                    f"lexicon: {word!r} must have {SHORTEST_STEM} to {LONGEST_STEM} letters before "
                    "its *"
                )
            entries_of[key] = EmotionWord(emotion, float(strength))
    signs = sorted((word for word in words if not word.isalpha()), key=len, reverse=True)
    # ":d" is not in "note:do"
    patterns = (re.escape(sign) + (r"\b" if sign[-1].isalnum() else "") for sign in signs)
    return Lexicon(
        words, stems, re.compile("|".join((*patterns, r"[^\W_]+(?:'[^\W_]+)*", r"[.,;:!?]")))
    )


def weigh(text: str, lexicon: Lexicon) -> dict[str, float]:
    """The weight of each emotion of EKMAN that has words in the text. A word counts its strength:
    half as much again after an intensifier, half after a weakener. A negation turns joy into half
    as much sadness, and all else into neutral. Both reach over REACH words, and not past a stop."""
    weights: dict[str, float] = {}
    for emotion, weight in _weigh_tokens(lexicon.tokens.findall(normalise(text)), lexicon):
        weights[emotion] = weights.get(emotion, 0.0) + weight
    return weights


def _weigh_tokens(tokens: list[str], lexicon: Lexicon) -> Iterator[EmotionWord]:
    negated = scaled = 0  # how many more words are reached
    factor = 1.0
    for token in tokens:
        if token in _STOPS:
            negated = scaled = 0
        elif token in _NEGATIONS or token.endswith("n't"):
            negated = REACH + 1
        elif token in _STRONGER or token in _WEAKER:
            scaled, factor = REACH + 1, 1.5 if token in _STRONGER else 0.5
        elif entry := lexicon.find(token):
            weight = entry.strength * (factor if scaled else 1.0)
            if not negated:
                yield EmotionWord(entry.emotion, weight)
            elif entry.emotion == "joy":
                yield EmotionWord("sadness", weight / 2)
            else:
                yield EmotionWord("neutral", weight)
        negated, scaled = max(negated - 1, 0), max(scaled - 1, 0)


class LexiconEmotion:
    """NEUTRAL_WEIGHT for neutral and OTHER_WEIGHT for every other emotion, plus what the text's
    words weigh, made to sum to 1. A text without a Latin letter or a sign of the lexicon is one it
    cannot read: uniform."""

    name = "lexicon"
    labels = EKMAN

    def __init__(self, lexicon: Lexicon | None = None) -> None:
        self._lexicon = lexicon or load()

    async def infer(self, texts: Sequence[str]) -> list[Distribution]:
        return [self._infer_one(text) for text in texts]

    def _infer_one(self, text: str) -> Distribution:
        weights = weigh(text, self._lexicon)
        if not weights and not _LATIN.search(text.lower()):
            return self.labels.uniform()
        base = {
            label: NEUTRAL_WEIGHT if label == "neutral" else OTHER_WEIGHT
            for label in self.labels.labels
        }
        return self.labels.normalised(
            [base[label] + weights.get(label, 0.0) for label in self.labels.labels]
        )
