"""Statistics of differences between scores: standard errors, intervals, tests, and the smallest
detectable difference.

Figures are one-dimensional arrays, one figure per unit, none of them NaN. `clusters` gives each
unit's cluster as an integer: its units are drawn, flipped and summed together. A figure that the
data do not determine is None. Tested against scipy's figures, and statsmodels' formulas by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

Clusters = npt.NDArray[np.intp]
Rows = npt.NDArray[np.intp]
Scale = tuple[float, float]
_EVERYWHERE: Scale = (-math.inf, math.inf)
FEW_CLUSTERS = 10  # with fewer, clustered standard errors come out too small
TIE = 1e-9  # scores that differ by no more are equal: the rest is float error
_EXACT = 1e-12  # float error of a sum in another order, relative to the sum of all magnitudes
_CELLS_AT_ONCE = 1 << 21  # draws in memory at once: 16 MB of doubles
_MOST_UNITS = 1 << 40  # more than anybody can collect
_NORMAL = NormalDist()
_SERIES_UP_TO = 200  # degrees of freedom; above, the expansion is as exact as a double shows

OpenShare = Annotated[float, Field(gt=0.0, lt=1.0)]


class CompareOptions(Frozen):
    """How a comparison is computed. `resamples` counts permutations and bootstrap resamples;
    `bootstrap` replaces Student's, Wilson's and Tango's intervals. `seed` fixes the figures."""

    level: OpenShare = 0.95
    power: OpenShare = 0.8
    resamples: Annotated[int, Field(ge=100)] = 10_000
    seed: Annotated[int, Field(ge=0)] = 0
    bootstrap: bool = False

    def for_all(self, n: int) -> CompareOptions:
        """The same with intervals whose level holds for `n` of them together (Bonferroni)."""
        return self.model_copy(update={"level": 1 - (1 - self.level) / max(1, n)})


SETTINGS = CompareOptions()  # of all figures, unless bootstrap intervals are asked for


class Interval(NamedTuple):
    low: float
    high: float


def to_interval(low: float | None, high: float | None) -> Interval | None:
    """None without both ends."""
    return None if low is None or high is None else Interval(low, high)


class Paired(Frozen):
    """B against A on the same `n` units, in the metric's own scale; `difference` is the mean of B -
    A. With clusters `stderr` is clustered (CR1), with `n_clusters` - 1 degrees of freedom.
    `p_value` is two-sided (sign_flip_p), `effect_size` Cohen's d of the differences, and
    `detectable` the smallest true difference that a test at 1 - level would find with the requested
    power."""

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
    a: FloatArray, b: FloatArray, clusters: Clusters | None = None,
    settings: CompareOptions = SETTINGS, scale: Scale | None = None,
) -> Paired:  # fmt: skip
    """Compares two columns of scores unit by unit."""
    if not a.size:
        return Paired(n=0)
    differences = b - a
    error, groups = mean_error(differences, clusters), count_units(differences, clusters)
    interval = difference_interval(a, b, clusters, settings, scale)
    return Paired(
        n=a.size,
        n_clusters=None if clusters is None else groups,
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=float(differences.mean()),
        stderr=error,
        low=interval and interval.low,
        high=interval and interval.high,
        p_value=sign_flip_p(differences, clusters, settings),
        effect_size=cohens_d(differences),
        detectable=detectable_difference(error, groups - 1, settings) if error else None,
        **count_wins(differences),
    )


def standard_error(values: FloatArray) -> float | None:
    """The standard error of the mean: sample std / sqrt(n). None for fewer than two values."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None


def clustered_error(values: FloatArray, clusters: Clusters) -> float | None:
    """The standard error of the mean, robust to any dependence within clusters; None for fewer than
    two. CR1 = sqrt(sum over clusters of (sum of residuals)^2) / n * sqrt(G / (G - 1)) for G
    clusters, as statsmodels' OLS on a constant with cov_type="cluster"."""
    if values.size < 2:
        return None
    residuals, _ = _sum_by_cluster(values - values.mean(), clusters)
    if (groups := residuals.size) < 2:
        return None
    error = math.sqrt(float(residuals @ residuals)) / values.size
    return error * math.sqrt(groups / (groups - 1))


