"""Adjusted means: a case by hand, weights, coverage of the interval, and when there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memray_eval.analysis.calibration import AdjustedMean, adjusted_mean


def adjust(judge: Any, people: Any, weights: Any = None, clusters: Any = None) -> AdjustedMean:
    n = len(judge)
    return adjusted_mean(
        "c",
        np.array(judge, float),
        np.array(people, float),
        np.ones(n) if weights is None else np.array(weights, float),
        np.arange(n) if clusters is None else np.array(clusters),
        (0.0, 1.0),
    )


def test_it_is_the_papers_formula() -> None:
    rng = np.random.default_rng(0)
    judge = rng.integers(0, 2, 200).astype(float)
    people = np.where(rng.random(200) < 0.8, judge, 1 - judge)
    people[40:] = np.nan
    found = adjust(judge, people)
    # lambda = Cov(people, judge) / ((1 + n/N) Var(judge)) of separate samples; here the labelled
    # are among all, so that the influence of one is on both means
    own, all_ = judge[:40] - judge[:40].mean(), judge - judge.mean()
    to_judge = np.concatenate([own, np.zeros(160)]) / 40 * np.sqrt(40 / 39)
    to_people = np.concatenate([people[:40] - people[:40].mean(), np.zeros(160)]) / 40
    gained = all_ / 200 * np.sqrt(200 / 199) - to_judge
    tuning = -(to_people * np.sqrt(40 / 39)) @ gained / (gained @ gained)
    assert found.tuning == pytest.approx(tuning)
    assert 0 < tuning < 1
    expected = people[:40].mean() + tuning * (judge.mean() - judge[:40].mean())
    assert found.value == pytest.approx(expected)
    assert (found.n, found.n_labels, found.raw) == (200, 40, pytest.approx(judge.mean()))


def test_a_label_counts_by_its_weight() -> None:
    people = [1.0] * 10 + [0.0] * 10 + [np.nan] * 20
    found = adjust([0.5] * 40, people, weights=[3.0] * 10 + [1.0] * 30)
    assert found.value == pytest.approx(0.75)


@pytest.mark.parametrize("is_clustered", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_interval_covers_as_it_promises(is_clustered: bool, is_weighted: bool) -> None:
    rng, covered, raw = np.random.default_rng(1), 0, 0
    for _ in range(600):
        clusters = np.arange(600) // (3 if is_clustered else 1)
        hard = rng.random(600) < 0.4
        truth = (
            rng.random(200)[clusters // (1 if is_clustered else 3)] * 0.5 + rng.random(600) * 0.5
        )
        truth = (truth + 0.15 > 0.5 + 0.3 * hard).astype(float)
        judge = np.where(rng.random(600) < np.where(hard, 0.3, 0.1), 1.0, truth)
        chance = np.where(hard, 0.4, 0.1) if is_weighted else np.full(600, 0.2)
        drawn = rng.random(600) < chance
        found = adjust(judge, np.where(drawn, truth, np.nan), 1 / chance, clusters)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= TRUTH <= found.high
        raw += abs(found.raw - TRUTH) < (found.high - found.low) / 2
    assert 0.925 <= covered / 600 <= 0.985
    assert raw / 600 < 0.8


def _true_mean() -> float:
    rng = np.random.default_rng(2)
    sums = rng.random(4_000_000) * 0.5 + rng.random(4_000_000) * 0.5
    return float(0.6 * (sums > 0.35).mean() + 0.4 * (sums > 0.65).mean())


TRUTH = _true_mean()


@pytest.mark.parametrize(
    ("people", "reason"),
    [([1, 0] * 4, "8 labels of 8 clusters; 10 of 4 are"), ([1] * 12, "all 12 labels are the same")],
)
def test_labels_that_tell_nothing_give_no_figure(people: list[float], reason: str) -> None:
    found = adjust([0.5] * 20, people + [np.nan] * (20 - len(people)))
    assert reason in found.refused
    assert (found.value, found.raw) == (None, 0.5)
