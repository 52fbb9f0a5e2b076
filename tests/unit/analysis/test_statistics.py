"""Standard errors, intervals and tests: against scipy, by hand, and in simulation; and speeds, each
of which has one definition."""

import math
from itertools import product

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from memray_eval.analysis.rates import ANSWER_TOKENS_PER_S, per_s
from memray_eval.analysis.statistics import (
    CompareOptions,
    bca_interval,
    benjamini_hochberg,
    bootstrap_means,
    bootstrap_statistics,
    clustered_error,
    cohens_d,
    detectable_difference,
    difference_interval,
    expand_level,
    figures_interval,
    holm,
    jackknife_means,
    mean_interval,
    paired,
    percentile_interval,
    sign_flip_p,
    standard_error,
    t_quantile,
    tango_interval,
    wilson_interval,
)
from memray_eval.ports import FloatArray

VALUES = np.random.default_rng(3).exponential(size=60)
figures = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=9).map(
    np.array
)


def array(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 199, 200, 201, 10_000])
@pytest.mark.parametrize("share", [0.025, 0.5, 0.6, 0.8, 0.975, 0.9995])
def test_students_quantile_is_scipys(share: float, freedom: int) -> None:
    assert t_quantile(share, freedom) == pytest.approx(
        stats.t.ppf(share, freedom), rel=1e-8, abs=1e-9
    )


def test_the_standard_error_and_interval_are_scipys() -> None:
    assert standard_error(VALUES) == pytest.approx(stats.sem(VALUES))
    expected = stats.t.interval(0.95, 59, VALUES.mean(), stats.sem(VALUES))
    assert mean_interval(VALUES) == pytest.approx(expected)
    assert standard_error(array(1.0)) is None


def test_the_clustered_error_by_hand() -> None:
    """Mean 3; residuals -2, -1, 0, 3 sum to -3 and 3 by cluster: sqrt(9 + 9) / 4 * sqrt(2 / 1)."""
    values, clusters = array(1, 2, 3, 6), np.array([5, 5, 9, 9])
    assert clustered_error(values, clusters) == pytest.approx(math.sqrt(18) / 4 * math.sqrt(2))
    assert clustered_error(values, np.zeros(4, dtype=np.intp)) is None
    # Two clusters have one degree of freedom
    assert mean_interval(values, clusters) == pytest.approx(stats.t.interval(0.95, 1, 3, 1.5))
    for copies in (1, 5):
        error = clustered_error(np.repeat(VALUES, copies), np.repeat(np.arange(60), copies))
        assert error == pytest.approx(stats.sem(VALUES))


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 10), (450, 1000), (1, 1)])
def test_wilsons_interval_is_scipys(successes: int, n: int) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_bootstraps_intervals_of_the_same_resamples_are_scipys() -> None:
    """On scipy's own bootstrap distribution, so that nothing but the interval is compared."""
    for method in ("percentile", "BCa"):
        random = np.random.default_rng(1)
        theirs = stats.bootstrap((VALUES,), np.mean, n_resamples=2000, method=method, rng=random)
        drawn, mean = theirs.bootstrap_distribution, float(VALUES.mean())
        ours = percentile_interval(drawn)
        if method == "BCa":
            ours = bca_interval(drawn, mean, jackknife_means(VALUES))
        assert ours == pytest.approx(tuple(theirs.confidence_interval), rel=1e-9)


@pytest.mark.parametrize(
    ("up", "down", "n"), [(1, 7, 21), (0, 9, 90), (14, 5, 100), (3, 3, 10), (0, 0, 30), (30, 0, 30)]
)
def test_tangos_interval_is_the_closed_form_of_yang_sun_and_hardin(
    up: int, down: int, n: int
) -> None:
    """Their quartic (2013): both limits are among its real roots."""
    z2, apart, both = stats.norm.ppf(0.975) ** 2, up - down, up + down
    first = n**2 * (n / z2 + 1) ** 2
    roots = np.roots(
        [
            first,
            -n * apart * (n / z2 + 1) * (4 * n / z2 + 1),
            2 * n * apart**2 * (3 * n / z2 + 2) / z2 - n**2 * (both / z2 + 1),
            n * apart * (2 * both / z2 + 1) - apart**3 * (4 * n / z2 + 1) / z2,
            apart**2 * (apart**2 / z2 - both) / z2,
        ]
    )
    real = roots[np.abs(roots.imag) < 1e-5].real
    interval = tango_interval(up, down, n)
    assert interval.low <= apart / n <= interval.high
    for limit in interval:
        assert np.abs(real - limit).min() < 1e-5


def test_an_interval_of_zeros_and_ones_is_wilsons_and_of_their_differences_tangos() -> None:
    a, b = np.repeat([0.0, 1.0, 0.0], [10, 15, 5]), np.repeat([0.0, 1.0, 1.0], [10, 15, 5])
    assert mean_interval(a) == wilson_interval(15, 30)
    assert difference_interval(a, b) == tango_interval(5, 0, 30)
    assert (paired(a, b).low, paired(a, b).high) == tango_interval(5, 0, 30)
    assert difference_interval(a, b / 2) == mean_interval(b / 2 - a)
    clusters = np.arange(30) // 2
    assert difference_interval(a, b, clusters) == mean_interval(b - a, clusters)
    # No flip in thirty is no proof of no difference
    assert difference_interval(a, a) == tango_interval(0, 0, 30)


