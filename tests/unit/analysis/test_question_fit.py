"""Fitting questions to labels: what is recovered, what is refused, and that it is worth nothing
where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest

from memray_eval.analysis.question_fit import auc, fit_weights
from memray_eval.errors import DataError
from memray_eval.ports import FloatArray

TRUE = np.array([1.5, -1.0, 0.0, 0.5])


def synthetic(n: int, seed: int = 1) -> tuple[FloatArray, FloatArray, list[str]]:
    """Features, labels drawn by TRUE weights, and two responses a sample."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(n, len(TRUE)))
    labels = random.random(n) < 1 / (1 + np.exp(-features @ TRUE))
    return features, labels.astype(np.float64), [f"s{row // 2}" for row in range(n)]


def test_recovers_the_weights_and_is_deterministic() -> None:
    fit = fit_weights(*synthetic(600), seed=0)
    assert fit.weights == pytest.approx(TRUE, abs=0.35)
    assert np.argsort(fit.weights).tolist() == np.argsort(TRUE).tolist()
    assert fit.auc > 0.8
    assert fit.kappa > 0.4
    again = fit_weights(*synthetic(600), seed=0)
    assert again.weights.tolist() == fit.weights.tolist()
    assert again._replace(weights=fit.weights) == fit
    assert fit_weights(*synthetic(600), seed=1).auc != fit.auc


def test_shares_between_the_ends_are_fitted_too() -> None:
    features, _, groups = synthetic(200)
    shares = 1 / (1 + np.exp(-(features @ TRUE + 0.3)))
    fit = fit_weights(features, shares, groups, seed=0)
    assert fit.weights == pytest.approx(TRUE, abs=0.1)
    assert fit.intercept == pytest.approx(0.3, abs=0.1)


def test_figures_are_of_held_out_labels() -> None:
    """Forty features of noise fit 80 labels well; held out they are worth nothing."""
    random = np.random.default_rng(3)
    labels = np.arange(80) % 2.0
    aucs = [
        fit_weights(random.normal(size=(80, 40)), labels, [str(row) for row in range(80)], 0).auc
        for _ in range(6)
    ]
    assert 0.35 < float(np.mean(aucs)) < 0.65


def test_a_sample_is_in_one_fold() -> None:
    """Features that say which sample a response is of tell nothing of another sample."""
    random = np.random.default_rng(5)
    labels = np.repeat(random.random(30) < 0.5, 4).astype(np.float64)
    features = np.repeat(random.normal(size=(30, 20)), 4, axis=0)
    grouped = fit_weights(features, labels, [str(row // 4) for row in range(120)], 0).auc
    leaked = fit_weights(features, labels, [str(row) for row in range(120)], 0).auc
    assert leaked > 0.85 > grouped


def test_a_feature_that_never_changes_has_no_say() -> None:
    features, labels, groups = synthetic(120)
    features[:, 2] = 9.2
    fit = fit_weights(features, labels, groups, seed=0)
    assert fit.weights[2] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "labels", "groups"),
    [(80, 1.0, 80), (80, 0.4, 80), (39, None, 39), (80, None, 9)],
    ids=["constant", "all below the middle", "too few", "too few samples"],
)
def test_refuses_labels_that_say_too_little(n: int, labels: float | None, groups: int) -> None:
    shares = np.arange(n) % 2.0 if labels is None else np.full(n, labels)
    names = [str(row % groups) for row in range(n)]
    with pytest.raises(DataError):
        fit_weights(np.random.default_rng(0).normal(size=(n, 3)), shares, names, 0)


def test_auc_counts_ties_half_and_pairs_within_folds() -> None:
    # pairs of the first fold: 0.9 > 0.1, 0.9 > 0.5, 0.5 > 0.1, 0.5 = 0.5: 3.5 of 4; of the second:
    # 0.2 < 0.3
    scores = np.array([0.9, 0.5, 0.5, 0.1, 0.2, 0.3])
    is_high = np.array([True, True, False, False, True, False])
    assert auc(scores[:4], is_high[:4], np.zeros(4, np.int_)) == 3.5 / 4
    assert auc(scores, is_high, np.array([0, 0, 0, 0, 1, 1])) == 3.5 / 5
