"""Fits the weights of yes/no questions to people's labels: ridge logistic regression, with nested
cross-validation for what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memray_eval.analysis.agreement import midranks, weighted_kappa
from memray_eval.errors import DataError
from memray_eval.ports import FloatArray

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FOLDS = 5
LEAST_LABELS, LEAST_OF_A_KIND = 40, 8  # fewer say nothing of so many weights
_STEPS = 100  # of Newton's method, which takes about ten


class Fit(NamedTuple):
    """Weights of the features, and the figures of held-out predictions (cross-validated)."""

    weights: FloatArray
    intercept: float
    ridge: float
    auc: float
    kappa: float


def fit_weights(features: FloatArray, shares: FloatArray, groups: Sequence[str], seed: int) -> Fit:
    """Fits `shares` (labels on a scale of 0 to 1) by `features`, a row a response. Responses of one
    of the `groups` are in one fold; in each outer fold the ridge is chosen by an inner
    cross-validation. AUC and kappa are of shares above 0.5. Raises DataError as check_labels."""
    check_labels(shares, groups)
    is_high, folds = shares > 0.5, _folds(groups, seed)
    held_out = np.empty(len(shares))
    for fold in range(FOLDS):
        is_in, is_out = folds != fold, folds == fold
        ridge = _best_ridge(features[is_in], shares[is_in], folds[is_in])
        held_out[is_out] = _predict(features[is_out], *_fit(features[is_in], shares[is_in], ridge))
    ridge = _best_ridge(features, shares, folds)
    weights, intercept = _fit(features, shares, ridge)
    classes = np.column_stack([held_out > 0.5, is_high]).astype(np.float64)
    return Fit(
        weights,
        intercept,
        ridge,
        auc=auc(held_out, is_high, folds),
        kappa=float(np.nan_to_num(weighted_kappa(classes))),
    )


def check_labels(shares: FloatArray, groups: Sequence[str]) -> None:
    """Raises DataError for too few labels or groups, or for labels that hardly differ."""
    n_high, n_groups = int((shares > 0.5).sum()), len(set(groups))
    fewest = min(n_high, len(shares) - n_high)
    if len(shares) < LEAST_LABELS or fewest < LEAST_OF_A_KIND or n_groups < 2 * FOLDS:
        raise DataError(
            f"{len(shares)} labels of answers to {n_groups} questions, {fewest} of them on the "
            f"rarer side of the scale's middle, are too few to fit to: label {LEAST_LABELS}, of "
            f"{2 * FOLDS} questions, and {LEAST_OF_A_KIND} on either side"
        )


def auc(scores: FloatArray, is_high: NDArray[np.bool_], folds: NDArray[np.int_]) -> float:
    """The chance that a high response scores above one of its fold that is not, a tie counting
    half: the sum of Mann and Whitney's U over that of n1 n2. Scores of different fits do not
    compare."""
    u = pairs = 0.0
    for fold in np.unique(folds):
        in_fold, high = scores[folds == fold], is_high[folds == fold]
        n = int(high.sum())
        u += float(midranks(in_fold)[high].sum()) - n * (n + 1) / 2
        pairs += n * (high.size - n)
    return u / pairs if pairs else 0.5


def _folds(groups: Sequence[str], seed: int) -> NDArray[np.int_]:
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[index]: number % FOLDS for number, index in enumerate(order)}
    return np.array([fold_of[group] for group in groups])


def _best_ridge(features: FloatArray, shares: FloatArray, folds: NDArray[np.int_]) -> float:
    """The ridge with the lowest held-out log loss over the folds; the larger of equal ones."""
    losses = []
    for ridge in RIDGES:
        loss = 0.0
        for fold in np.unique(folds):
            is_in = folds != fold
            predicted = _predict(features[~is_in], *_fit(features[is_in], shares[is_in], ridge))
            p, y = np.clip(predicted, 1e-9, 1 - 1e-9), shares[~is_in]
            loss -= float((y * np.log(p) + (1 - y) * np.log(1 - p)).sum())
        losses.append(loss)
    return min(zip(losses, (-ridge for ridge in RIDGES), strict=True))[1] * -1


def _fit(features: FloatArray, shares: FloatArray, ridge: float) -> tuple[FloatArray, float]:
    """Weights and intercept that minimise log loss + ridge / 2 * squared weights of standardised
    features, by Newton's method. Shares between 0 and 1 are as good as labels."""
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    x = np.column_stack([np.ones(len(shares)), (features - mean) / spread])
    penalty = np.diag([1e-6, *[ridge] * features.shape[1]])
    beta = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = _sigmoid(x @ beta)
        slope = x.T @ (p - shares) + penalty @ beta
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + penalty, slope)
        beta -= step
        if float(np.abs(step).max()) < 1e-9:
            break
    weights = beta[1:] / spread
    return weights, float(beta[0] - weights @ mean)


def _predict(features: FloatArray, weights: FloatArray, intercept: float) -> FloatArray:
    return _sigmoid(features @ weights + intercept)


def _sigmoid(values: FloatArray) -> FloatArray:
    share: FloatArray = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
    return share
