"""What a difference between scores is worth: standard errors, intervals, tests, and the smallest
difference that would show.

Every function takes figures as one-dimensional arrays, a figure a unit, none of them NaN.
`clusters` gives each unit's cluster as an integer: units of one user, context or document are not
independent, and are drawn, flipped and summed together. Figures are None where the data say
nothing: one unit has no standard error, and equal values have no interval. Tested against scipy's
figures; statsmodels' formulas by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from memray_eval.ports import FloatArray
from memray_eval.report.student import t_quantile
from memray_eval.types import Frozen

Clusters = npt.NDArray[np.intp]
Rows = npt.NDArray[np.intp]
FEW_CLUSTERS = 10  # with fewer, clustered standard errors come out too small
TIE = 1e-9  # two scores that lie closer are equal: what is below is float error
_EXACT = 1e-12  # of the sum of all magnitudes: float error of a sum in another order
_CELLS_AT_ONCE = 1 << 21  # draws in memory at once: 16 MB of doubles
_MOST_UNITS = 1 << 40  # more is no number to ask for
_NORMAL = NormalDist()

OpenShare = Annotated[float, Field(gt=0.0, lt=1.0)]


class Settings(Frozen):
    """How a comparison is worked out. `resamples` are permutations, and of the bootstrap;
    `bootstrap` takes its intervals instead of Student's, Wilson's and Tango's. The same `seed`
    gives the same figures."""

    level: OpenShare = 0.95
    power: OpenShare = 0.8
    resamples: Annotated[int, Field(ge=100)] = 10_000
    seed: Annotated[int, Field(ge=0)] = 0
    bootstrap: bool = False


class Interval(NamedTuple):
    low: float
    high: float


class Counts(NamedTuple):
    """Units on which B is higher, equal (within TIE), lower."""

    wins: int
    ties: int
    losses: int


class Paired(Frozen):
    """B against A on the same `n` units; `difference` = mean of B - A, in the metric's own scale.

    `stderr` is clustered (CR1) where clusters were given, and the interval and `detectable` have
    `n_clusters` - 1 degrees of freedom then. `low` and `high` are as `difference_interval` has
    them. `p_value` is of the sign-flip test, two-sided. `effect_size` is Cohen's d of the
    differences. `detectable` is the smallest true difference that a test at 1 - level would find
    with the power asked for."""

    n: int
    n_clusters: int | None = None
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    effect_size: float | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0
    detectable: float | None = None


def paired(
    a: FloatArray, b: FloatArray, clusters: Clusters | None = None, settings: Settings | None = None
) -> Paired:
    """The paired comparison of two columns of scores, unit by unit."""
    how = settings or Settings()
    n = a.size
    if not n:
        return Paired(n=0)
    differences = b - a
    error = _mean_error(differences, clusters)
    groups = n if clusters is None else int(np.unique(clusters).size)
    interval = difference_interval(a, b, clusters, how)
    wins, ties, losses = win_tie_loss(differences)
    return Paired(
        n=n,
        n_clusters=None if clusters is None else groups,
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=float(differences.mean()),
        stderr=error,
        low=interval and interval.low,
        high=interval and interval.high,
        p_value=sign_flip_p(differences, clusters, how),
        effect_size=cohens_d(differences),
        wins=wins,
        ties=ties,
        losses=losses,
        detectable=detectable_difference(error, groups - 1, how) if error else None,
    )


def standard_error(values: FloatArray) -> float | None:
    """Of the mean: sample std / sqrt(n). None for fewer than two values."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None


def clustered_error(
    values: FloatArray, clusters: Clusters, *, correct: bool = True
) -> float | None:
    """Of the mean, robust to any dependence within clusters. None for fewer than two clusters.

    CR0 = sqrt(sum over clusters of (sum of residuals)^2) / n; CR1, the default, times sqrt(G / (G -
    1)) for G clusters. These are statsmodels' OLS on a constant with cov_type="cluster",
    use_correction False and True."""
    residuals, _ = _sum_by_cluster(values - values.mean(), clusters)
    groups = residuals.size
    if groups < 2:
        return None
    error = math.sqrt(float(residuals @ residuals)) / values.size
    return error * math.sqrt(groups / (groups - 1)) if correct else error