def error_by_cluster(values: FloatArray, clusters: Clusters) -> tuple[float, int]:
    """The `clustered_error`, 0.0 for one cluster, and the number of clusters."""
    return clustered_error(values, clusters) or 0.0, count_units(values, clusters)


def mean_error(values: FloatArray, clusters: Clusters | None) -> float | None:
    """The mean's standard error; 0.0 if the values differ only by float error."""
    error = standard_error(values) if clusters is None else clustered_error(values, clusters)
    return 0.0 if error is not None and error <= TIE else error


def code_names(names: Sequence[str] | pa.ChunkedArray) -> Clusters:
    """The code of each name: its place among the sorted ones, whatever order they come in."""
    column = names if isinstance(names, pa.ChunkedArray) else pa.chunked_array([names], pa.string())
    coded = column.combine_chunks().dictionary_encode()
    ranks: Clusters = pc.rank(coded.dictionary).to_numpy().astype(np.intp) - 1
    codes: Clusters = ranks[coded.indices.to_numpy()]
    return codes


def count_units(values: FloatArray, clusters: Clusters | None) -> int:
    """How many independent units the values are of: clusters, if these are given."""
    return values.size if clusters is None else int(np.unique(clusters).size)


def mean_interval(
    values: FloatArray, clusters: Clusters | None = None, settings: CompareOptions = SETTINGS,
    scale: Scale | None = None,
) -> Interval | None:  # fmt: skip
    """The mean's confidence interval: Wilson's for independent zeros and ones, because Student's
    misses the truth far too often near 0 and 1; otherwise Student's within `scale`, or the
    bootstrap's (BCa, expanded) if `settings` ask for it. None without a standard error above 0,
    except for Wilson's."""
    if values.size and clusters is None and not settings.bootstrap and is_binary(values):
        return wilson_interval(int(values.sum()), values.size, settings.level)
    return _general_interval(values, clusters, settings, scale)


def difference_interval(
    a: FloatArray, b: FloatArray, clusters: Clusters | None = None,
    settings: CompareOptions = SETTINGS, scale: Scale | None = None,
) -> Interval | None:  # fmt: skip
    """The confidence interval of the mean of B - A: Tango's for independent zeros and ones,
    otherwise as in `mean_interval`, within plus and minus the width of both sides' `scale`, unless
    a mean lies off it."""
    if a.size and clusters is None and not settings.bootstrap and is_binary(a) and is_binary(b):
        up, down = (int(np.count_nonzero(side)) for side in (b > a, b < a))
        return tango_interval(up, down, a.size, settings.level)
    span = None if scale is None else (scale[0] - scale[1], scale[1] - scale[0])
    means = [float(side.mean()) for side in (a, b) if side.size]
    if scale is not None and any(abs(cut_to(mean, scale) - mean) > TIE for mean in means):
        span = None
    return _general_interval(b - a, clusters, settings, span)


def cut_to(mean: float, scale: Scale) -> float:
    """A mean within the scale: values of a metric that `clips_mean` may lie off it."""
    return min(max(mean, scale[0]), scale[1])


