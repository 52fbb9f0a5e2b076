"""Estimates what people would say of all answers, from a judge's verdicts on all and people's
labels of some, with intervals that count the noise of both.

Values are shares of a metric's scale (0-1). Clusters are numbered over the run and the labels
together. An estimate's influence has one entry a cluster; their squares sum to its variance
(linearised, cluster-robust, CR1), so estimates over the same clusters can be subtracted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.statistics import SETTINGS, Clusters, Interval, t_quantile
from memray_eval.ports import FloatArray

MIN_YOUDEN = 0.1  # below it a judge hardly tells right from wrong, and what divides by it explodes
_SHARE = (1 + SETTINGS.level) / 2  # below the upper end of an interval


class Verdicts(NamedTuple):
    """A judge's values of a run's units, and the cluster of each."""

    judge: FloatArray
    clusters: Clusters


class Labelled(NamedTuple):
    """Labelled units: what the judge and what people said, the cluster of each, and its weight (1 /
    the chance with which it was drawn to be labelled, up to a factor)."""

    judge: FloatArray
    people: FloatArray
    clusters: Clusters
    weights: FloatArray

    def only(self, rows: npt.NDArray[np.bool_]) -> Labelled:
        return Labelled(
            self.judge[rows], self.people[rows], self.clusters[rows], self.weights[rows]
        )


class Share(NamedTuple):
    """A weighted mean, its influence by cluster, how many clusters it is of, and Kish's effective
    sample size, at most the units that there are."""

    value: float
    influence: FloatArray
    clusters: int
    size: float

    @property
    def variance(self) -> float:
        return float(self.influence @ self.influence)


@dataclass(frozen=True)
class AdjustedMean:
    """An adjusted mean with its interval, cut at the ends of the scale: the parts of run and labels
    in its width, and its quantile, `critical`. `tuning` is PPI++'s lambda."""

    value: float
    interval: Interval
    influence: FloatArray
    run_variance: float
    label_variance: float
    critical: float
    sensitivity: float | None = None
    specificity: float | None = None
    tuning: float | None = None

    def half_width(self, times: float = 1.0) -> float:
        """About half of the interval's width with `times` as many labels like these."""
        return self.critical * math.sqrt(self.run_variance + self.label_variance / times)


def weighted_share(
    values: FloatArray, clusters: Clusters, n_clusters: int, weights: FloatArray | None = None
) -> Share:
    """The (Hajek) mean of units, which are one or more."""
    weights = np.ones(values.size) if weights is None else weights
    total = float(weights.sum())
    value = float(weights @ values) / total
    influence: FloatArray = np.bincount(
        clusters, weights * (values - value), minlength=n_clusters
    ).astype(np.float64)
    groups = _count_clusters(clusters)
    influence *= (math.sqrt(groups / (groups - 1)) if groups > 1 else 1.0) / total
    variance = float(influence @ influence)
    # Equal values show no spread: in doubt, each cluster tells as much as one unit
    size = value * (1 - value) / variance + 1 if variance > 0 else float(groups)
    return Share(value, influence, groups, min(float(values.size), size))


def _count_clusters(clusters: Clusters) -> int:
    return int(np.count_nonzero(np.bincount(clusters)))


def youden(labels: Labelled) -> float:
    """Sensitivity + specificity - 1 of a judge of zeros and ones, NaN without labels of both
    classes: 1 for one that is always right, 0 for one that tells nothing."""
    is_right = labels.people > 0.5
    if is_right.all() or not is_right.any():
        return math.nan
    of_right, of_wrong = (
        float(side.weights @ side.judge) / float(side.weights.sum())
        for side in (labels.only(is_right), labels.only(~is_right))
    )
    return of_right - of_wrong