@pytest.mark.parametrize(
    "values", [VALUES, VALUES > 1, VALUES > 9, VALUES < 9, VALUES[:2], VALUES / 100], ids=str
)
def test_the_interval_of_figures_is_the_interval_of_their_values(values: FloatArray) -> None:
    values = values.astype(np.float64)
    values /= max(1.0, values.max())
    error = standard_error(values)
    assert figures_interval(float(values.mean()), error, values.size) == pytest.approx(
        mean_interval(values, scale=(0.0, 1.0))
    )


def test_figures_without_a_spread_have_an_interval_at_the_ends_of_their_scale_alone() -> None:
    """All of twenty answers at 1 of 1-5: Wilson's over the scale, not of twenty shares of 1."""
    ends = [1 + 4 * end for end in wilson_interval(0, 20)]
    assert figures_interval(1.0, 0.0, 20, scale=(1.0, 5.0)) == pytest.approx(ends)
    assert figures_interval(3.0, 0.0, 20, scale=(1.0, 5.0)) is None
    assert figures_interval(None, None, 0) is figures_interval(0.5, None, 1) is None
    assert mean_interval(np.full(20, 3.0)) is None
    values = array(0, 100, 100, 100)
    interval = figures_interval(75.0, standard_error(values), 4, scale=(0.0, 100.0))
    assert interval == pytest.approx([100 * end for end in wilson_interval(3, 4)])


def test_a_bootstraps_level_is_widened_for_few_units() -> None:
    """Hesterberg's: the quantile at which n units' percentile interval of normal values is
    Student's."""
    wanted = stats.norm.cdf(-math.sqrt(30 / 29) * stats.t.ppf(0.975, 29))
    assert (1 - expand_level(0.95, 30)) / 2 == pytest.approx(wanted)
    assert expand_level(0.95, 100_000) == pytest.approx(0.95, abs=1e-5)
    assert expand_level(0.95, 1) == 0.95


def test_statistics_of_resamples_are_of_whole_clusters() -> None:
    clusters = np.array([7, 3, 7, 3, 3])
    sizes = bootstrap_statistics({"size": lambda rows: float(rows.size)}, clusters, 200)["size"]
    assert set(sizes) == {4.0, 5.0, 6.0}
    means = bootstrap_statistics(
        {"mean": lambda rows: float(VALUES[rows].mean())}, np.arange(60), 300, seed=4
    )["mean"]
    how = CompareOptions(resamples=300, seed=4)
    assert means == pytest.approx(bootstrap_means(VALUES, settings=how))


def test_resamples_are_seeded_and_spread_as_the_standard_error() -> None:
    means = bootstrap_means(VALUES)
    assert np.array_equal(means, bootstrap_means(VALUES))
    assert not np.array_equal(means, bootstrap_means(VALUES, settings=CompareOptions(seed=1)))
    assert means.std() == pytest.approx(VALUES.std() / math.sqrt(60), rel=0.03)
    by_cluster = bootstrap_means(np.repeat(VALUES, 5), np.repeat(np.arange(60), 5))
    assert by_cluster.std() == pytest.approx(VALUES.std() / math.sqrt(60), rel=0.03)


def test_an_interval_by_bootstrap_is_of_clusters_weighed_by_their_size() -> None:
    how = CompareOptions(bootstrap=True, resamples=500)
    fives, clusters = np.repeat(VALUES, 5), np.repeat(np.arange(60), 5)
    assert mean_interval(fives, clusters, how) == pytest.approx(mean_interval(VALUES, None, how))
    means = bootstrap_means(array(1, 1, 1, 0), np.array([0, 0, 0, 1]))
    assert {round(float(mean), 6) for mean in means} == {0.0, 0.75, 1.0}


@given(figures)
def test_the_exact_sign_flip_is_every_pattern_counted(differences: FloatArray) -> None:
    totals = [
        abs(float(np.dot(signs, differences)))
        for signs in product((-1, 1), repeat=differences.size)
    ]
    expected = sum(total >= abs(differences.sum()) - 1e-9 for total in totals) / len(totals)
    assert sign_flip_p(differences) == pytest.approx(expected)


def test_a_drawn_sign_flip_comes_near_the_exact_one_and_is_never_zero() -> None:
    differences = np.random.default_rng(0).normal(0.5, size=12)
    exact = sign_flip_p(differences)
    drawn = sign_flip_p(differences, settings=CompareOptions(resamples=4000))
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.02)
    how = CompareOptions(resamples=999)
    assert sign_flip_p(np.ones(400), settings=how) == pytest.approx(1 / 1000)
    # Clusters flip together: of three users' 8 patterns the 2 of one sign are as far
    assert sign_flip_p(np.ones(15), np.repeat(np.arange(3), 5)) == pytest.approx(2 / 8)