def mean_interval(
    values: FloatArray, clusters: Clusters | None = None, settings: Settings | None = None
) -> Interval | None:
    """The mean's confidence interval: Wilson's for independent zeros and ones, of which Student's
    would miss the truth far too often near 0 and 1; else Student's; or the bootstrap's (BCa,
    expanded) where `settings` say so. None without a standard error above 0, but for Wilson's."""
    how = settings or Settings()
    if values.size and clusters is None and not how.bootstrap and is_binary(values):
        return wilson_interval(int(values.sum()), values.size, how.level)
    return _general_interval(values, clusters, how)


def difference_interval(
    a: FloatArray, b: FloatArray, clusters: Clusters | None = None, settings: Settings | None = None
) -> Interval | None:
    """Of the mean of B - A, unit by unit: Tango's for independent zeros and ones, else as a
    mean's."""
    how = settings or Settings()
    if a.size and clusters is None and not how.bootstrap and is_binary(a) and is_binary(b):
        return tango_interval(
            int(np.count_nonzero(b > a)), int(np.count_nonzero(b < a)), a.size, how.level
        )
    return _general_interval(b - a, clusters, how)


def is_binary(values: FloatArray) -> bool:
    """Whether all of them are 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def _general_interval(
    values: FloatArray, clusters: Clusters | None, how: Settings
) -> Interval | None:
    """Of a mean, by Student or the bootstrap."""
    error = _mean_error(values, clusters)
    if not error:
        return None
    groups = values.size if clusters is None else int(np.unique(clusters).size)
    if how.bootstrap:
        drawn, without = bootstrap_means(values, clusters, how), jackknife_means(values, clusters)
        return bca_interval(drawn, float(values.mean()), without, expand_level(how.level, groups))
    return t_interval(float(values.mean()), error, groups - 1, how.level)


def figures_interval(
    mean: float | None,
    stderr: float | None,
    n: int,
    level: float = 0.95,
    scale: tuple[float, float] = (0.0, 1.0),
) -> Interval | None:
    """`mean_interval` of n independent values of which only the figures are left, all of them
    within `scale`. They all lie at its ends if, and only if, their variance is (mean - low) (high -
    mean): then it is Wilson's, laid over the scale."""
    if mean is None or stderr is None or n < 2:
        return None
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    share, error = (mean - low) / width, stderr / width
    if abs(error**2 * (n - 1) - share * (1 - share)) <= TIE:
        return Interval(*(low + width * end for end in wilson_interval(round(share * n), n, level)))
    return t_interval(mean, stderr, n - 1, level) if error > TIE else None


def t_interval(mean: float, stderr: float, freedom: int, level: float = 0.95) -> Interval:
    half = t_quantile((1 + level) / 2, freedom) * stderr
    return Interval(mean - half, mean + half)


def wilson_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """A share's interval (Wilson 1927, no continuity correction): within 0-1, and not empty where
    all or none succeed. n is 1 or more."""
    z = _NORMAL.inv_cdf((1 + level) / 2)
    share, spread = successes / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def tango_interval(up: int, down: int, n: int, level: float = 0.95) -> Interval:
    """Of the difference of two shares of the same n units, of which `up` went from 0 to 1 and
    `down` from 1 to 0: all differences that the score test would not reject (Tango 1998). Not empty
    where no unit went either way."""
    z = _NORMAL.inv_cdf((1 + level) / 2)
    seen = (up - down) / n

    def is_apart(difference: float) -> bool:
        linear = (2 * n - up + down) * difference - up - down
        root = math.sqrt(max(0.0, linear * linear + 8 * n * down * difference * (1 - difference)))
        share = (root - linear) / (
            4 * n
        )  # of units that go down: the likeliest, were this the difference
        variance = max(0.0, n * (2 * share + difference * (1 - difference)))
        return abs(up - down - n * difference) > z * math.sqrt(variance)

    return Interval(_bisect_edge(is_apart, -1.0, seen), _bisect_edge(is_apart, 1.0, seen))


def _bisect_edge(is_apart: Callable[[float], bool], out: float, within: float) -> float:
    """Where between a value that may be apart and one that is not the first begins."""
    if not is_apart(out):
        return out
    for _ in range(60):
        middle = (out + within) / 2
        out, within = (middle, within) if is_apart(middle) else (out, middle)
    return within