def rogan_gladen(run: Verdicts, labels: Labelled) -> AdjustedMean:
    """Estimates the share that people would call right, from a judge of zeros and ones: (p +
    specificity - 1) / (sensitivity + specificity - 1) (Rogan and Gladen 1978). Needs labels of both
    classes and a `youden` that is not about 0.

    The interval holds the shares that the data do not reject (Fieller 1954): those at which p -
    share * sensitivity - (1 - share) * (1 - specificity) is within its error of 0. The error counts
    both samples (Lee et al., arXiv 2511.21140), with the pseudo-counts of Lang and Reiczigel (2014)
    and effective sizes (Korn and Graubard 1998), that of labels by a model of the likeness within
    clusters (Franco, Little, Louis and Slud 2019), plus what the shares have in common within
    clusters. For clustered units the quantile is Student's (Welch and Satterthwaite)."""
    n_clusters = 1 + max(int(run.clusters.max()), int(labels.clusters.max()))
    judged = weighted_share(run.judge, run.clusters, n_clusters)
    right, wrong = _shares_called_right(labels, n_clusters)
    sensitivity, specificity = right.value, 1 - wrong.value
    raw = (judged.value - wrong.value) / (right.value - wrong.value)
    value = min(max(raw, 0.0), 1.0)

    parts = [judged.influence, -value * right.influence, -(1 - value) * wrong.influence]
    together: FloatArray = np.sum(parts, axis=0)
    shared = float(together @ together) - sum(float(part @ part) for part in parts)
    of_right, of_wrong = (_smoothed_variance(share, 1.0) for share in (right, wrong))
    of_labels = value**2 * of_right + (1 - value) ** 2 * of_wrong
    is_clustered = any(
        _count_clusters(side) < side.size for side in (run.clusters, labels.clusters)
    )
    groups = [judged.clusters, right.clusters + wrong.clusters - 1]
    critical = _critical([judged.variance, of_labels], groups, is_clustered)

    slope = right.value - wrong.value
    of_run = _smoothed_variance(judged, critical**2 / 2) + max(0.0, shared)
    # leading * share^2 - 2 * middle * share + last <= 0
    square, apart = critical**2, judged.value - wrong.value
    leading = slope**2 - square * (of_right + of_wrong)
    middle = apart * slope - square * of_wrong
    last = apart**2 - square * (of_run + of_wrong)
    low, high = 0.0, 1.0
    if leading > 0:
        root = math.sqrt(max(0.0, middle**2 - leading * last))
        low, high = (middle - root) / leading, (middle + root) / leading
    return AdjustedMean(
        value=value,
        interval=_within_scale(low, high, value),
        influence=together / slope,
        run_variance=of_run / slope**2,
        label_variance=of_labels / slope**2,
        critical=critical,
        sensitivity=sensitivity,
        specificity=specificity,
    )


def _shares_called_right(labels: Labelled, n_clusters: int) -> tuple[Share, Share]:
    """The shares of right and of wrong answers that the judge calls right: sensitivity, and 1 -
    specificity. How alike units of a cluster are, which their sizes count, is taken from right and
    wrong ones together: of a few clusters each alone tells too little of it."""
    is_right = labels.people > 0.5
    sides = [labels.only(is_right), labels.only(~is_right)]
    correlation = _pooled_correlation(sides)
    right, wrong = (
        weighted_share(side.judge, side.clusters, n_clusters, side.weights)._replace(
            size=_effective_size(side, correlation)
        )
        for side in sides
    )
    return right, wrong


def _pooled_correlation(sides: Sequence[Labelled]) -> float:
    """The correlation, 0-1, of a judge's zeros and ones on two units of one cluster and side: the
    mean product of standardised residuals over all such pairs (Karlin, Cameron and Williams 1981),
    corrected for the means that were taken off. 1, in doubt, where no pair tells."""
    products = pairs = 0.0
    for side in sides:
        if not np.ptp(side.judge):
            continue
        mean = float(side.weights @ side.judge) / float(side.weights.sum())
        spread, n, groups = mean * (1 - mean), side.judge.size, _count_clusters(side.clusters)
        residuals = side.weights * (side.judge - mean)
        together = _sum_of_squares(residuals, side.clusters) * groups / max(1, groups - 1)
        alone = float(residuals @ residuals) * n / max(1, n - 1)
        products += (together - alone) / spread
        pairs += _sum_of_squares(side.weights, side.clusters) - float(side.weights @ side.weights)
    return min(max(products / pairs, 0.0), 1.0) if pairs > 0 else 1.0


def _effective_size(labels: Labelled, correlation: float) -> float:
    """The number of units over the design effects of weights (Kish 1965) and of clusters."""
    weights = labels.weights
    own = float(weights @ weights)
    others = _sum_of_squares(weights, labels.clusters) - own
    return float(weights.sum()) ** 2 / (own + correlation * others)


def _sum_of_squares(values: FloatArray, clusters: Clusters) -> float:
    """The sum over clusters of their squared sums."""
    sums = np.bincount(clusters, values)
    return float(sums @ sums)


def _smoothed_variance(share: Share, added: float) -> float:
    """The variance of a share with so many zeros and ones `added` to it."""
    size = share.size + 2 * added
    smoothed = (share.size * share.value + added) / size
    return smoothed * (1 - smoothed) / size