def is_binary(values: FloatArray) -> bool:
    """Whether all values are 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def _general_interval(
    values: FloatArray, clusters: Clusters | None, how: CompareOptions, scale: Scale | None
) -> Interval | None:
    error, groups = mean_error(values, clusters), count_units(values, clusters)
    if not error:
        return None
    if how.bootstrap:
        drawn, without = bootstrap_means(values, clusters, how), jackknife_means(values, clusters)
        level = expand_level(how.level, groups)
        low, high = bca_interval(drawn, float(values.mean()), without, level)
        return Interval(*(cut_to(end, scale or _EVERYWHERE) for end in (low, high)))
    return t_interval(float(values.mean()), error, groups - 1, how.level, scale)


def figures_interval(
    mean: float | None,
    stderr: float | None,
    n: int,
    level: float = 0.95,
    scale: Scale = (0.0, 1.0),
    clustered: tuple[float, int] | None = None,
) -> Interval | None:
    """`mean_interval` of n independent values within `scale`, from their mean and standard error
    alone. All values lie at the ends of the scale if and only if their variance is (mean - low)
    (high - mean): then the interval is Wilson's, laid over the scale. `clustered` is the
    `error_by_cluster`; where clusters do not differ they count as so many units."""
    if clustered is not None:
        stderr, n = clustered
    if mean is None or stderr is None or n < 2:
        return None
    if clustered is not None and stderr:
        return t_interval(mean, stderr, n - 1, level, scale)
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    share, error = (mean - low) / width, stderr / width
    if abs(error**2 * (n - 1) - share * (1 - share)) <= TIE:
        return Interval(*(low + width * end for end in wilson_interval(round(share * n), n, level)))
    return t_interval(mean, stderr, n - 1, level, scale) if error > TIE else None


def t_interval(
    mean: float, stderr: float, freedom: int, level: float = 0.95, scale: Scale | None = None
) -> Interval:
    """Student's interval of a mean, of which only the part within `scale` is kept. The mean of
    values within a scale lies there too, so this covers it exactly as often (Mandelkern 2002). A
    mean off the scale is cut to it."""
    half = t_quantile((1 + level) / 2, freedom) * stderr
    low, high = scale or _EVERYWHERE
    mean = cut_to(mean, (low, high))
    return Interval(max(low, mean - half), min(high, mean + half))


def student_p(difference: float, stderr: float, units: int) -> float:
    """The two-sided p-value of a difference by Student's t of `units` (or clusters) - 1. Without
    spread it is the sign-flip test's, which is also the least that so few units can show."""
    least = min(1.0, 2.0 ** (1 - units))
    if stderr <= TIE or units < 2:
        return least if abs(difference) > TIE else 1.0
    angle = math.atan(abs(difference) / stderr / math.sqrt(units - 1))
    return max(least, 1 - _central_share(angle, units - 1))


def paired_p(a: FloatArray, b: FloatArray, clusters: Clusters | None = None) -> float:
    """`student_p` of the mean of B - A."""
    error = mean_error(b - a, clusters) or 0.0
    return student_p(float((b - a).mean()), error, count_units(a, clusters))


def apart_p(
    rows: Rows, of_rows: FloatArray, of_all: FloatArray, clusters: Clusters | None = None
) -> float | None:
    """The p-value of the hypothesis that the mean of a group (`rows`, `of_rows`) is that of all
    units (`of_all`); None if it has all of them. Student's t of the units of the smaller side, by
    the larger standard error (CR1) of two: by the spread in and outside the group, or by that of
    all, so that a group whose few values happen to be equal is not told apart."""
    n, rest = of_all.size, np.setdiff1d(np.arange(of_all.size), rows)
    if not rest.size or not rows.size:
        return None
    codes = np.arange(n) if clusters is None else clusters
    influence = of_all.mean() - of_all
    influence[rows] += n / rows.size * (of_rows - of_rows.mean())
    own = clustered_error(influence, codes) or 0.0
    overall = (clustered_error(of_all, codes) or 0.0) * math.sqrt(rest.size / rows.size)
    units = min(np.unique(codes[side]).size for side in (rows, rest))
    return student_p(float(of_rows.mean() - of_all.mean()), max(own, overall), int(units))


def wilson_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """A share's interval (Wilson 1927, no continuity correction). It lies within 0-1, and is not
    empty if all or none succeed. n is 1 or more."""
    z = _NORMAL.inv_cdf((1 + level) / 2)
    share, spread = successes / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def median_interval(values: FloatArray, level: float = 0.95) -> Interval | None:
    """The median's interval between two order statistics, for values of any distribution (Hahn and
    Meeker 1991, binomial tails by their normal approximation). None if too few values have one."""
    n = values.size
    at = math.floor((n - 1 - _NORMAL.inv_cdf((1 + level) / 2) * math.sqrt(n)) / 2)
    if at < 0 or 2.0 ** (1 - n) > 1 - level:
        return None
    ordered = np.sort(values)
    return Interval(float(ordered[at]), float(ordered[n - 1 - at]))


