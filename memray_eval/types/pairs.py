"""Pair: two answers to one question, one shown first, as a sample's metadata carries them."""

from __future__ import annotations

from typing import Literal

from memray_eval.types.base import Frozen, Name
from memray_eval.types.samples import Sample

PAIR = "pair"  # the key of a sample's metadata that holds one
PAIRS = "pairs"  # the suite of a run over pairs


class Unanswered(Frozen):
    """A candidate that gave no answer to the question of a pair, and why."""

    candidate: str
    kind: Literal["empty", "error"]
    why: str = ""


class Pair(Frozen):
    """Two answers to one question, in the order in which a judge is shown them.

    The record's response is the answer of `first`, and `other` that of `second`. `sample_id` and
    `task` are those of the question in the runs that the answers are from. A pair of which one is
    in `unanswered` is not judged."""

    sample_id: Name
    task: str = ""
    first: Name
    second: Name
    other: str
    unanswered: tuple[Unanswered, ...] = ()


def pair_of(sample: Sample) -> Pair | None:
    """The pair that a sample carries, None where it carries none. Raises ValueError for one that
    lacks something."""
    pair = sample.metadata.get(PAIR)
    return None if pair is None else Pair.model_validate(pair)
