"""What the kinds of constraint take as arguments."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr, field_validator, model_validator

from memray_eval.text_processing.matching import words
from memray_eval.types import Frozen

Text = Annotated[StrictStr, Field(min_length=1)]
Number = Annotated[StrictInt, Field(ge=0)]
Relation = Literal["at_least", "at_most", "exactly"]

SCRIPTS = {
    "latin": ("LATIN",),
    "cyrillic": ("CYRILLIC",),
    "greek": ("GREEK",),
    "arabic": ("ARABIC",),
    "hebrew": ("HEBREW",),
    "devanagari": ("DEVANAGARI",),
    "bengali": ("BENGALI",),
    "tamil": ("TAMIL",),
    "telugu": ("TELUGU",),
    "thai": ("THAI",),
    "han": ("CJK",),
    "japanese": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"),
    "hangul": ("HANGUL",),
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
