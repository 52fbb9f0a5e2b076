"""RULER's two rules (NVIDIA/RULER c3f5e3b): answers looked for as substrings, cases ignored, 0-1.

A defect of both: "12345678" is credited for "1234567", and so is a list of guesses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VERSION = "RULER c3f5e3b"
_UNPRINTABLE = re.compile(r"[\x00-\x1f]")


def recall(prediction: str, answers: Sequence[str]) -> float:
    """The share of the answers that the prediction holds: niah, vt, cwe, fwe. Raises ValueError
    without answers."""
    found = _found(prediction, answers)
    return sum(found) / len(found)


def any_answer(prediction: str, answers: Sequence[str]) -> float:
    """1.0 where the prediction holds any of the answers: qa. Raises ValueError without answers."""
    return float(any(_found(prediction, answers)))


def _found(prediction: str, answers: Sequence[str]) -> list[bool]:
    if not answers:
        raise ValueError("the sample has no answers to look for")
    said = _UNPRINTABLE.sub("\n", prediction.strip()).strip().lower()
    return [answer.lower() in said for answer in answers]
