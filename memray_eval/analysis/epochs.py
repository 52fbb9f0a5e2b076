"""Several answers a sample: the share of samples on which any and on which all of them are right,
and the variance of scores, split into that between samples and that between the draws of one.

Of a sample with c of n answers right, pass@k = 1 - C(n-c, k) / C(n, k) (Chen et al. 2021) and
pass^k = C(c, k) / C(n, k) (tau-bench, Yao et al. 2024); their means over samples are unbiased. The
variances are those of one-way random effects by ANOVA: of draws MSW, of samples (MSB - MSW) / n."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.scores import (
    Scores,
    candidates_of,
    count_epochs,
    find_cluster,
    read_all_scores,
)
from memray_eval.analysis.statistics import (
    TIE,
    Clusters,
    Rows,
    expand_level,
    percentile_interval,
    resample_clusters,
    wilson_interval,
)
from memray_eval.metric import Metric
from memray_eval.ports import FloatArray
from memray_eval.types import Bounded, EpochFigures, PassFigures

LEVEL, RESAMPLES = 0.95, 1000
MOST_GROUPS = 5000  # more samples are drawn several at a time: as exact, and as fast
EVERY_K = 5  # of more answers, k doubles from one row to the next


def summarise_epochs(
    records: pads.Dataset, metrics: Sequence[Metric], right_from: Mapping[str, float]
) -> tuple[EpochFigures, ...]:
    """The figures of each metric and candidate, if there are several answers a sample. An answer is
    right from the score that `right_from` names for its metric, or from the scale's upper end if
    all scores are at its ends."""
    if count_epochs(records) == 1:
        return ()
    cluster, names = find_cluster(records), [metric.name for metric in metrics]
    figures = []
    for candidate in candidates_of(records):
        read = read_all_scores(records, [candidate], cluster, metrics=names, by_epoch=True)
        scores = read[candidate]
        samples, groups = _number_samples(scores)
        for metric in metrics if scores.epochs > 1 else ():
            values = scores.values.get(metric.name)
            if values is not None and not np.isnan(values).all():
                bound = right_from.get(metric.name, _upper_end(values, metric.scale))
                figures.append(
                    measure_epochs(values, samples, groups, scores.epochs, bound).model_copy(
                        update={"metric": metric.name, "candidate": candidate}
                    )
                )
    return tuple(figures)


def measure_epochs(
    values: FloatArray,
    samples: Clusters,
    groups: Clusters,
    epochs: int,
    right_from: float | None = None,
) -> EpochFigures:
    """The figures of scores (NaN without one), of which `samples` number the sample of each, and
    `groups` the cluster of each sample. Intervals are the bootstrap's, over groups."""
    is_scored, n_samples = ~np.isnan(values), groups.size
    scored, of = values[is_scored], samples[is_scored]
    middle = float(scored.mean())
    n = np.bincount(of, minlength=n_samples).astype(np.float64)
    sums = np.bincount(of, scored - middle, minlength=n_samples)
    means = np.divide(sums, n, out=np.zeros(n_samples), where=n > 0)
    within = np.bincount(of, (scored - middle - means[of]) ** 2, minlength=n_samples)
    totals = _Totals([n > 0, n, n * means, n * means**2, within, n**2], groups)
    between, draws = _variances(totals.of_all)
    between_drawn, draws_drawn = _variances(totals.of_draws)
    passes: list[PassFigures] = []
    if right_from is not None:
        right = np.bincount(of[scored >= right_from - TIE], minlength=n_samples).astype(np.float64)
        passes = [_passes(n, right, k, groups) for k in _ks(epochs)]
    return EpochFigures(
        epochs=epochs,
        n_samples=int(np.count_nonzero(n > 1)),
        between_samples=_bounded(
            float(np.maximum(0.0, between)), np.maximum(0.0, between_drawn), totals.n
        ),
        between_draws=_bounded(float(draws), draws_drawn, totals.n),
        is_floored=bool(between < 0.0),
        right_from=right_from if passes else None,
        passes=tuple(passes),
    )


