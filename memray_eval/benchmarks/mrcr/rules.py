"""MRCR's score, as the dataset's card has it (openai/mrcr 204b0d4, README.md)."""

from __future__ import annotations

from difflib import SequenceMatcher

VERSION = "openai/mrcr 204b0d4"
PREFIX = "random_string_to_prepend"  # the field with what a reply must begin with


def prefix_ratio(reply: str, answer: str, prefix: str) -> float:
    """0.0 unless the reply begins with the prefix, spaces and case counted; else difflib's ratio of
    reply and answer without it, 0-1. As in the original, difflib leaves out characters that are
    frequent in an answer of 200 and more when it looks for where a match begins."""
    if not reply.startswith(prefix):
        return 0.0
    said, wanted = reply.removeprefix(prefix), answer.removeprefix(prefix)
    return SequenceMatcher(None, said, wanted).ratio()
