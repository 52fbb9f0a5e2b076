"""Bets on paired differences: what they decide holds at all looks together, and what the interval
says agrees with them."""

from __future__ import annotations

import numpy as np
import pytest

from memray_eval.analysis.betting import DifferenceBets
from tests.bench.stopping import decide_by_bets


def bets_of(differences: np.ndarray, n_looks: int | None = None, size: int = 1) -> DifferenceBets:
    """Bets on groups of `size` in turn, up to the decision."""
    bets = DifferenceBets(0.95, size, n_looks or differences.size)
    for group in np.split(differences, differences.size // size):
        bets.add(float(group.sum()), size)
        if bets.is_decided:
            break
    return bets


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_difference_is_told_from_0_and_so_says_the_interval(sign: float) -> None:
    random = np.random.default_rng(1)
    bets = bets_of(sign * random.choice((1.0, 0.0, -1.0), p=(0.35, 0.5, 0.15), size=400))
    assert bets.is_decided
    low, high = bets.interval()
    assert (low >= 0) if sign > 0 else (high <= 0)
    assert low <= bets.mean <= high
    assert low <= sign * 0.2 <= high


def test_before_anything_is_decided_the_interval_holds_0() -> None:
    nothing = DifferenceBets(0.95, 1, 100)
    assert (nothing.is_decided, tuple(nothing.interval())) == (False, (-1.0, 1.0))
    equal = bets_of(np.tile([0.5, -0.5], 50))
    assert not equal.is_decided
    low, high = equal.interval()
    assert low < 0 < high
    assert high - low < 0.5


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    random = np.random.default_rng(2)
    differences = random.choice((1.0, 0.0, -1.0), p=(0.3, 0.5, 0.2), size=(20, 300))
    decisions, looks = decide_by_bets(differences)
    assert 0 < np.count_nonzero(decisions) < 20
    for row, differs, n in zip(differences, decisions, looks, strict=True):
        bets = bets_of(row)
        assert bets.n == n
        assert bets.is_decided == bool(differs)
        assert not bets.is_decided or np.sign(bets.mean) == differs


@pytest.mark.parametrize(
    ("values", "chances"),
    [
        ((1.0, 0.0, -1.0), (0.15, 0.7, 0.15)),
        ((0.1, -1.0), (10 / 11, 1 / 11)),  # seldom much worse, mostly a little better
        ((1.0, -1.0), (0.5, 0.5)),
    ],
)
def test_of_equal_candidates_few_runs_call_one_better(
    values: tuple[float, ...], chances: tuple[float, ...]
) -> None:
    random = np.random.default_rng(3)
    decisions, _ = decide_by_bets(random.choice(values, p=chances, size=(1000, 200)))
    assert np.count_nonzero(decisions) / 1000 <= 0.05


def test_what_a_test_of_all_units_just_finds_is_decided_before_their_end() -> None:
    """30 of 200 better and 10 worse is 3.2 standard errors."""
    random = np.random.default_rng(4)
    all_units = np.repeat([1.0, -1.0, 0.0], [30, 10, 160])
    calls, looks = decide_by_bets(np.array([random.permutation(all_units) for _ in range(200)]))
    assert np.mean(calls == 1) > 0.8
    assert np.median(looks) < 190


def test_groups_count_whole_and_the_smaller_less() -> None:
    random = np.random.default_rng(5)
    alone = random.choice((1.0, 0.0, -1.0), p=(0.4, 0.5, 0.1), size=400)
    assert bets_of(np.repeat(alone, 4), 400, 4).n == 4 * bets_of(alone).n
    mixed = DifferenceBets(0.95, 4, 400)
    for n, value in enumerate(alone.tolist()):
        mixed.add(value, 1 + n % 2)
    assert mixed.interval().low > -0.2
