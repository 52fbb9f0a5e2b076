"""Swiss rounds: who meets whom."""

from __future__ import annotations

import numpy as np
import pytest

from memray_eval.analysis.pairs.swiss import all_pairs, pair_round, rounds_for


def play(n: int, questions: int = 6) -> list[list[tuple[int, int]]]:
    """All pairs of each question, over all rounds; the stronger has the lower number."""
    strengths = -np.arange(n)[None, :].astype(float)
    met: list[dict[int, frozenset[int]]] = [{} for _ in range(questions)]
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(questions)]
    for number in range(1, rounds_for(n) + 1):
        drawn = None if number == 1 else strengths
        for question, two in enumerate(pair_round([range(n)] * questions, met, drawn, number)):
            pairs[question] += two
            for i, j in two:
                met[question][i] = met[question].get(i, frozenset()) | {j}
                met[question][j] = met[question].get(j, frozenset()) | {i}
    return pairs


@pytest.mark.parametrize("n", [5, 6, 7, 8, 9, 12])
def test_at_most_half_of_all_pairs_are_played_and_none_twice(n: int) -> None:
    for pairs in play(n):
        assert len(pairs) == len(set(pairs)) == rounds_for(n) * (n // 2)
        assert 2 * len(pairs) <= n * (n - 1) // 2
        assert all(i < j for i, j in pairs)
        counts = [sum(side in two for two in pairs) for side in range(n)]
        assert max(counts) - min(counts) <= 1


def test_up_to_four_all_pairs_are_judged() -> None:
    assert [rounds_for(n) for n in (2, 3, 4, 5, 8)] == [1, 1, 1, 2, 3]
    assert list(all_pairs([0, 2, 3])) == [(0, 2), (0, 3), (2, 3)]


def test_the_same_strengths_give_the_same_pairs() -> None:
    assert play(8) == play(8)


def test_neighbours_meet_from_the_second_round_on() -> None:
    strengths = -np.arange(8)[None, :].astype(float)
    (pairs,) = pair_round([range(8)], [{}], strengths, 2)
    assert pairs == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_question_that_two_were_asked_has_their_pair() -> None:
    (pairs,) = pair_round([[1, 4]], [{}], None, 1)
    assert pairs == [(1, 4)]
    (again,) = pair_round([[1, 4]], [{1: frozenset({4}), 4: frozenset({1})}], None, 2)
    assert again == []
