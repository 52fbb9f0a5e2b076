"""The mean that people would give to all answers of a run, from the judge's scores of all of them
and people's labels of some.

Prediction-powered inference, PPI++ (Angelopoulos, Duchi and Zrnic, arXiv 2311.01453):

    people's mean of the labelled + lambda (judge's mean of all - judge's mean of the labelled)

with the lambda, 0 to 1, of the least variance. Means of labelled answers weigh each by 1 / the
chance with which it was drawn (Hajek). Variances are of the clusters' influences; the interval is
Student's with two degrees of freedom fewer than the labelled clusters, and residuals are set
against how far their cluster pulls the fit (HC3: MacKinnon and White 1985), for few labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from memray_eval.analysis.statistics import Clusters, t_quantile
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

MIN_LABELS, MIN_CLUSTERS = 10, 4  # fewer tell nothing of a judge


class AdjustedMean(Frozen):
    """The mean of a candidate's answers as the judge has it (`raw`) and as people would (`value`,
    with its 95 % interval), on the metric's scale; None for the reason `refused`. `tuning` is
    lambda."""

    candidate: str
    n: int
    n_labels: int
    raw: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    tuning: float | None = None
    refused: str = ""


class _Mean(NamedTuple):
    value: float
    influence: FloatArray  # by cluster


def adjusted_mean(
    candidate: str,
    judge: FloatArray,
    people: FloatArray,
    weights: FloatArray,
    clusters: Clusters,
    scale: tuple[float, float],
) -> AdjustedMean:
    """Adjusts the mean of a candidate's scored answers, a row each: `people` is NaN if nobody
    labelled one, `weights` count for those that somebody did."""
    is_labelled = ~np.isnan(people)
    n_labels, n_clusters = int(is_labelled.sum()), np.unique(clusters[is_labelled]).size
    plain = AdjustedMean(
        candidate=candidate, n=judge.size, n_labels=n_labels, raw=float(judge.mean())
    )
    if n_labels < MIN_LABELS or n_clusters < MIN_CLUSTERS:
        few = f"{n_labels} labels of {n_clusters} clusters; {MIN_LABELS} of {MIN_CLUSTERS} are"
        return plain.model_copy(update={"refused": f"{few} the fewest"})
    if np.ptp(people[is_labelled]) == 0:
        return plain.model_copy(update={"refused": f"all {n_labels} labels are the same"})
    size, labelled = 1 + int(clusters.max()), clusters[is_labelled]
    drawn = weights[is_labelled]
    judged = _mean(judge, np.ones(judge.size), clusters, size)
    of_people = _mean(people[is_labelled], drawn, labelled, size)
    of_judge = _mean(judge[is_labelled], drawn, labelled, size)
    gained = judged.influence - of_judge.influence
    spread = float(gained @ gained)
    tuning = -float(of_people.influence @ gained) / spread if spread > 0 else 0.0
    tuning = min(max(tuning, 0.0), 1.0)
    pull = np.bincount(labelled, drawn, minlength=size) / drawn.sum()
    if tuning > 0 and of_judge.influence.any():
        pull = pull + of_judge.influence**2 / float(of_judge.influence @ of_judge.influence)
    residual = (of_people.influence - tuning * of_judge.influence) / (1 - np.minimum(pull, 0.5))
    influence = residual + tuning * judged.influence
    half = t_quantile(0.975, n_clusters - 2) * math.sqrt(float(influence @ influence))
    value = of_people.value + tuning * (judged.value - of_judge.value)
    value, low, high = (
        min(max(end, scale[0]), scale[1]) for end in (value, value - half, value + half)
    )
    return plain.model_copy(update={"value": value, "low": low, "high": high, "tuning": tuning})


def _mean(values: FloatArray, weights: FloatArray, clusters: Clusters, size: int) -> _Mean:
    """The weighted mean, and each cluster's influence on it."""
    value, groups = float(np.average(values, weights=weights)), np.unique(clusters).size
    sums = np.bincount(clusters, weights * (values - value), minlength=size)
    return _Mean(value, sums * math.sqrt(groups / max(1, groups - 1)) / weights.sum())
