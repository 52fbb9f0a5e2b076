"""What a sample's `metadata.expects` wants of a response, and if a text says a phrase."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from memray_eval.text_processing.values import tokens
from memray_eval.types.samples import EXPECTS

LISTS = ("not", "outdated", "ask", "or_ask")
_POSSESSIVE = re.compile(r"['’]s\b")


def read_expectations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is expected of a response. Raises ValueError that names the field at fault."""
    expects = metadata.get(EXPECTS)
    if not isinstance(expects, Mapping) or not expects:
        raise ValueError(f"metadata.{EXPECTS}: a mapping of say, {', '.join(LISTS)}")
    if unknown := sorted(map(str, expects.keys() - {"say", *LISTS})):
        raise ValueError(
            f"metadata.{EXPECTS}: no {unknown[0]!r}; there are: say, {', '.join(LISTS)}"
        )
    groups = {"say": expects.get("say", []), **{name: [expects.get(name, [])] for name in LISTS}}
    for name, lists in groups.items():
        if not isinstance(lists, list) or not all(map(_is_texts, lists)):
            wanted = "a list of lists of texts" if name == "say" else "a list of texts"
            raise ValueError(f"metadata.{EXPECTS}.{name}: {wanted}, none of them empty")
    _check_agreement(expects)
    return expects


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and tokens(text) for text in value)


def _check_agreement(expects: Mapping[str, Any]) -> None:
    """Raises ValueError if an old value is a new one, or what must be said must not be said."""
    old = {tokens(text): text for text in expects.get("outdated", ())}
    said = [text for group in expects.get("say", ()) for text in group]
    if equal := next((text for text in said if tokens(text) in old), None):
        raise ValueError(
            f"metadata.{EXPECTS}.outdated: {old[tokens(equal)]!r} is the old value and in say the "
            "new one; give what differs, or leave it out of one of them"
        )
    for name, texts in (("say", said), *((name, expects.get(name, ())) for name in LISTS[2:])):
        if both := next((text for text in texts if says(text, expects.get("not", ()))), None):
            raise ValueError(
                f"metadata.{EXPECTS}.not: forbids {both!r}, which is in {name}; "
                "leave it out of one of them"
            )


def says(text: str, sought: Iterable[str]) -> bool:
    """True if the text holds one of the phrases, as words and values, without case."""
    return any(
        _is_within(phrase, words) for words in _readings(text) for phrase in map(tokens, sought)
    )


@lru_cache(8)
def _readings(text: str) -> tuple[tuple[str, ...], ...]:
    """The words without possessive endings, with hyphens as tokens() has them, and as spaces."""
    plain = _POSSESSIVE.sub("", text)
    return tokens(plain), tokens(plain.replace("-", " "))


def _is_within(phrase: Sequence[str], words: Sequence[str]) -> bool:
    """True if the words hold the phrase; by character without spaces (Chinese, Japanese)."""
    if any("\u3040" <= character <= "\u9fff" for word in phrase for character in word):
        return "".join(phrase) in "".join(words)
    size = len(phrase)
    return any(tuple(words[at : at + size]) == tuple(phrase) for at in range(len(words) - size + 1))
