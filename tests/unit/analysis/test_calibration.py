"""Judges against people: figures against hand cases, brute force and scipy; intervals, curves,
flips, the suggestion."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.analysis.agreement import (
    alpha_interval,
    alpha_nominal,
    alpha_ordinal,
    midranks,
    rescale,
    share_equal,
    spearman,
    to_categories,
    weighted_kappa,
)
from memray_eval.analysis.calibration import (
    Table,
    Unit,
    calibrate_judge,
    estimate_with_intervals,
    flip_share,
    people_agreement,
    suggest_judge,
)
from memray_eval.ports import FloatArray

NAN = np.nan
# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), part C: four observers, twelve
# units, gaps.
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
).T
PAIRS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=3, max_size=30)


def units(pairs: list[tuple[float, float | None]], **more: Any) -> list[Unit]:
    return [
        Unit(id=str(n), people=(human,), judge=judge, cluster=str(n), **more)
        for n, (human, judge) in enumerate(pairs)
    ]


def test_krippendorffs_published_example() -> None:
    assert alpha_nominal(OBSERVERS) == pytest.approx(0.743, abs=5e-4)
    assert alpha_ordinal(OBSERVERS) == pytest.approx(0.815, abs=5e-4)
    assert alpha_interval(OBSERVERS) == pytest.approx(0.849, abs=5e-4)


def brute_alpha(ratings: FloatArray, metric: str) -> float:
    """From the definition: coincidences of all pairs of values within units."""
    values = sorted(set(ratings.ravel()))
    column = {value: n for n, value in enumerate(values)}
    seen = np.zeros((len(values), len(values)))
    for row in ratings:
        for left, other in itertools.permutations(row, 2):
            seen[column[left], column[other]] += 1 / (len(row) - 1)
    counts = seen.sum(axis=1)

    def distance(c: int, k: int) -> float:
        if metric == "nominal":
            return float(c != k)
        if metric == "interval":
            return float((values[c] - values[k]) ** 2)
        c, k = min(c, k), max(c, k)
        return float((counts[c : k + 1].sum() - (counts[c] + counts[k]) / 2) ** 2)

    apart = np.array([[distance(c, k) for k in range(len(values))] for c in range(len(values))])
    by_chance = (np.outer(counts, counts) * apart).sum() / (counts.sum() - 1)
    return float(1 - (seen * apart).sum() / by_chance) if by_chance else NAN


@given(PAIRS)
def test_alpha_is_the_coincidence_matrix_one(pairs: list[tuple[int, int]]) -> None:
    ratings = np.array(pairs, dtype=float)
    for name, alpha in (
        ("nominal", alpha_nominal),
        ("ordinal", alpha_ordinal),
        ("interval", alpha_interval),
    ):
        assert alpha(ratings) == pytest.approx(brute_alpha(ratings, name), nan_ok=True)


@given(PAIRS)
def test_spearman_and_ranks_are_scipys(pairs: list[tuple[int, int]]) -> None:
    ratings = np.array(pairs, dtype=float)
    assert midranks(ratings[:, 0]).tolist() == scipy.stats.rankdata(ratings[:, 0]).tolist()
    if ratings.std(axis=0).min() == 0:
        assert np.isnan(spearman(ratings))
    else:
        assert spearman(ratings) == pytest.approx(
            scipy.stats.spearmanr(ratings[:, 0], ratings[:, 1]).statistic
        )


@given(PAIRS)
def test_kappa_is_cohens_with_quadratic_weights(pairs: list[tuple[int, int]]) -> None:
    ratings = np.array(pairs, dtype=float)
    n, weights = len(pairs), np.array([[(i - j) ** 2 for j in range(1, 6)] for i in range(1, 6)])
    table = np.array([[pairs.count((i, j)) for j in range(1, 6)] for i in range(1, 6)])
    chance = (np.outer(table.sum(axis=1), table.sum(axis=0)) * weights).sum() / n
    expected = 1 - (table * weights).sum() / chance if chance else NAN
    assert weighted_kappa(ratings) == pytest.approx(expected, nan_ok=True)


def test_a_two_by_two_table_by_hand() -> None:
    ratings = np.array([(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15, dtype=float)
    assert share_equal(ratings) == pytest.approx(0.7)
    assert weighted_kappa(ratings) == pytest.approx(0.4)  # (0.70 - 0.50) / (1 - 0.50)


def test_scales_and_categories() -> None:
    assert rescale(np.array([1.0, 3.0, 5.0]), (1, 5), (0, 1)).tolist() == [0.0, 0.5, 1.0]
    assert to_categories(np.array([0.0, 0.49, 0.5, 1.0]), (0, 1)).tolist() == [0, 0, 1, 1]
    assert to_categories(np.array([1.0, 2.33, 2.5, 3.0]), (1, 3)).tolist() == [0, 1, 2, 2]


def test_the_judge_is_put_on_the_people_scale() -> None:
    calibration = calibrate_judge(
        units([(1, 1), (2, 3), (3, 5), (1, 3), (2, None)]), "j", (1, 5), (1, 3), draws=50
    )
    assert (calibration.n, calibration.n_scored, calibration.coverage) == (5, 4, 0.8)
    # 3 of 1-5 is 2 of 1-3, where people said 1
    assert calibration.figures["bias"].value == pytest.approx(0.25)
    assert calibration.figures["exact"].value == 0.75
    assert {"exact", "bias", "calibration_error", "flip_rate"} <= calibration.figures.keys()
    assert calibration.figures["flip_rate"].value is None
    assert [(point.n, point.judge, point.people) for point in calibration.curve] == [
        (1, 1, 1),
        (2, 2, 1.5),
        (1, 3, 3),
    ]
    assert calibration.figures["calibration_error"].value == pytest.approx(0.25)


def test_a_curve_by_confidence() -> None:
    sure = units([(1, 1.0)] * 3 + [(0, 1.0)], confidence=0.95)
    unsure = units([(1, 1.0), (0, 1.0)], confidence=0.55)
    calibration = calibrate_judge([*sure, *unsure], "j", (0, 1), (0, 1), draws=20)
    assert calibration.curve_by == "confidence"
    assert [(point.n, point.judge, point.people) for point in calibration.curve] == [
        (2, 0.55, 0.5),
        (4, pytest.approx(0.95), 0.75),
    ]
    assert calibration.figures["calibration_error"].value == pytest.approx((2 * 0.05 + 4 * 0.2) / 6)


def test_flips_are_pairs_of_repeats_that_differ() -> None:
    assert flip_share([1, 1, 0]) == pytest.approx(2 / 3)
    assert np.isnan(flip_share([1]))
    calibration = calibrate_judge(
        [*units([(1, 1)] * 3, repeats=(1, 1)), *units([(0, 1)], repeats=(0, 1))],
        "j",
        (0, 1),
        (0, 1),
        draws=20,
    )
    assert calibration.figures["flip_rate"].value == 0.25


def test_a_judge_that_always_says_the_same_has_no_correlation() -> None:
    figures = calibrate_judge(
        units([(0, 1), (1, 1), (1, 1)]), "j", (0, 1), (0, 1), draws=20
    ).figures
    assert figures["spearman"].value is None
    assert figures["kappa"].value == 0.0


def test_nothing_scored_is_none_and_not_zero() -> None:
    calibration = calibrate_judge(units([(0, None), (1, None)]), "j", (0, 1), (0, 1), draws=5)
    assert calibration.coverage == 0.0
    assert {figure.value for figure in calibration.figures.values()} == {None}
    assert calibration.curve == ()


@pytest.mark.heavy
@pytest.mark.parametrize("statistic", [share_equal, weighted_kappa], ids=["agreement", "kappa"])
def test_intervals_cover_the_truth_95_percent_of_the_time(
    statistic: Callable[[FloatArray], float],
) -> None:
    """Of 60 responses that people rate 1-5 and a judge as they do for six in ten, else a step
    apart."""
    random, nothing, names = np.random.default_rng(7), np.full(60, NAN), [str(n) for n in range(60)]

    def rated(n: int) -> FloatArray:
        people = random.integers(1, 6, size=n)
        judge = np.where(random.random(n) < 0.6, people, people + random.choice([-1, 1], size=n))
        return np.column_stack([people, judge]).astype(np.float64)

    truth, covered = statistic(rated(1_000_000)), 0
    for _ in range(800):
        table = Table(rated(60), nothing, nothing)
        figure = estimate_with_intervals(
            {"it": lambda drawn: statistic(drawn.ratings)}, table, names, draws=200
        )["it"]
        covered += (figure.low or 0.0) <= truth <= (figure.high or 0.0)
    assert 0.93 <= covered / 800 <= 0.97


def test_clusters_widen_intervals() -> None:
    alone = units([(n % 2, 1.0) for n in range(40)])
    together = [unit.model_copy(update={"cluster": str(n % 2)}) for n, unit in enumerate(alone)]

    def width(rated: list[Unit]) -> float:
        figure = calibrate_judge(rated, "j", (0, 1), (0, 1), draws=200).figures["exact"]
        return (figure.high or 0.0) - (figure.low or 0.0)

    assert width(together) > 2 * width(alone)


def test_peoples_own_agreement() -> None:
    rated = [
        Unit(id=str(n), people=row, judge=None, cluster=str(n))
        for n, row in enumerate([(1, 1, 2), (2, None, 2), (3, 3, 3)])
    ]
    lone = Unit(id="x", people=(1, None, None), judge=None, cluster="x")
    agreement = people_agreement([*rated, lone], (1, 3), draws=20)
    assert agreement is not None
    assert (agreement.n, agreement.raters) == (3, 3)
    assert agreement.figures["exact"].value == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert "bias" not in agreement.figures
    assert people_agreement([lone], (1, 3)) is None


def test_the_suggestion() -> None:
    truth = [float(n % 2) for n in range(60)]
    good = units([(value, value if n % 10 else 1 - value) for n, value in enumerate(truth)])
    like_it = units([(value, value if n % 10 != 5 else 1 - value) for n, value in enumerate(truth)])
    poor = units([(value, value if n % 10 > 2 else 1 - value) for n, value in enumerate(truth)])
    chance = units([(value, float(n % 3 == 0)) for n, value in enumerate(truth)])
    gappy = [
        unit.model_copy(update={"judge": None}) if n < 30 else unit
        for n, unit in enumerate(units([(v, v) for v in truth]))
    ]
    trials = {
        name: (calibrate_judge(trial, name, (0, 1), (0, 1), draws=200), trial)
        for name, trial in {
            "good": good,
            "like_it": like_it,
            "poor": poor,
            "chance": chance,
            "gappy": gappy,
        }.items()
    }
    suggestion = suggest_judge(list(trials.values()), (0, 1), (0, 1))
    assert suggestion.judge == "good"
    assert "cannot tell it from like_it:" in suggestion.reason
    assert suggest_judge([trials["good"], trials["poor"]], (0, 1), (0, 1)).reason.endswith(
        "above every other judge that can be suggested"
    )
    assert suggest_judge([trials["chance"], trials["gappy"]], (0, 1), (0, 1)).judge is None
