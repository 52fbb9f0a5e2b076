"""Chooses the pairs to judge if all would be too many: Swiss rounds, as in chess. In each round
every candidate has one pair on every question, with one of about its own strength, and no pair
twice. Strengths are drawn for each question from the bootstrap of the rounds before: candidates
that the verdicts cannot tell apart change places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from memray_eval.ports import FloatArray

MOST_FOR_ALL_PAIRS = 4  # candidates
Two: TypeAlias = tuple[int, int]
_SEED = 20


def rounds_for(n_candidates: int) -> int:
    """How many rounds have at most half of all pairs; 1 where all pairs are judged."""
    return 1 if n_candidates <= MOST_FOR_ALL_PAIRS else (n_candidates - 1) // 2


def all_pairs(players: Sequence[int]) -> Iterator[Two]:
    """Every two of some candidates."""
    for number, i in enumerate(players):
        yield from ((i, j) for j in players[number + 1 :])


def pair_round(
    players: Iterable[Sequence[int]],
    played: Sequence[Mapping[int, frozenset[int]]],
    strengths: FloatArray | None,
    number: int,
) -> Iterator[list[Two]]:
    """Yields the pairs of round `number` for each question, of its `players`, by whom each has
    `played`. `strengths` are draws (draws, candidates); None in the first round, which is
    random."""
    random = np.random.default_rng([_SEED, number])
    for present, before in zip(players, played, strict=True):
        order = random.permutation(np.asarray(present, np.intp))
        if strengths is not None:
            drawn = strengths[random.integers(strengths.shape[0])]
            order = order[np.argsort(-drawn[order], kind="stable")]
        waiting = [int(player) for player in order]
        if len(waiting) % 2:  # who has played most sits out; of equal ones the weakest
            counts = [len(before.get(player, ())) for player in waiting]
            most = max(counts)
            waiting.pop(max(index for index, count in enumerate(counts) if count == most))
        yield [tuple(sorted(two)) for two in _match(waiting, before) or ()]  # type: ignore[misc]


def _match(waiting: Sequence[int], before: Mapping[int, frozenset[int]]) -> list[Two] | None:
    """Pairs neighbours that have not met, from the top; None where that leaves somebody over."""
    if not waiting:
        return []
    first, *rest = waiting
    for index, other in enumerate(rest):
        if other not in before.get(first, ()):
            others = _match([*rest[:index], *rest[index + 1 :]], before)
            if others is not None:
                return [(first, other), *others]
    return None