def prediction_powered(run: Verdicts, labels: Labelled) -> AdjustedMean:
    """Estimates people's mean, from a judge on any scale and labels of answers like the run's:
    people's mean of the labelled + lambda (the judge's mean of the run - its mean of the labelled).
    Needs labels that differ, of three clusters or more.

    PPI++ (Angelopoulos, Duchi and Zrnic, arXiv 2311.01453), clustered and weighted: lambda, 0-1,
    has the smallest variance by the clusters' influences. The interval is Student's, with two
    degrees of freedom fewer than the labels' clusters, and residuals are set against how far their
    cluster pulls the fit: the paper's normal one falls short for few labels."""
    n_clusters = 1 + max(int(run.clusters.max()), int(labels.clusters.max()))
    judged = weighted_share(run.judge, run.clusters, n_clusters)
    of_people, of_judge = (
        weighted_share(values, labels.clusters, n_clusters, labels.weights)
        for values in (labels.people, labels.judge)
    )
    gained = judged.influence - of_judge.influence
    spread = float(gained @ gained)
    tuning = -float(of_people.influence @ gained) / spread if spread > 0 else 0.0
    tuning = min(max(tuning, 0.0), 1.0)
    value = of_people.value + tuning * (judged.value - of_judge.value)
    # Of few clusters each pulls the mean and lambda its way (HC3: MacKinnon and White 1985)
    pull = np.bincount(labels.clusters, labels.weights, minlength=n_clusters) / labels.weights.sum()
    if tuning > 0:
        pull = pull + of_judge.influence**2 / float(of_judge.influence @ of_judge.influence)
    by_labels = of_people.influence - tuning * of_judge.influence
    by_labels = by_labels / (1 - np.minimum(pull, 0.5))
    influence = by_labels + tuning * judged.influence
    label_variance, run_variance = float(by_labels @ by_labels), tuning**2 * judged.variance
    groups = [judged.clusters, of_judge.clusters - 1]
    critical = _critical([run_variance, label_variance], groups)
    # Units that are labelled and in the run have a part in both
    variance = float(influence @ influence)
    half = critical * math.sqrt(variance)
    value = min(max(value, 0.0), 1.0)
    return AdjustedMean(
        value=value,
        interval=_within_scale(value - half, value + half, value),
        influence=influence,
        run_variance=max(0.0, variance - label_variance),
        label_variance=min(variance, label_variance),
        critical=critical,
        tuning=tuning,
    )


def rogan_gladen_difference(a: Verdicts, b: Verdicts, labels: Labelled) -> tuple[float, Interval]:
    """Estimates the difference b - a of two shares of the same units as people would call them,
    from one judge that errs on both sides alike: (p_b - p_a) / (sensitivity + specificity - 1). The
    interval (Fieller 1954) contains 0 if and only if that of the judge's own difference does, and
    is -1 to 1 if the labels do not tell the judge's slope from 0."""
    n_clusters = 1 + max(int(a.clusters.max()), int(labels.clusters.max()))
    moved = weighted_share(b.judge - a.judge, a.clusters, n_clusters)
    right, wrong = _shares_called_right(labels, n_clusters)
    slope = right.value - wrong.value
    of_slope = right.influence - wrong.influence
    least = sum(_smoothed_variance(share, 1.0) for share in (right, wrong))
    slope_variance = max(float(of_slope @ of_slope), least)
    groups = [moved.clusters, min(right.clusters, wrong.clusters)]
    critical = _critical([moved.variance, slope_variance], groups)
    square, value = critical**2, moved.value / slope
    leading = slope**2 - square * slope_variance
    if leading <= 0:
        return min(max(value, -1.0), 1.0), Interval(-1.0, 1.0)
    root = math.sqrt(
        max(0.0, (moved.value * slope) ** 2 - leading * (moved.value**2 - square * moved.variance))
    )
    low, high = sorted((moved.value * slope + sign * root) / leading for sign in (-1, 1))
    value = min(max(value, -1.0), 1.0)
    return value, Interval(min(max(low, -1.0), value), max(min(high, 1.0), value))


def estimates_difference(a: AdjustedMean, b: AdjustedMean) -> tuple[float, Interval]:
    """The difference b - a of two estimates over the same clusters, each with labels of its own."""
    n_clusters = max(a.influence.size, b.influence.size)
    apart = np.zeros(n_clusters)
    apart[: b.influence.size] += b.influence
    apart[: a.influence.size] -= a.influence
    groups = int(np.count_nonzero(apart))
    critical = max(a.critical, b.critical) if groups > 1 else t_quantile(_SHARE, 1)
    half, value = critical * math.sqrt(float(apart @ apart)), b.value - a.value
    return value, Interval(max(-1.0, value - half), min(1.0, value + half))


def _critical(variances: list[float], clusters: list[int], is_clustered: bool = True) -> float:
    """The normal quantile or, of clusters, Student's with the degrees of freedom of a sum of
    variances (Welch and Satterthwaite)."""
    total = sum(variances)
    if not is_clustered or total <= 0:
        return NormalDist().inv_cdf(_SHARE)
    shares = (
        (variance / total) ** 2 / max(1, groups - 1)
        for variance, groups in zip(variances, clusters, strict=True)
    )
    return t_quantile(_SHARE, max(1, round(1 / sum(shares))))


def _within_scale(low: float, high: float, value: float) -> Interval:
    return Interval(max(0.0, min(low, value)), min(1.0, max(high, value)))
