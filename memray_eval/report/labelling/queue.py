"""In which order units are labelled, and how probable it was that each came in.

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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memray_eval.metric import DISAGREEMENT, EVIDENCE, UNVERIFIED
from memray_eval.ports import FloatArray

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
