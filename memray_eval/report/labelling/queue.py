"""The order in which units are labelled, how probable it was that each came in, and the answers
that a rater may give.

Units are drawn by priority sampling (Duffield, Lund, Thorup: Priority Sampling for Estimation of
Arbitrary Subset Sums, JACM 54, 2007). A unit of size p has the priority p / r, where r in (0, 1] is
its own number, drawn by its id; the highest priorities come first. Whenever the labelling ends
after the first n units, the (n + 1)th priority t is the threshold, and

    inclusion probability = min(1, p / t),  weight = 1 / that

give unbiased sums over all units (the paper's theorem 1), whatever n is.

The sizes mix chance and doubt: half of the sum is spread evenly over all units, so that the judge's
sure verdicts are checked too, and half by how uncertain the verdict is, where labels teach most."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memray_eval.metric import DISAGREEMENT, EVIDENCE, UNVERIFIED
from memray_eval.metrics._shared.pairs import FIRST, VALUES
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

EVEN_SHARE = 0.5
_WHOLE = float(1 << 64)


class QueuedUnit(NamedTuple):
    """A unit to label: the position of its record, its size p, and its priority."""

    unit_id: str
    part: str
    row: int
    size: float
    priority: float


class JudgedUnit(NamedTuple):
    """A unit before it is queued: the position of its record, and how uncertain its verdict is."""

    unit_id: str
    part: str
    row: int
    doubt: float


def doubt_of(score: Mapping[str, Any], scale: tuple[float, float]) -> float:
    """The doubt of a verdict, 0 to 1, from a row of the records: 1 if the judge gave
    none; else the largest of 1 - its confidence, the share of its evidence that was not found, how
    far a jury was apart, and how near a graded value is to the middle of its scale."""
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    value = score.get("value")
    if value is None or not math.isfinite(value):
        return 1.0
    parts = dict(score.get("parts") or ())
    share = min(1.0, max(0.0, (float(value) - low) / width))
    doubts = [1 - abs(2 * share - 1), (parts.get(DISAGREEMENT) or 0.0) / width]
    if parts.get(EVIDENCE):
        doubts.append((parts.get(UNVERIFIED) or 0.0) / parts[EVIDENCE])
    try:
        confidence = json.loads(score.get("judgment") or "{}").get("confidence")
    except (ValueError, AttributeError):
        confidence = None
    if isinstance(confidence, int | float) and 0 <= confidence <= 1:
        doubts.append(1 - confidence)
    return float(min(1.0, max(doubts)))


def make_queue(verdicts: Iterable[JudgedUnit], seed: str) -> list[QueuedUnit]:
    """All units, the first to label first. The same verdicts and seed give the same queue."""
    listed = list(verdicts)
    doubts = np.array([verdict.doubt for verdict in listed], np.float64)
    sizes = np.full(doubts.size, 1 / max(1, doubts.size))
    if total := float(doubts.sum()):
        sizes = EVEN_SHARE * sizes + (1 - EVEN_SHARE) * doubts / total
    queue = []
    for verdict, size in zip(listed, sizes.tolist(), strict=True):
        name = f"{seed}\x1f{verdict.unit_id}".encode("utf-8", "replace")
        digest = hashlib.blake2b(name, digest_size=8).digest()
        own = (int.from_bytes(digest) + 1) / _WHOLE
        queue.append(QueuedUnit(verdict.unit_id, verdict.part, verdict.row, size, size / own))
    return sorted(queue, key=lambda unit: (-unit.priority, unit.unit_id))


def inclusion_probabilities(queue: Sequence[QueuedUnit], n_reached: int) -> FloatArray:
    """The inclusion probability of each of the first `n_reached` units, of shape (n_reached,)."""
    sizes = np.array([unit.size for unit in queue[:n_reached]], np.float64)
    if n_reached >= len(queue):
        return np.ones(sizes.size)
    probabilities: FloatArray = np.minimum(1.0, sizes / queue[n_reached].priority)
    return probabilities


MOST_KEYS = 10
_STEPS = 5  # of a scale that is not whole numbers
_KEYS = "1234567890"


class Choice(Frozen):
    """An answer: the key that gives it, its value on the metric's scale, and how it is shown."""

    key: str
    value: float
    label: str


def choices_for(
    scale: tuple[float, float],
    is_integer: bool,
    seen: Collection[float],
    parts: Collection[str] = (),
) -> tuple[Choice, ...]:
    """The choices of a metric: which answer of a pair is better; no and yes, where a judge `seen`
    said nothing else than the ends of 0 to 1; every whole number of a scale of up to ten; else five
    even steps. The lowest value has the lowest key, except that 0 has its own."""
    low, high = scale
    if FIRST in parts:
        names = {"first": "the first", "tie": "neither", "second": "the second"}
        return tuple(
            Choice(key=_KEYS[number], value=value, label=names[name])
            for number, (name, value) in enumerate(VALUES.items())
        )
    if scale == (0, 1) and seen and set(seen) <= {0.0, 1.0}:
        return (Choice(key="0", value=0, label="no"), Choice(key="1", value=1, label="yes"))
    if is_integer and high - low < MOST_KEYS:
        values = range(int(low), int(high) + 1)
        own = low >= 0 and high <= 9  # 3 is the key of 3
        return tuple(
            Choice(key=str(value) if own else _KEYS[number], value=value, label=str(value))
            for number, value in enumerate(values)
        )
    width = (high - low) / (_STEPS - 1)
    return tuple(
        Choice(key=_KEYS[number], value=low + number * width, label=f"{low + number * width:g}")
        for number in range(_STEPS)
    )
