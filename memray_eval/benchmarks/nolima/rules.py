"""NoLiMa's score: whether a reply holds a right answer, as adobe-research/NoLiMa 7532e4e has it
(evaluation/async_evaluate.py, the metric `contains` of its run configurations)."""

from __future__ import annotations

from collections.abc import Sequence

VERSION = "NoLiMa 7532e4e"


def contains(reply: str, answers: Sequence[str]) -> float:
    """1.0 where any of the answers stands in the reply to the letter, case counted. Raises
    ValueError without answers."""
    if not answers:
        raise ValueError("the sample has no answers to look for")
    return float(any(answer in reply for answer in answers))