def tango_interval(up: int, down: int, n: int, level: float = 0.95) -> Interval:
    """The interval of the difference of two shares of the same n units, of which `up` went from 0
    to 1 and `down` from 1 to 0: all that the score test would not reject (Tango 1998)."""
    z = _NORMAL.inv_cdf((1 + level) / 2)
    observed = (up - down) / n

    def is_apart(difference: float) -> bool:
        linear = (2 * n - up + down) * difference - up - down
        root = math.sqrt(max(0.0, linear * linear + 8 * n * down * difference * (1 - difference)))
        # the likeliest share of units that go down, if this were the difference
        share = (root - linear) / (4 * n)
        variance = max(0.0, n * (2 * share + difference * (1 - difference)))
        return abs(up - down - n * difference) > z * math.sqrt(variance)

    return Interval(_bisect_edge(is_apart, -1.0, observed), _bisect_edge(is_apart, 1.0, observed))


def _bisect_edge(is_apart: Callable[[float], bool], out: float, within: float) -> float:
    """Finds by bisection where `is_apart` changes between `out` and `within`, where it is false."""
    if not is_apart(out):
        return out
    for _ in range(60):
        middle = (out + within) / 2
        out, within = (middle, within) if is_apart(middle) else (out, middle)
    return within


def bootstrap_means(
    values: FloatArray, clusters: Clusters | None = None, settings: CompareOptions = SETTINGS
) -> FloatArray:
    """The mean of each resample with replacement, of whole clusters if these are given."""
    sums, sizes = _sum_by_cluster(values, clusters)
    # clusters of equal size give every resample the same number of units
    n_units = None if np.ptp(sizes) else sizes[0] * sums.size
    draws = resample_clusters(sums.size, settings.resamples, settings.seed)
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
    """Computes each statistic, of a resample's row indices, on each resample of whole clusters."""
    _, codes, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    by_cluster = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    replicates: dict[str, list[float]] = {name: [] for name in statistics}
    for drawn in resample_clusters(sizes.size, resamples, seed):
        for clusters_drawn in drawn:
            rows = np.concatenate([by_cluster[cluster] for cluster in clusters_drawn])
            for name, statistic in statistics.items():
                replicates[name].append(statistic(rows))
    return {name: np.array(values, dtype=np.float64) for name, values in replicates.items()}


def resample_clusters(n_clusters: int, resamples: int, seed: int) -> Iterator[Rows]:
    """Yields resamples with replacement of clusters 0 to n_clusters - 1, one a row."""
    random = np.random.default_rng(seed)
    for rows in _chunk_sizes(resamples, n_clusters):
        yield random.integers(0, n_clusters, size=(rows, n_clusters))


def percentile_interval(replicates: FloatArray, level: float = 0.95) -> Interval:
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def expand_level(level: float, n: int) -> float:
    """Expands the level of a bootstrap interval of n units (or clusters) by sqrt((n - 1) / n), and
    Student's quantiles: resamples spread too little (Hesterberg 2015)."""
    if n < 2:
        return level
    return 2 * _NORMAL.cdf(math.sqrt(n / (n - 1)) * t_quantile((1 + level) / 2, n - 1)) - 1


def bca_interval(
    replicates: FloatArray, estimate: float, jackknife: FloatArray, level: float = 0.95
) -> Interval:
    """The percentile interval, corrected for bias and skewness (Efron 1987, as in
    scipy.stats.bootstrap). `jackknife` holds the estimate without each unit (or cluster)."""
    below = (np.mean(replicates < estimate) + np.mean(replicates <= estimate)) / 2
    if not 0.0 < below < 1.0:
        return percentile_interval(replicates, level)
    bias = _NORMAL.inv_cdf(float(below))
    apart = jackknife.mean() - jackknife
    spread = float(np.sum(apart**2))
    skew = float(np.sum(apart**3)) / (6 * spread**1.5) if spread else 0.0

    def adjust(share: float) -> float:
        z = bias + _NORMAL.inv_cdf(share)
        return _NORMAL.cdf(bias + z / (1 - skew * z))

    low, high = np.quantile(replicates, [adjust((1 - level) / 2), adjust((1 + level) / 2)])
    return Interval(float(low), float(high))