def test_many_units_are_drawn_in_parts() -> None:
    """2,000 units of which 55 % are one higher, the others one lower: 4.5 standard deviations of a
    fair coin."""
    how = CompareOptions(resamples=2000)
    differences = np.where(np.arange(2000) % 20 < 11, 1.0, -1.0)
    assert sign_flip_p(differences, settings=how) == pytest.approx(1 / 2001)
    assert sign_flip_p(np.where(np.arange(2000) % 2 < 1, 1.0, -1.0), settings=how) == 1.0
    assert bootstrap_means(differences, settings=how).size == 2000


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005, 0.7]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.7])
    assert holm([]) == benjamini_hochberg([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_correction_never_helps_and_holm_is_the_stricter(p_values: list[float]) -> None:
    strict, loose = holm(p_values), benjamini_hochberg(p_values)
    assert loose == pytest.approx(stats.false_discovery_control(p_values))
    for p, mild, hard in zip(p_values, loose, strict, strict=True):
        assert p <= mild + 1e-12 <= hard + 2e-12 <= 1 + 3e-12


def test_the_detectable_difference_is_found_with_its_power() -> None:
    """In simulation: 80 % of the t tests find it."""
    shift = detectable_difference(1 / math.sqrt(40), 39)
    drawn = np.random.default_rng(4).normal(shift, 1.0, size=(5000, 40))
    share = np.mean(stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05)
    assert share == pytest.approx(0.8, abs=0.02)


def test_a_paired_comparison_by_hand() -> None:
    assert cohens_d(array(1, 2, 3)) == pytest.approx(2.0)
    assert cohens_d(array(0.3 - 0.2, 0.2 - 0.1)) is cohens_d(array(1)) is None
    pair = paired(array(0, 1, 0.5, 0.5), array(1, 1, 1.0, 0.25))
    assert (pair.n, pair.mean_a, pair.mean_b, pair.difference) == (4, 0.5, 0.8125, 0.3125)
    assert (pair.wins, pair.ties, pair.losses) == (2, 1, 1)
    theirs = stats.ttest_rel([1, 1, 1.0, 0.25], [0, 1, 0.5, 0.5])
    assert (pair.low, pair.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert pair.difference / pair.stderr == pytest.approx(theirs.statistic)


def test_where_nothing_can_be_said_there_is_no_figure() -> None:
    nothing = paired(array(), array())
    assert (nothing.n, nothing.difference, nothing.p_value) == (0, None, None)
    pair = paired(array(0.2), array(0.4))
    assert (pair.stderr, pair.low, pair.detectable, pair.effect_size) == (None, None, None, None)
    # No spread but float error: no interval of width 0
    same = paired(array(0.1, 0.2, 0.7), array(0.2, 0.3, 0.8))
    expected = (0.0, None, None, None, 3)
    assert (same.stderr, same.low, same.detectable, same.effect_size, same.wins) == expected
    equal = paired(VALUES, VALUES)
    assert (equal.difference, equal.p_value, equal.ties, equal.detectable) == (0.0, 1.0, 60, None)
    clustered = paired(VALUES, VALUES + np.arange(60.0), np.zeros(60, dtype=np.intp))
    assert (clustered.n_clusters, clustered.stderr, clustered.low) == (1, None, None)


@pytest.mark.parametrize("is_skewed", [False, True])
def test_bootstrap_intervals_cover_95_percent_of_as_few_as_30_units(is_skewed: bool) -> None:
    random = np.random.default_rng(15)
    drawn = random.beta(4.0, 1.5, (1000, 30)) if is_skewed else random.normal(size=(1000, 30))
    truth, n_covered = 4.0 / 5.5 if is_skewed else 0.0, 0
    for seed, values in enumerate(drawn):
        how = CompareOptions(bootstrap=True, resamples=400, seed=seed)
        low, high = mean_interval(values, None, how) or (truth, truth)
        n_covered += low < truth < high
    assert 930 <= n_covered <= 970


@pytest.mark.parametrize(
    ("amount", "seconds", "rate"),
    [(30, 10.0, 3.0), (0, 10.0, 0.0), (3, None, None), (3, 0.0, None), (3, -1.0, None),
     (None, 5.0, None)],
)  # fmt: skip
def test_a_rate_is_an_amount_over_its_seconds_if_both_were_measured(
    amount: int | None, seconds: float | None, rate: float | None
) -> None:
    assert per_s(amount, seconds) == rate


def test_the_speed_of_many_answers_weighs_them_by_their_time() -> None:
    def speed_of(rows: str) -> float:
        query = f"SELECT {ANSWER_TOKENS_PER_S} AS speed FROM (VALUES {rows}) AS rows(tokens, duration_s, is_timed)"  # noqa: E501
        with duckdb.connect() as database:
            (row,) = database.sql(query).to_arrow_table().to_pylist()
        return float(row["speed"])

    assert speed_of("(100, 4.0, true), (10, 1.0, true), (7, 9.0, false)") == 110 / 5
    assert speed_of("(100, 4.0, true)") == per_s(100, 4.0)