def bootstrap_means(
    values: FloatArray, clusters: Clusters | None = None, settings: Settings | None = None
) -> FloatArray:
    """The mean of each resample with replacement, of whole clusters where these are given."""
    how = settings or Settings()
    sums, sizes = _sum_by_cluster(values, clusters)
    n_units = (
        sizes[0] * sums.size if not np.ptp(sizes) else None
    )  # clusters of one size: nothing to gather
    draws = resample_clusters(sums.size, how.resamples, how.seed)
    means = [
        sums[drawn].sum(axis=1) / (sizes[drawn].sum(axis=1) if n_units is None else n_units)
        for drawn in draws
    ]
    return np.concatenate(means)


def bootstrap_statistics(
    statistics: Mapping[str, Callable[[Rows], float]],
    clusters: Clusters,
    resamples: int,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Each statistic of each resample of whole clusters. A statistic is given the rows of the
    resample, as indices."""
    _, codes, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    by_cluster = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    found: dict[str, list[float]] = {name: [] for name in statistics}
    for drawn in resample_clusters(sizes.size, resamples, seed):
        for clusters_drawn in drawn:
            rows = np.concatenate([by_cluster[cluster] for cluster in clusters_drawn])
            for name, statistic in statistics.items():
                found[name].append(statistic(rows))
    return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


def resample_clusters(n_clusters: int, resamples: int, seed: int) -> Iterator[Rows]:
    """Resamples with replacement of clusters 0 to n_clusters - 1, in parts: arrays with a row a
    resample."""
    random = np.random.default_rng(seed)
    for rows in _chunk_sizes(resamples, n_clusters):
        yield random.integers(0, n_clusters, size=(rows, n_clusters))


def percentile_interval(replicates: FloatArray, level: float = 0.95) -> Interval:
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def expand_level(level: float, n: int) -> float:
    """The level at which a bootstrap interval of n units (or clusters) covers what it is to cover:
    resamples spread by sqrt((n - 1) / n) too little, and by the normal instead of Student's
    quantiles (Hesterberg 2015)."""
    if n < 2:
        return level
    return 2 * _NORMAL.cdf(math.sqrt(n / (n - 1)) * t_quantile((1 + level) / 2, n - 1)) - 1


def bca_interval(
    replicates: FloatArray, estimate: float, jackknife: FloatArray, level: float = 0.95
) -> Interval:
    """The percentile interval, corrected for bias and skewness (Efron 1987, as
    scipy.stats.bootstrap has it). `jackknife` holds the estimate without each unit (or cluster) in
    turn."""
    below = (np.mean(replicates < estimate) + np.mean(replicates <= estimate)) / 2
    if not 0.0 < below < 1.0:
        return percentile_interval(replicates, level)
    bias = _NORMAL.inv_cdf(float(below))
    apart = jackknife.mean() - jackknife
    spread = float(np.sum(apart**2))
    skew = float(np.sum(apart**3)) / (6 * spread**1.5) if spread else 0.0

    def correct_for_multiple_tests(share: float) -> float:
        z = bias + _NORMAL.inv_cdf(share)
        return _NORMAL.cdf(bias + z / (1 - skew * z))

    low, high = np.quantile(
        replicates,
        [correct_for_multiple_tests((1 - level) / 2), correct_for_multiple_tests((1 + level) / 2)],
    )
    return Interval(float(low), float(high))


def jackknife_means(values: FloatArray, clusters: Clusters | None = None) -> FloatArray:
    """The mean without each unit, or without each cluster; at least two of them."""
    sums, sizes = _sum_by_cluster(values, clusters)
    means: FloatArray = (sums.sum() - sums) / (sizes.sum() - sizes)
    return means


def sign_flip_p(
    differences: FloatArray, clusters: Clusters | None = None, settings: Settings | None = None
) -> float:
    """Two-sided p-value of a mean difference of zero: if A and B are exchangeable, each difference
    (or cluster's sum of them) could as well have had the other sign. Exact, over all patterns,
    where there are no more than `resamples`; else drawn, with the observed one counted in, so that
    it is never 0."""
    how = settings or Settings()
    sums, _ = _sum_by_cluster(differences, clusters)
    sums = sums[np.abs(sums) > TIE]
    total, at_least = float(sums.sum()), abs(float(sums.sum())) - _EXACT * float(np.abs(sums).sum())
    if sums.size < how.resamples.bit_length():  # 2^units <= resamples
        patterns = (np.arange(2**sums.size)[:, None] >> np.arange(sums.size)) & 1
        return float(np.mean(np.abs(2.0 * (patterns @ sums) - total) >= at_least))
    random = np.random.default_rng(how.seed)
    as_far = 0
    for rows in _chunk_sizes(how.resamples, sums.size):
        eights = random.integers(0, 256, size=(rows, -(-sums.size // 8)), dtype=np.uint8)
        flips = np.unpackbits(eights, axis=1, count=sums.size).astype(np.float64)
        as_far += int(np.count_nonzero(np.abs(2.0 * (flips @ sums) - total) >= at_least))
    return (1 + as_far) / (1 + how.resamples)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected so that the chance of any false finding stays below the level (Holm 1979). In the
    order given."""
    n = len(p_values)
    return _step_correct(
        p_values, np.argsort(p_values, kind="stable"), lambda rank: n - rank, np.maximum.accumulate
    )


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Corrected so that the share of false ones among the findings stays below the level (1995). In
    the order given."""
    n = len(p_values)
    falling = np.argsort(p_values, kind="stable")[::-1]
    return _step_correct(p_values, falling, lambda rank: n / (n - rank), np.minimum.accumulate)


def _step_correct(
    p_values: Sequence[float],
    order: npt.NDArray[np.intp],
    factor: Callable[[int], float],
    accumulate: Callable[[FloatArray], FloatArray],
) -> list[float]:
    correct_for_multiple_tests = np.empty(len(p_values))
    factors = np.array([factor(rank) for rank in range(len(p_values))], dtype=np.float64)
    if correct_for_multiple_tests.size:
        correct_for_multiple_tests[order] = np.minimum(
            1.0, accumulate(np.asarray(p_values, dtype=np.float64)[order] * factors)
        )
    return [float(p) for p in correct_for_multiple_tests]


def cohens_d(differences: FloatArray) -> float | None:
    """Mean / sample std of paired differences (d_z). None where they do not spread."""
    spread = float(differences.std(ddof=1)) if differences.size > 1 else 0.0
    return float(differences.mean()) / spread if spread > TIE else None


def win_tie_loss(differences: FloatArray) -> Counts:
    wins, losses = (
        int(np.count_nonzero(differences > TIE)),
        int(np.count_nonzero(differences < -TIE)),
    )
    return Counts(wins, differences.size - wins - losses, losses)


def detectable_difference(stderr: float, freedom: int, settings: Settings | None = None) -> float:
    """The true difference that a two-sided test at 1 - level finds with the given power: (t(1 -
    alpha/2) + t(power)) x stderr (Bloom 1995). In the scale of `stderr`."""
    how = settings or Settings()
    return (t_quantile((1 + how.level) / 2, freedom) + t_quantile(how.power, freedom)) * stderr


def units_to_show(
    difference: float, stderr: float, units: int, settings: Settings | None = None
) -> int | None:
    """About how many units (or clusters) a test at 1 - level needs to find this difference with the
    given power, where `units` of them give it this standard error: the fewest of which
    `detectable_difference` is no more. None for no difference."""
    how = settings or Settings()
    if abs(difference) <= TIE or units < 2:
        return None
    if stderr <= TIE:  # all differ by as much: the sign-flip test alone can tell, at 2 x 2^-n
        return max(units, math.ceil(1 - math.log2(1 - how.level)))

    def is_enough(n: int) -> bool:
        return detectable_difference(stderr * math.sqrt(units / n), n - 1, how) <= abs(difference)

    few, many = 1, 2
    while not is_enough(many):
        few, many = many, 2 * many
        if many > _MOST_UNITS:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_enough(middle) else (middle, many)
    return many


def _sum_by_cluster(values: FloatArray, clusters: Clusters | None) -> tuple[FloatArray, FloatArray]:
    """The sum and size of each cluster; without clusters every unit is one."""
    if clusters is None:
        return values, np.ones(values.size)
    _, codes = np.unique(clusters, return_inverse=True)
    sums: FloatArray = np.bincount(codes, weights=values).astype(np.float64)
    return sums, np.bincount(codes).astype(np.float64)


def _mean_error(values: FloatArray, clusters: Clusters | None) -> float | None:
    """The mean's standard error; 0.0 where the values are equal but for float error, as 0.3 - 0.2
    and 0.2 - 0.1 are."""
    error = standard_error(values) if clusters is None else clustered_error(values, clusters)
    return 0.0 if error is not None and error <= TIE else error


def _chunk_sizes(rows: int, width: int) -> Iterator[int]:
    """`rows` in parts that hold about _CELLS_AT_ONCE cells each."""
    at_once = max(1, _CELLS_AT_ONCE // max(1, width))
    for start in range(0, rows, at_once):
        yield min(at_once, rows - start)
