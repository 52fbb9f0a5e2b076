"""What the columns of a field are called: forms.yaml's table of names, and names of one's own."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

_FILE = importlib.resources.files("memray_eval.datasets") / "forms.yaml"
TABLE: Mapping[str, Any] = yaml.safe_load(_FILE.read_text("utf-8"))


def words_of(name: str) -> tuple[str, ...]:
    """The words of a list of forms.yaml."""
    return tuple(TABLE[name].split())


# By field, the likeliest first: names in any row, and all names, with those that are guessed
ROW_NAMES = {name: tuple(text.partition("|")[0].split()) for name, text in TABLE["columns"].items()}
NAMES = {name: tuple(text.replace("|", " ").split()) for name, text in TABLE["columns"].items()}
# What an item of another tool's calls a field
ITEM_NAMES = {
    name: text.replace("COLUMNS", " ".join(NAMES[name])).split()
    for name, text in TABLE["items"].items()
}
JOIN_IDS = (*NAMES["id"], *words_of("join_ids"))  # of responses that are joined
_GOLD, _RIGHT, _WRITER, _OTHER, _WHAT, _ASKER, _MODEL = (
    "|".join(words_of(name))
    for name in ("golds", "rights", "writers", "others", "whats", "askers", "models")
)
_NO_TEXT = "score|rating|tokens|cost|time|label|id|name|judge|question"
_SAID = r"(?:answer|response|output|completion|generation|prediction|pred|reply)"
# Names of one's own columns by their words: who wrote it, and what it is
_NAMED = {
    "query": re.compile(
        rf"(?:{_ASKER})_(?:question|query|prompt|request|message|msg|text|input|utterance)"
        r"|(?:question|query)_(?:asked|from|by|of)_.+"
    ),
    "answers": re.compile(
        rf"(?:{_GOLD})s?(?:_(?:{_WHAT}))?(?:_human)?|(?:{_RIGHT})_(?:{_WHAT})|(?:{_WHAT})_(?:{_GOLD}|{_RIGHT})"
    ),
    "response": re.compile(
        rf"(?:{_WRITER})_(?:{_WHAT}|texts?)|{_SAID}_(?:from_|by_|of_)?(?:{_WRITER}|text|answer)"
        rf"|predicted|generated|(?:{_MODEL})(?!.*_(?:{_NO_TEXT})\Z)[\w.-]*"
        rf"|(?!(?:{_GOLD}|{_RIGHT}|{_OTHER})_).+_{_SAID}"
    ),
}
_RANKS = {
    "query": (),
    "answers": words_of("golds") + words_of("rights"),
    "response": words_of("writers"),
}


def plain_name(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()


def likely_columns(field: str, names: Iterable[str]) -> list[str]:
    """The names that by their words are of a field, the likeliest first."""
    fitting = [name for name in names if _NAMED[field].fullmatch(plain_name(name))]
    words = _RANKS[field]

    def rank(name: str) -> int:
        plain = plain_name(name)
        return next((at for at, word in enumerate(words) if plain.startswith(word)), len(words))

    return sorted(fitting, key=rank)