def jackknife_means(values: FloatArray, clusters: Clusters | None = None) -> FloatArray:
    """The mean without each unit, or without each cluster, of which there are two or more."""
    sums, sizes = _sum_by_cluster(values, clusters)
    means: FloatArray = (sums.sum() - sums) / (sizes.sum() - sizes)
    return means


def sign_flip_p(
    differences: FloatArray, clusters: Clusters | None = None, settings: CompareOptions = SETTINGS
) -> float:
    """Two-sided p-value of the hypothesis that the mean difference is zero, by flipping the signs
    of differences (or clusters' sums of them). Exact if there are no more than `resamples`
    patterns; else sampled, with the observed one counted in, so that it is never 0."""
    sums, _ = _sum_by_cluster(differences, clusters)
    sums = sums[np.abs(sums) > TIE]
    total, at_least = float(sums.sum()), abs(float(sums.sum())) - _EXACT * float(np.abs(sums).sum())
    if sums.size < settings.resamples.bit_length():  # 2^units <= resamples
        patterns = (np.arange(2**sums.size)[:, None] >> np.arange(sums.size)) & 1
        return float(np.mean(np.abs(2.0 * (patterns @ sums) - total) >= at_least))
    random = np.random.default_rng(settings.seed)
    as_far = 0
    for rows in _chunk_sizes(settings.resamples, sums.size):
        eights = random.integers(0, 256, size=(rows, -(-sums.size // 8)), dtype=np.uint8)
        flips = np.unpackbits(eights, axis=1, count=sums.size).astype(np.float64)
        as_far += int(np.count_nonzero(np.abs(2.0 * (flips @ sums) - total) >= at_least))
    return (1 + as_far) / (1 + settings.resamples)


def false_alarm_rate(
    differences: FloatArray, clusters: Clusters | None = None, settings: CompareOptions = SETTINGS
) -> float | None:
    """How often Student's interval of the mean lies below 0 if chance draws the sign of each
    difference (or cluster's sum), as of two sides that are one. None for fewer than two."""
    sums, sizes = _sum_by_cluster(differences, clusters)
    groups, n_alarms = sums.size, 0
    if groups < 2:
        return None
    random = np.random.default_rng(settings.seed)
    t = t_quantile((1 + settings.level) / 2, groups - 1)
    for rows in _chunk_sizes(settings.resamples, groups):
        drawn = sums * random.choice((-1.0, 1.0), size=(rows, groups))
        means = drawn.sum(axis=1) / differences.size
        residuals = drawn - means[:, None] * sizes
        errors = np.sqrt((residuals**2).sum(axis=1) * groups / (groups - 1)) / differences.size
        n_alarms += int(np.count_nonzero(means + t * errors < -TIE))
    return n_alarms / settings.resamples


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for the chance of any false finding (Holm 1979). Keeps their order."""
    rising = np.argsort(p_values, kind="stable")
    stepped = np.take(p_values, rising) * np.arange(rising.size, 0, -1)
    return _put_back(np.maximum.accumulate(stepped), rising)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values so that the share of false findings stays below the level (Benjamini and
    Hochberg 1995). Keeps their order."""
    falling = np.argsort(p_values, kind="stable")[::-1]
    stepped = np.take(p_values, falling) * (falling.size / np.arange(falling.size, 0, -1))
    return _put_back(np.minimum.accumulate(stepped), falling)


def _put_back(stepped: FloatArray, order: Rows) -> list[float]:
    """Corrected p-values, cut at 1, in the order that they had before they were sorted."""
    corrected = np.empty(order.size)
    corrected[order] = np.minimum(1.0, stepped)
    return [float(p) for p in corrected]


def cohens_d(differences: FloatArray) -> float | None:
    """Mean / sample std of paired differences (d_z). None if they are all equal."""
    spread = float(differences.std(ddof=1)) if differences.size > 1 else 0.0
    return float(differences.mean()) / spread if spread > TIE else None


def count_wins(differences: FloatArray) -> dict[str, int]:
    """The units on which B is higher (`wins`), equal within TIE (`ties`) and lower (`losses`)."""
    wins = int(np.count_nonzero(differences > TIE))
    losses = int(np.count_nonzero(differences < -TIE))
    return {"wins": wins, "ties": differences.size - wins - losses, "losses": losses}


def detectable_difference(
    stderr: float, freedom: int, settings: CompareOptions = SETTINGS
) -> float:
    """The true difference that a two-sided test at 1 - level finds with the given power: (t(1 -
    alpha/2) + t(power)) x stderr (Bloom 1995), in the scale of `stderr`."""
    found_from = t_quantile((1 + settings.level) / 2, freedom)
    return (found_from + t_quantile(settings.power, freedom)) * stderr


def units_to_show(
    difference: float, stderr: float, units: int, settings: CompareOptions = SETTINGS
) -> int | None:
    """About how many units (or clusters) a test at 1 - level needs to find this difference with the
    given power, if `units` of them give this standard error: the fewest whose
    `detectable_difference` is not larger. None for no difference."""
    if abs(difference) <= TIE or units < 2:
        return None
    if stderr <= TIE:  # all differences are equal: only the sign-flip test can tell, at 2 x 2^-n
        return max(units, math.ceil(1 - math.log2(1 - settings.level)))

    def is_enough(n: int) -> bool:
        error = stderr * math.sqrt(units / n)
        return detectable_difference(error, n - 1, settings) <= abs(difference)

    few, many = 1, 2
    while not is_enough(many):
        few, many = many, 2 * many
        if many > _MOST_UNITS:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_enough(middle) else (middle, many)
    return many


def more_to_show(
    difference: float, stderr: float, n: int, units: int, settings: CompareOptions
) -> int | None:
    """About how many more units like these n (`units` independent ones) would show it."""
    needed = units_to_show(difference, stderr, units, settings)
    return None if needed is None else max(1, round(n * (needed / units - 1)))


def _sum_by_cluster(values: FloatArray, clusters: Clusters | None) -> tuple[FloatArray, FloatArray]:
    """The sum and size of each cluster; without clusters each unit is a cluster."""
    if clusters is None:
        return values, np.ones(values.size)
    _, codes = np.unique(clusters, return_inverse=True)
    sums: FloatArray = np.bincount(codes, weights=values).astype(np.float64)
    return sums, np.bincount(codes).astype(np.float64)


def _chunk_sizes(rows: int, width: int) -> Iterator[int]:
    """Splits `rows` into parts of about _CELLS_AT_ONCE cells each."""
    at_once = max(1, _CELLS_AT_ONCE // max(1, width))
    for start in range(0, rows, at_once):
        yield min(at_once, rows - start)


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: int) -> float:
    """Student's quantile, to eight digits of scipy's: the t below which `share` (0-1, ends
    excluded) of the distribution lies, for 1 or more whole degrees of freedom."""
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    if freedom > _SERIES_UP_TO:
        return _t_from_normal(_NORMAL.inv_cdf(share), freedom)
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(60):
        middle = (low + high) / 2
        is_below = _central_share(middle, freedom) < 2 * share - 1
        low, high = (middle, high) if is_below else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _central_share(angle: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) tan(angle)): Abramowitz and Stegun 26.7.3 (odd), 26.7.4 (even)."""
    sine, square = math.sin(angle), math.cos(angle) ** 2
    if freedom % 2 == 0:
        above = np.arange(1, freedom - 2, 2)
        return sine * (1.0 + float(np.cumprod(above / (above + 1) * square).sum()))
    if freedom == 1:
        return 2 * angle / math.pi
    above = np.arange(2, freedom - 2, 2)
    series = 1.0 + float(np.cumprod(above / (above + 1) * square).sum())
    return 2 / math.pi * (angle + sine * math.cos(angle) * series)


def _t_from_normal(z: float, freedom: int) -> float:
    """Student's quantile from the normal one, for large freedom: Abramowitz and Stegun 26.7.5."""
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
