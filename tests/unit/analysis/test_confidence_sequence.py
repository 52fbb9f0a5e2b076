"""Confidence sequences: their boundary, and that they hold at all looks together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memray_eval.analysis.confidence_sequence import LAMBDAS, ConfidenceSequence, boundary
from tests.bench.stopping import Runs, confidence_sequences, zeros_and_ones


@pytest.mark.parametrize("alpha", [0.025, 0.001])
def test_the_boundary_solves_the_mixture(alpha: float) -> None:
    for variance in (0.0, 0.3, 5.0, 250.0, 20_000.0):
        u = float(boundary(np.array(variance), alpha))
        grown = np.exp(LAMBDAS * u - (-np.log1p(-LAMBDAS) - LAMBDAS) * variance).mean()
        assert grown == pytest.approx(1 / alpha, rel=1e-4)
        assert grown >= (1 - 1e-9) / alpha, "never below: the chance stays at most alpha"


def test_it_is_not_much_wider_than_the_law_of_the_iterated_logarithm_asks() -> None:
    for variance in (50.0, 1000.0):
        fixed = 1.96 * math.sqrt(variance)
        assert fixed < float(boundary(np.array(variance), 0.025)) < 2.2 * fixed


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    runs = zeros_and_ones(np.random.default_rng(1), 2, 5, (0.2, 0.7), 0.3)
    many = confidence_sequences(runs)
    for row in range(2):
        sequence = ConfidenceSequence(largest=5)
        for look in range(60):
            sequence.add(float(runs.totals[row, look]), 5, int(runs.strata[look]))
            assert sequence.mean == pytest.approx(many.means[row, look])
            assert sequence.half_width == pytest.approx(many.halves[row, look], rel=1e-2)
            assert sequence.half_width <= many.halves[row, look] + 1e-9


def test_strata_narrow_it() -> None:
    random = np.random.default_rng(2)
    values = np.where(np.arange(600) % 2, random.random(600) < 0.95, random.random(600) < 0.05)
    apart, together = ConfidenceSequence(), ConfidenceSequence()
    for n, value in enumerate(values.tolist()):
        apart.add(float(value), 1, n % 2)
        together.add(float(value), 1)
    assert apart.mean == together.mean
    assert apart.half_width < 0.6 * together.half_width


def test_it_holds_at_all_looks_together() -> None:
    random, truth = np.random.default_rng(3), 0.8
    values = (random.random((400, 1000)) < truth).astype(float)
    looks = confidence_sequences(Runs(values, 1, np.zeros(1000, np.int64), truth))
    is_outside = (np.abs(looks.means - truth) > looks.halves).any(axis=1)
    assert is_outside.mean() <= 0.05
    assert looks.halves[:, -1].mean() < 0.06


def test_before_the_first_value_nothing_is_known() -> None:
    nothing = ConfidenceSequence()
    assert nothing.interval == (0.0, 1.0)
    assert math.isinf(nothing.half_width)
