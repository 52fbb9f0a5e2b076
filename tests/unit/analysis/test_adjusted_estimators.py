"""Adjusted means against the formulas of their papers, written out for independent units, and
against what must hold whatever the data."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from memray_eval.analysis.adjusted.estimators import (
    AdjustedMean,
    Labelled,
    Verdicts,
    estimates_difference,
    prediction_powered,
    rogan_gladen,
    rogan_gladen_difference,
    weighted_share,
    youden,
)
from memray_eval.analysis.statistics import clustered_error, t_interval

Z = NormalDist().inv_cdf(0.975)


def zeros_and_ones(ones: int, n: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [ones, n - ones])


def labelled(right: tuple[int, int], wrong: tuple[int, int], first: int = 10_000) -> Labelled:
    """Of the right answers and of the wrong ones, how many the judge calls right, and how many
    there are; each in a cluster of its own."""
    judge = np.concatenate([zeros_and_ones(*right), zeros_and_ones(*wrong)])
    people = zeros_and_ones(right[1], right[1] + wrong[1])
    return Labelled(judge, people, first + np.arange(judge.size), np.ones(judge.size))


def run_of(ones: int, n: int) -> Verdicts:
    return Verdicts(zeros_and_ones(ones, n), np.arange(n))


@pytest.mark.parametrize(
    ("verdicts", "right", "wrong"),
    [
        ((620, 1000), (54, 60), (12, 40)),
        ((30, 400), (19, 20), (2, 80)),
        ((90, 100), (10, 10), (3, 9)),
    ],
)
def test_rogan_gladen_holds_what_the_data_do_not_reject(
    verdicts: tuple[int, int], right: tuple[int, int], wrong: tuple[int, int]
) -> None:
    estimate = rogan_gladen(run_of(*verdicts), labelled(right, wrong))
    p, se, fpr = verdicts[0] / verdicts[1], right[0] / right[1], wrong[0] / wrong[1]
    assert estimate.value == pytest.approx(min(1.0, max(0.0, (p - fpr) / (se - fpr))))
    assert estimate.sensitivity == pytest.approx(se)
    assert estimate.specificity == pytest.approx(1 - fpr)

    def variance(ones: int, n: int, added: float) -> float:
        share = (ones + added) / (n + 2 * added)
        return share * (1 - share) / (n + 2 * added)

    def reach(share: float) -> float:
        error = math.sqrt(
            variance(*verdicts, Z**2 / 2)
            + share**2 * variance(*right, 1)
            + (1 - share) ** 2 * variance(*wrong, 1)
        )
        return abs(p - share * se - (1 - share) * fpr) / error

    for end, out in zip(estimate.interval, (-1e-6, 1e-6), strict=True):
        assert reach(end) == pytest.approx(Z) if 0 < end < 1 else reach(end) < Z
        assert not 0 < end < 1 or reach(end + out) > Z
    assert reach(estimate.value) < Z


def test_more_labels_narrow_the_interval_down_to_the_runs_own() -> None:
    estimate = rogan_gladen(run_of(620, 1000), labelled((54, 60), (12, 40)))
    widths = [estimate.half_width(times) for times in (1, 2, 4, 1e9, math.inf)]
    assert widths == sorted(widths, reverse=True)
    assert estimate.half_width() == pytest.approx(
        (estimate.interval.high - estimate.interval.low) / 2, rel=0.1
    )
    slope = 54 / 60 - 12 / 40
    assert widths[-1] == pytest.approx(Z * math.sqrt(0.62 * 0.38 / 1000) / slope, rel=0.01)


def test_clusters_widen_both_intervals() -> None:
    of = labelled((54, 60), (12, 40))
    run = run_of(620, 1000)
    in_clusters = of._replace(clusters=10_000 + np.arange(100) // 10)
    assert width(rogan_gladen(run, in_clusters)) > 1.2 * width(rogan_gladen(run, of))
    fewer = run._replace(clusters=np.arange(1000) // 20)
    assert width(rogan_gladen(fewer, of)) > 1.2 * width(rogan_gladen(run, of))
    assert width(prediction_powered(run, in_clusters)) > width(prediction_powered(run, of))


def test_units_that_are_alike_within_clusters_tell_as_much_as_one_each() -> None:
    """Of 20 clusters of five, half right answers and half wrong, a third are judged wrongly; then
    the errors are spread over all of them."""
    run, clusters = run_of(620, 1000), 10_000 + np.arange(100) // 5
    people = np.repeat(np.arange(20) % 2, 5).astype(float)
    wrongly = np.repeat(np.arange(20) % 6 < 2, 5)
    whole = Labelled(np.where(wrongly, 1 - people, people), people, clusters, np.ones(100))
    one_each = Labelled(*(column[::5] for column in whole))
    alike, few = rogan_gladen(run, whole), rogan_gladen(run, one_each)
    assert alike.value == pytest.approx(few.value)
    assert alike.label_variance == pytest.approx(few.label_variance, rel=0.1)
    spread = np.arange(100) % 6 < 2
    apart = whole._replace(judge=np.where(spread, 1 - people, people))
    alone = apart._replace(clusters=10_000 + np.arange(100))
    in_clusters, unclustered = (rogan_gladen(run, few).label_variance for few in (apart, alone))
    assert in_clusters == pytest.approx(unclustered, rel=0.05)
    assert in_clusters < 0.3 * alike.label_variance


def test_where_a_judge_errs_on_no_label_each_cluster_tells_as_much_as_one_unit() -> None:
    people = np.repeat(np.arange(20) % 2, 5).astype(float)
    never = Labelled(people, people, 10_000 + np.arange(100) // 5, np.ones(100))
    one_each = Labelled(*(column[::5] for column in never))
    without_errors, few = (rogan_gladen(run_of(620, 1000), labels) for labels in (never, one_each))
    assert without_errors.label_variance == pytest.approx(few.label_variance)


def width(mean: AdjustedMean) -> float:
    return mean.interval.high - mean.interval.low


def test_ppi_is_the_papers_for_independent_units() -> None:
    random = np.random.default_rng(1)
    people = random.random(80)
    judge = np.clip(people + random.normal(0, 0.2, 80) + 0.1, 0, 1)
    votes = np.clip(random.random(900) + 0.1, 0, 1)
    labels = Labelled(judge, people, 2000 + np.arange(80), np.ones(80))
    ppi = prediction_powered(Verdicts(votes, np.arange(900)), labels)
    # Angelopoulos, Duchi and Zrnic, example 6.1
    covariance = np.cov(people, judge, ddof=1)[0, 1]
    tuning = covariance / (judge.var(ddof=1) + 80 / 900 * votes.var(ddof=1))
    assert ppi.tuning == pytest.approx(tuning)
    assert ppi.value == pytest.approx(people.mean() + tuning * (votes.mean() - judge.mean()))
    variance = (people - tuning * judge).var(ddof=1) / 80 + tuning**2 * votes.var(ddof=1) / 900
    error = (ppi.interval.high - ppi.value) / ppi.critical
    # A little more than the paper's: residuals are set against their pull (HC3)
    assert 1.0 < error / math.sqrt(variance) < 1.08
    assert 1.96 < ppi.critical < 2.05


def test_a_useless_judge_leaves_the_labels_alone() -> None:
    random = np.random.default_rng(2)
    people = random.random(60)
    labels = Labelled(np.full(60, 0.5), people, 500 + np.arange(60), np.ones(60))
    estimate = prediction_powered(Verdicts(random.random(500), np.arange(500)), labels)
    against = Labelled(1 - people, people, 500 + np.arange(60), np.ones(60))
    assert estimate.tuning == pytest.approx(0.0)
    assert estimate.value == pytest.approx(people.mean())
    assert prediction_powered(Verdicts(random.random(500), np.arange(500)), against).tuning == 0.0


def test_a_perfect_judge_makes_labels_of_all_answers() -> None:
    random = np.random.default_rng(3)
    verdicts = random.random(500)
    labels = Labelled(verdicts[:50], verdicts[:50], np.arange(50), np.ones(50))
    estimate = prediction_powered(Verdicts(verdicts, np.arange(500)), labels)
    assert estimate.tuning == pytest.approx(1.0, abs=0.05)
    assert estimate.value == pytest.approx(verdicts.mean(), abs=2e-3)
    assert estimate.label_variance == pytest.approx(0.0, abs=1e-5)
    plain = t_interval(verdicts.mean(), verdicts.std(ddof=1) / math.sqrt(500), 499)
    assert estimate.interval.low == pytest.approx(plain.low, abs=2e-3)


def test_weights_undo_an_uneven_draw() -> None:
    """Of 1,000 answers those that the judge calls wrong are labelled four times as often."""
    random = np.random.default_rng(4)
    right = random.random(4000) < 0.7
    verdicts = np.where(right, random.random(4000) < 0.9, random.random(4000) < 0.3).astype(float)
    chance = np.where(verdicts > 0, 0.05, 0.2)
    rows = np.flatnonzero(random.random(4000) < chance)
    people = right.astype(float)[rows]
    labels = Labelled(verdicts[rows], people, rows, 1 / chance[rows])
    run = Verdicts(verdicts, np.arange(4000))
    weighted = prediction_powered(run, labels)
    assert abs(weighted.value - right.mean()) < 0.05 < abs(people.mean() - right.mean())
    assert weighted.interval.low < right.mean() < weighted.interval.high


def test_a_share_counts_as_many_units_as_its_clusters_tell() -> None:
    values, alone = zeros_and_ones(30, 100), np.arange(100)
    assert weighted_share(values, alone, 100).size == pytest.approx(100)
    in_pairs = weighted_share(np.repeat(zeros_and_ones(15, 50), 2), alone // 2, 50)
    assert in_pairs.size == pytest.approx(50)
    error = clustered_error(np.repeat(zeros_and_ones(15, 50), 2), alone // 2)
    assert math.sqrt(in_pairs.variance) == pytest.approx(error or 0.0)
    assert weighted_share(np.ones(100), alone // 10, 10).size == 10, "no spread shows none"


def test_a_difference_holds_0_if_and_only_if_the_judges_own_does() -> None:
    of = labelled((54, 60), (12, 40))
    clusters = np.arange(400)
    for moved in (0, 2, 20, 60):
        a = zeros_and_ones(200, 400)
        b = zeros_and_ones(200 + moved, 400)
        value, ends = rogan_gladen_difference(Verdicts(a, clusters), Verdicts(b, clusters), of)
        slope = 54 / 60 - 12 / 40
        assert value == pytest.approx(moved / 400 / slope)
        assert ends.low <= value <= ends.high
        assert (ends.low <= 0 <= ends.high) == (moved <= 2)


def test_labels_that_do_not_tell_the_slope_tell_no_difference() -> None:
    few = labelled((6, 10), (4, 10))
    clusters = np.arange(400)
    a, b = zeros_and_ones(200, 400), zeros_and_ones(220, 400)
    assert rogan_gladen_difference(Verdicts(a, clusters), Verdicts(b, clusters), few)[1] == (-1, 1)


def test_estimates_of_the_same_units_are_compared_in_pairs() -> None:
    random = np.random.default_rng(5)
    common = random.random(300)
    sides = [np.clip(common + shift, 0, 1) for shift in (0.0, 0.1)]
    rows = np.arange(60)
    a, b = (
        prediction_powered(
            Verdicts(side, np.arange(300)), Labelled(side[rows], side[rows], rows, np.ones(60))
        )
        for side in sides
    )
    value, ends = estimates_difference(a, b)
    assert value == pytest.approx((sides[1] - sides[0]).mean(), abs=5e-3)
    assert ends.high - ends.low < 0.5 * (a.interval.high - a.interval.low)


def test_youden_of_one_class_is_not_known() -> None:
    assert youden(labelled((54, 60), (12, 40))) == pytest.approx(0.6)
    assert math.isnan(youden(labelled((54, 60), (0, 0))))
