"""Strengths by the Bradley-Terry model with ties: what they maximise, and where they end."""

import numpy as np
import pytest

from memray_eval.analysis.pairs import PRIOR_SD, Matches, Strengths, fit_strengths, ranks_of

THREE = Matches(np.array([0, 0, 1]), np.array([1, 2, 2]))


def log_posterior(
    at: np.ndarray, matches: Matches, wins: np.ndarray, ties: np.ndarray, losses: np.ndarray
) -> float:
    """Davidson's likelihood from its definition, and the prior."""
    *strengths, tie, weight = at
    total = -float(at @ at) / (2 * PRIOR_SD**2)
    for row, (i, j) in enumerate(zip(matches.i, matches.j, strict=True)):
        x = 0.0 if matches.x is None else matches.x[row]
        a, b = np.exp(strengths[i] + weight * x), np.exp(strengths[j])
        neither = np.exp(tie) * np.sqrt(a * b)
        whole = a + b + neither
        counts = (wins[row], losses[row], ties[row])
        total += sum(
            n * np.log(part / whole) for n, part in zip(counts, (a, b, neither), strict=True)
        )
    return total


@pytest.mark.parametrize("x", [None, np.array([1.0, -0.5, 2.0])])
def test_no_other_parameters_are_likelier(x: np.ndarray | None) -> None:
    random = np.random.default_rng(1)
    matches = THREE._replace(x=x)
    counts = [random.integers(1, 30, (1, 3)).astype(float) for _ in range(3)]
    fitted = fit_strengths(matches, 3, *counts)
    best = np.array([*fitted.of[0], fitted.ties[0], fitted.weight[0]])
    reached = log_posterior(best, matches, *(count[0] for count in counts))
    for _ in range(200):
        other = best + random.normal(0, 0.05, best.size)
        if x is None:
            other[-1] = 0.0
        assert log_posterior(other, matches, *(count[0] for count in counts)) <= reached + 1e-9
    assert fitted.of[0].sum() == pytest.approx(0, abs=1e-8)


def test_of_two_the_strengths_are_the_odds() -> None:
    two = Matches(np.array([0]), np.array([1]))
    fitted = fit_strengths(two, 2, np.array([[300.0]]), np.array([[0.0]]), np.array([[100.0]]))
    assert fitted.of[0, 0] - fitted.of[0, 1] == pytest.approx(np.log(3), abs=0.01)
    assert fitted.win_rate(0, 1)[0] == pytest.approx(0.75, abs=0.01)
    level = fit_strengths(two, 2, np.array([[20.0]]), np.array([[60.0]]), np.array([[20.0]]))
    assert level.win_rate(0, 1)[0] == pytest.approx(0.5)
    assert np.exp(level.ties[0]) / (2 + np.exp(level.ties[0])) == pytest.approx(0.6, abs=0.01)


def test_who_wins_every_match_has_a_finite_strength() -> None:
    wins = np.array([[50.0, 50.0, 50.0]])
    nothing = np.zeros((1, 3))
    fitted = fit_strengths(THREE, 3, wins, nothing, nothing)
    assert np.isfinite(fitted.of).all()
    best, worst = ranks_of(fitted.of)
    assert best.tolist() == worst.tolist() == [[1, 2, 3]]


def test_sets_are_fitted_apart() -> None:
    random = np.random.default_rng(2)
    counts = [random.integers(0, 20, (5, 3)).astype(float) for _ in range(3)]
    together = fit_strengths(THREE, 3, *counts)
    for row in range(5):
        alone: Strengths = fit_strengths(THREE, 3, *(count[row : row + 1] for count in counts))
        assert together.of[row] == pytest.approx(alone.of[0], abs=1e-6)
