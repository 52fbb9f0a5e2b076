"""PersonaMem's score: whether a reply names the right option alone, as bowen-upenn/PersonaMem
041d82a has it in inference_standalone_openai.py."""

from __future__ import annotations

import re

VERSION = "PersonaMem 041d82a"
LETTERS = "abcd"
_MARK, _END = "<final_answer>", "</final_answer>"
_IN_BRACKETS = re.compile(r"\(([a-d])\)")
_ALONE = re.compile(r"\b([a-d])\b")


def letter_score(prediction: str, letter: str) -> float:
    """1.0 where what follows the last <final_answer>, or else the whole reply, names the right
    letter and no other. Letters in brackets count before those that stand alone, of which "a" is
    one wherever it is the article."""
    said = prediction.strip()
    final = said.rpartition(_MARK)[2].strip().removesuffix(_END)
    return float({letter} in (_named(final), _named(prediction)))


def _named(text: str) -> set[str]:
    lower = text.lower()
    return set(_IN_BRACKETS.findall(lower)) or set(_ALONE.findall(lower))
