"""Tokenizers small enough for unit tests: one whose counts add up, and one whose counts do not."""

import math
import re

import pytest

from memray_eval.benchmarks.needles.resources import Resources


class Pieces:
    """Cuts as byte-pair tokenizers do: digits one by one, up to four letters, each ideograph, other
    signs, newlines."""

    _piece = re.compile(r" ?[a-zA-Z]{1,4}|[0-9]|[^\sa-zA-Z0-9]| (?=[0-9])|\n| ")

    def count(self, text: str) -> int:
        return len(self._piece.findall(text))


class Triples(Pieces):
    """Three characters a token, wherever they stand: counts of parts, rounded up, do not add up."""

    def count(self, text: str) -> int:
        return math.ceil(len(text) / 3)


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    return Pieces()


@pytest.fixture(scope="session")
def resources(pieces: Pieces) -> Resources:
    return Resources(pieces, seed=0)