class _Totals:
    """Sums over samples of columns (a row a sample): of all, and of RESAMPLES draws of `n` groups
    of samples (a row a draw)."""

    def __init__(self, columns: Sequence[npt.ArrayLike], groups: Clusters) -> None:
        _, codes = np.unique(groups, return_inverse=True)
        codes = codes % MOST_GROUPS
        self.n = int(codes.max()) + 1
        sums = np.stack([np.bincount(codes, np.asarray(column)) for column in columns], axis=1)
        self.of_all: FloatArray = sums.sum(axis=0)
        self.of_draws: FloatArray = np.concatenate(
            [self._times_drawn(rows) @ sums for rows in resample_clusters(self.n, RESAMPLES, 0)]
        )

    def _times_drawn(self, rows: Rows) -> FloatArray:
        """How often each draw (a row) has each group."""
        places = rows + self.n * np.arange(len(rows))[:, None]
        counts = np.bincount(places.ravel(), minlength=rows.size).astype(np.float64)
        return counts.reshape(rows.shape)


def _variances(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The variances between samples and between draws, of sums over samples: their number, sizes,
    sizes times means and times squared means, squares within, squared sizes. NaN if there is one
    sample, or no second answer."""
    a, n, s, ss, within, nn = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = within / (n - a)
        size = (n - nn / n) / (a - 1)
        return ((ss - s**2 / n) / (a - 1) - draws) / size, draws


def _passes(n: FloatArray, right: FloatArray, k: int, groups: Clusters) -> PassFigures:
    """pass@k and pass^k over the samples of which k answers or more have a score."""
    has = n >= k
    if not has.any():
        return PassFigures(k=k, n_samples=0)
    i, size = np.arange(k)[:, None], np.maximum(n, k)
    none = np.prod(np.maximum(size - right - i, 0) / (size - i), axis=0)
    every = np.prod(np.maximum(right - i, 0) / (size - i), axis=0)
    totals = _Totals([has, has * (1.0 - none), has * every], groups)
    with np.errstate(invalid="ignore"):
        shares = [sums.T[1:] / sums.T[0] for sums in (totals.of_all, totals.of_draws)]
    any_right, all_right = (
        _bounded(float(share), drawn, totals.n, is_share=True)
        for share, drawn in zip(*shares, strict=True)
    )
    return PassFigures(
        k=k, n_samples=int(np.count_nonzero(has)), any_right=any_right, all_right=all_right
    )


def _bounded(
    value: float, drawn: FloatArray, n_groups: int, is_share: bool = False
) -> Bounded | None:
    """A figure with its percentile interval; Wilson's for a share of 0 or 1, whose draws are all
    equal. None if there is no figure."""
    if np.isnan(value):
        return None
    drawn = drawn[~np.isnan(drawn)]
    if drawn.size and np.ptp(drawn) > TIE:
        interval = percentile_interval(drawn, expand_level(LEVEL, n_groups))
        return Bounded(value=value, low=interval.low, high=interval.high)
    if is_share and round(value, 9) in (0.0, 1.0):
        low, high = wilson_interval(round(value) * n_groups, n_groups, LEVEL)
        return Bounded(value=value, low=low, high=high)
    return Bounded(value=value)


def _ks(epochs: int) -> Iterator[int]:
    k = 1
    while k < epochs:
        yield k
        k = k + 1 if epochs <= EVERY_K else 2 * k
    yield epochs


def _upper_end(values: FloatArray, scale: tuple[float, float]) -> float | None:
    """The score of what is right, where all are at the ends of a scale from 0; else None."""
    scored = values[~np.isnan(values)]
    return scale[1] if scale[0] == 0.0 and np.isin(scored, scale).all() else None


def _number_samples(scores: Scores) -> tuple[Clusters, Clusters]:
    """The number of each unit's sample, and of each sample's cluster."""
    keys, clusters = scores.units["key"], scores.units["cluster"]
    samples = _number_names(keys)
    groups = _number_names(pc.coalesce(clusters, keys))
    return samples, groups[np.unique(samples, return_index=True)[1]]


def _number_names(names: pa.ChunkedArray) -> Clusters:
    """Numbers names in their order, so that the same scores get the same draws."""
    coded = names.combine_chunks().dictionary_encode()
    ranks: Clusters = pc.rank(coded.dictionary).to_numpy().astype(np.intp) - 1
    numbers: Clusters = ranks[coded.indices.to_numpy()]
    return numbers
