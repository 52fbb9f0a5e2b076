"""Calibrates a judge against people: how far its scores of the same responses agree with theirs,
and how certain that is. Figures are on the people's scale, onto which the judge's is mapped
linearly. Several labels of one response count as their mean. Intervals are 95 % bootstrap intervals
(expanded percentile) over clusters. Undefined figures are None.

The mean that people would give to all answers of a run is estimated from the judge's scores of all
of them and people's labels of some, by prediction-powered inference, PPI++ (Angelopoulos, Duchi and
Zrnic, arXiv 2311.01453):

    people's mean of the labelled + lambda (judge's mean of all - judge's mean of the labelled)

with the lambda, 0 to 1, of the least variance. Means of labelled answers weigh each by 1 / the
chance with which it was drawn (Hajek). Variances are of the clusters' influences; the interval is
Student's with two degrees of freedom fewer than the labelled clusters, and residuals are set
against how far their cluster pulls the fit (HC3: MacKinnon and White 1985), for few labels.

Macro F1 of judges beside that of each person is as HealthBench's meta-evaluation has it
(healthbench_meta_eval.py of openai/simple-evals): over all pairs of a rater's label and another
person's of the same response, the mean of the F1 of yes and of no. Labels above the middle of their
scale are yes. A person is compared with the others, a judge with all of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from memray_eval.analysis.statistics import (
    Clusters,
    Rows,
    bootstrap_statistics,
    cut_to,
    expand_level,
    percentile_interval,
    t_quantile,
)
from memray_eval.errors import ConfigError
from memray_eval.ports import FloatArray
from memray_eval.types import WITHOUT_CALL, Frozen

Scale = tuple[float, float]
Values = TypeVar("Values", float, FloatArray)


def rescale(values: Values, from_scale: Scale, to_scale: Scale) -> Values:
    """Maps values linearly from one scale to another."""
    (low, high), (to_low, to_high) = from_scale, to_scale
    return to_low + (values - low) * ((to_high - to_low) / (high - low))


def to_categories(values: FloatArray, scale: Scale) -> FloatArray:
    """Rounds values to whole steps of a scale from its low end, halves up (five for 1-5)."""
    low, high = scale
    return np.floor((values - low) / min(1.0, high - low) + 0.5)


def share_equal(ratings: FloatArray) -> float:
    """The share of units that two columns rate the same."""
    return mean(ratings[:, 0] == ratings[:, 1])


def weighted_kappa(ratings: FloatArray) -> float:
    """Cohen's kappa of two columns with quadratic weights: 1 - E(x - y)² / its value by chance.
    Computed as Lin's concordance, 2 cov / (var x + var y + (mean x - mean y)²), which equals it for
    whole numbers and is defined for others."""
    x, y = ratings[:, 0], ratings[:, 1]
    if not x.size:
        return np.nan
    by_chance = x.var() + y.var() + (x.mean() - y.mean()) ** 2
    return float(1 - ((x - y) ** 2).mean() / by_chance) if by_chance > 0 else np.nan


def spearman(ratings: FloatArray) -> float:
    """Pearson's correlation of midranks."""
    x, y = midranks(ratings[:, 0]), midranks(ratings[:, 1])
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return np.nan
    return float(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))


def alpha_interval(*ratings: FloatArray) -> float:
    """Krippendorff's alpha with the difference (x - y)², for any number of raters, with gaps
    (Computing Krippendorff's Alpha-Reliability, 2011), its sums over pairs as sums over values; of
    several figures of the same ratings with that of them all."""
    observed = by_chance = 0.0
    for figure in ratings:
        pairable = figure[(~np.isnan(figure)).sum(axis=1) > 1]
        if not pairable.size:
            return np.nan
        pairable = pairable - np.nanmean(pairable)
        n_ratings = (~np.isnan(pairable)).sum(axis=1)
        n, squares = n_ratings.sum(), np.nansum(pairable**2, axis=1)
        sums = np.nansum(pairable, axis=1)
        observed += (2 * (n_ratings * squares - sums**2) / (n_ratings - 1)).sum() / n
        by_chance += 2 * (n * squares.sum() - np.nansum(pairable) ** 2) / (n * (n - 1))
    return float(1 - observed / by_chance) if by_chance > 0 else np.nan


def alpha_ordinal(ratings: FloatArray) -> float:
    """Krippendorff's alpha with the ordinal difference: of midranks among pairable values."""
    ranked = ratings[(~np.isnan(ratings)).sum(axis=1) > 1].copy()
    is_rated = ~np.isnan(ranked)
    ranked[is_rated] = midranks(ranked[is_rated])
    return alpha_interval(ranked)


def alpha_nominal(ratings: FloatArray) -> float:
    """Krippendorff's alpha with the nominal difference: 0 for equal values, else 1."""
    values, is_rated = np.unique(ratings[~np.isnan(ratings)]), ~np.isnan(ratings)
    return alpha_interval(*(np.where(is_rated, ratings == value, np.nan) for value in values))


def midranks(values: FloatArray) -> FloatArray:
    """Ranks values from 1; equal values share the mean of their ranks."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    return ranks


def mean_over_pairs(statistic: Callable[[FloatArray], float], ratings: FloatArray) -> float:
    """Averages a statistic over all pairs of columns, each on the rows that have both."""
    values = []
    for first, other in combinations(range(ratings.shape[1]), 2):
        both = ratings[:, [first, other]]
        values.append(statistic(both[~np.isnan(both).any(axis=1)]))
    return mean(np.array([value for value in values if not np.isnan(value)]))


def mean(values: npt.NDArray[np.floating | np.bool_]) -> float:
    """The mean, NaN for no values."""
    return float(values.mean()) if values.size else np.nan


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
    raw = float(judge.mean())
    plain = AdjustedMean(candidate=candidate, n=judge.size, n_labels=n_labels, raw=raw)
    if n_labels < MIN_LABELS or n_clusters < MIN_CLUSTERS:
        few = f"labels: {n_labels} (at least {MIN_LABELS} are needed), in clusters: {n_clusters}"
        return plain.model_copy(update={"refused": f"{few} (at least {MIN_CLUSTERS})"})
    if np.ptp(people[is_labelled]) == 0:
        return plain.model_copy(update={"refused": f"all {n_labels} labels are the same"})
    size, labelled = 1 + int(clusters.max()), clusters[is_labelled]
    drawn = weights[is_labelled]
    judged, of_judged = _weigh(judge, np.ones(judge.size), clusters, size)
    labels, of_labels = _weigh(people[is_labelled], drawn, labelled, size)
    same, of_same = _weigh(judge[is_labelled], drawn, labelled, size)  # the judge's, of these
    gained = of_judged - of_same
    spread = float(gained @ gained)
    tuning = -float(of_labels @ gained) / spread if spread > 0 else 0.0
    tuning = cut_to(tuning, (0.0, 1.0))
    pull = np.bincount(labelled, drawn, minlength=size) / drawn.sum()
    if tuning > 0 and of_same.any():
        pull = pull + of_same**2 / float(of_same @ of_same)
    residual = (of_labels - tuning * of_same) / (1 - np.minimum(pull, 0.5))
    influence = residual + tuning * of_judged
    half = t_quantile(0.975, n_clusters - 2) * math.sqrt(float(influence @ influence))
    value = labels + tuning * (judged - same)
    ends = {"value": value, "low": value - half, "high": value + half}
    within = {name: cut_to(end, scale) for name, end in ends.items()}
    return plain.model_copy(update=within | {"tuning": tuning})


def _weigh(
    values: FloatArray, weights: FloatArray, clusters: Clusters, size: int
) -> tuple[float, FloatArray]:
    """The weighted mean, and each cluster's influence on it."""
    value, groups = float(np.average(values, weights=weights)), np.unique(clusters).size
    sums = np.bincount(clusters, weights * (values - value), minlength=size)
    return value, sums * math.sqrt(groups / max(1, groups - 1)) / weights.sum()


DRAWS = 1000
LEVEL = 0.95
BINS = 10
DIGITS = 12
MIN_COVERAGE = 0.9  # the least share a judge must score to be suggested
Statistic = Callable[["UnitColumns"], float]  # NaN where it is undefined


class Unit(Frozen):
    """One labelled response: people's labels on their scale (None: missing), the judge's score on
    the metric's scale (None: none, for the reason `unscored`), its confidence, and its score at
    each repeat. `judged_by` names who gave the score; `raters` are the people, if known."""

    id: str
    people: tuple[float | None, ...]
    judge: float | None
    confidence: float | None = None
    repeats: tuple[float, ...] = ()
    cluster: str = ""
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    judged_by: str = ""
    unscored: str = ""
    raters: tuple[str, ...] = ()


class Coefficient(Frozen):
    """A statistic with its 95 % interval, each None if undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Bin(Frozen):
    """A bin of the curve: the judge's mean confidence or score, and people's answer to it."""

    low: float
    high: float
    n: int
    judge: float
    people: float


class JudgeFigures(Frozen):
    """One judge on one metric, over the `n` labelled responses. `figures` are those of
    `judge_statistics`. `curve_by` is the curve's x axis: `confidence` if every judgment has one,
    else `score`. `cost_usd` is None if the price of some calls is not known. `rubric` is the digest
    of the rubric by which it judged, if it is known. `judged_by` is the judge that all scores name,
    if that is not `judge` itself: whom `auto` took. `n_clusters` are of the scored (None in older
    reports)."""

    judge: str
    n: int
    n_scored: int
    coverage: float
    figures: dict[str, Coefficient]
    curve_by: str
    curve: tuple[Bin, ...]
    cost_usd: float | None
    rubric: str = Field(default="", exclude_if=operator.not_)
    judged_by: str = Field(default="", exclude_if=operator.not_)
    n_clusters: int | None = None

    @property
    def is_measured(self) -> bool:
        """True if it scored MIN_LABELS in MIN_CLUSTERS: fewer may agree all by chance, and then
        have an interval without a width."""
        clusters = MIN_CLUSTERS if self.n_clusters is None else self.n_clusters
        return self.n_scored >= MIN_LABELS and clusters >= MIN_CLUSTERS

    @property
    def may_be_used(self) -> bool:
        """True if it is measured, covers MIN_COVERAGE, and agrees beyond chance (kappa's interval
        is above 0)."""
        is_covered = self.is_measured and self.coverage >= MIN_COVERAGE
        return is_covered and (self.figures["kappa"].low or 0.0) > 0


class People(Frozen):
    """How far people agree with each other, over the `n` responses that two or more of them
    labelled. Agreement, kappa and Spearman are means over the pairs of label columns."""

    n: int
    raters: int
    figures: dict[str, Coefficient]


class Suggestion(Frozen):
    """The judge to use (None: none of them), and why."""

    judge: str | None
    reason: str


class RaterF1(Frozen):
    """The macro F1 of a rater over `n` pairs of labels, undefined if no pair has a yes, or a no,
    on one side; of a judge with its interval."""

    rater: str
    n: int
    macro_f1: Coefficient


class RaterComparison(Frozen):
    """Judges beside people. `people_mean` is over people, weighted by their pairs."""

    judges: tuple[RaterF1, ...]
    people: tuple[RaterF1, ...]
    people_mean: float | None


class CalibrationReport(Frozen):
    """What `calibrate` found of one metric; of labels of a run also its `adjusted` means."""

    labelled: str
    metric: str
    scale: Scale
    human_scale: Scale
    n: int
    n_clusters: int
    judges: tuple[JudgeFigures, ...]
    people: People | None
    suggestion: Suggestion | None
    raters: RaterComparison | None = None
    adjusted: tuple[AdjustedMean, ...] = Field(default=(), exclude_if=operator.not_)


class UnitColumns(NamedTuple):
    """Units as columns. `ratings` has one row per unit and one column per rater; `flips` is the
    share of the pairs of repeats that differ. NaN stands for a missing figure."""

    ratings: FloatArray
    confidence: FloatArray
    flips: FloatArray

    def take(self, rows: npt.NDArray[np.intp]) -> UnitColumns:
        return UnitColumns(self.ratings[rows], self.confidence[rows], self.flips[rows])


def calibrate_judge(
    units: Sequence[Unit], judge: str, scale: Scale, human_scale: Scale, draws: int = DRAWS
) -> JudgeFigures:
    """Computes all figures of one judge; None if it scored nothing. `scale` is the metric's."""
    scored = [unit for unit in units if unit.judge is not None]
    table, clusters = to_table(scored, scale, human_scale), [unit.cluster for unit in scored]
    has_confidence = bool(scored) and not np.isnan(table.confidence).any()
    statistics = judge_statistics(human_scale, has_confidence)
    names = {unit.judged_by for unit in scored} - WITHOUT_CALL
    is_unpriced = any(unit.unpriced_calls for unit in units)
    return JudgeFigures(
        judge=judge,
        n=len(units),
        n_scored=len(scored),
        coverage=len(scored) / len(units) if units else 0.0,
        figures=estimate_with_intervals(statistics, table, clusters, draws),
        curve_by="confidence" if has_confidence else "score",
        curve=tuple(curve(table, human_scale, has_confidence)),
        cost_usd=None if is_unpriced else sum(unit.cost_usd for unit in units),
        judged_by="".join(names - {judge}) if len(names) == 1 else "",
        n_clusters=len(set(clusters)),
    )


def read_calibrated(file: Path) -> Iterator[tuple[str, str, str]]:
    """Metric, judge and rubric of each judge of a report that may be used. Raises ConfigError."""
    try:
        report = CalibrationReport.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(
            f"calibrations: {file} is not what `memray-eval calibrate LABELLED --json` prints"
        ) from None
    for judge in report.judges:
        if judge.may_be_used:
            yield report.metric, judge.judged_by or judge.judge, judge.rubric


def people_agreement(
    units: Sequence[Unit], human_scale: Scale, draws: int = DRAWS
) -> People | None:
    """Computes how far people agree with each other; None if no response has two labels."""
    shared = [unit for unit in units if sum(label is not None for label in unit.people) > 1]
    if not shared:
        return None
    ratings = np.array([unit.people for unit in shared], np.float64)  # None becomes NaN
    nothing = np.full(len(shared), np.nan)
    table, clusters = UnitColumns(ratings, nothing, nothing), [unit.cluster for unit in shared]
    statistics = agreement_statistics(human_scale)
    figures = estimate_with_intervals(statistics, table, clusters, draws)
    return People(n=len(shared), raters=ratings.shape[1], figures=figures)


def suggest_judge(
    trials: Sequence[tuple[JudgeFigures, Sequence[Unit]]], scale: Scale, human_scale: Scale
) -> Suggestion:
    """Suggests the judge with the highest kappa among those that `may_be_used`. The reason names
    the judges that cannot be told from it: the 95 % interval of the paired difference contains
    0."""
    able = [trial for trial in trials if trial[0].may_be_used]
    beyond_chance = (
        f"agrees with people beyond chance while scoring {MIN_COVERAGE:.0%} of the responses"
    )
    if not able:
        return Suggestion(judge=None, reason=f"none {beyond_chance}")
    able.sort(key=lambda trial: trial[0].figures["kappa"].value or 0.0, reverse=True)
    best, units = able[0]
    alike = []
    for other, its_units in able[1:]:
        difference = kappa_difference(units, its_units, scale, human_scale)
        if difference.low is None or difference.low <= 0:
            alike.append(other.judge)
    reason = f"the highest weighted kappa, {best.figures['kappa'].value:.3f}"
    if alike:
        doubt = f"these responses cannot tell it from {', '.join(alike)}"
        reason += f"; {doubt}: take the cheapest, or label more"
    elif len(able) > 1:
        reason += ", beyond chance above every other judge that can be suggested"
    else:
        reason += f"; no other {beyond_chance}"
    return Suggestion(judge=best.judge, reason=reason)


def kappa_difference(
    units: Sequence[Unit], others: Sequence[Unit], scale: Scale, human_scale: Scale
) -> Coefficient:
    """A judge's weighted kappa minus another's, on the units that both scored."""
    by_id = {unit.id: unit for unit in others if unit.judge is not None}
    shared = [unit for unit in units if unit.judge is not None and unit.id in by_id]
    first = to_table(shared, scale, human_scale)
    second = to_table([by_id[unit.id] for unit in shared], scale, human_scale)
    ratings = np.column_stack([first.ratings, second.ratings[:, 1]])
    both = first._replace(ratings=ratings)

    def difference(of: UnitColumns) -> float:
        return weighted_kappa(of.ratings[:, :2]) - weighted_kappa(of.ratings[:, [0, 2]])

    clusters = [unit.cluster for unit in shared]
    return estimate_with_intervals({"kappa": difference}, both, clusters)["kappa"]


def to_table(units: Sequence[Unit], scale: Scale, human_scale: Scale) -> UnitColumns:
    """Lays units out as columns. Of `ratings`, column 0 is the mean label and column 1 the judge,
    both on the human scale, rounded so that equal scores stay equal."""
    labels = [[label for label in unit.people if label is not None] for unit in units]
    human = np.array([sum(of_unit) / len(of_unit) for of_unit in labels])
    judge = rescale(np.array([unit.judge for unit in units], dtype=float), scale, human_scale)
    return UnitColumns(
        np.round(np.column_stack([human, judge]), 9),
        np.array([unit.confidence for unit in units], np.float64),
        np.array([flip_share(unit.repeats) for unit in units]),
    )


def flip_share(repeats: Sequence[float]) -> float:
    """The share of the pairs of repeats of one call whose scores differ."""
    pairs = list(combinations(repeats, 2))
    return sum(first != second for first, second in pairs) / len(pairs) if pairs else np.nan


def agreement_statistics(human_scale: Scale) -> dict[str, Statistic]:
    """The statistics of judge and people, and of people among themselves."""
    return {
        "exact": lambda table: mean_over_pairs(
            share_equal, to_categories(table.ratings, human_scale)
        ),
        "kappa": lambda table: mean_over_pairs(weighted_kappa, table.ratings),
        "alpha_ordinal": lambda table: alpha_ordinal(table.ratings),
        "alpha_interval": lambda table: alpha_interval(table.ratings),
        "alpha_nominal": lambda table: alpha_nominal(to_categories(table.ratings, human_scale)),
        "spearman": lambda table: mean_over_pairs(spearman, table.ratings),
    }


def judge_statistics(human_scale: Scale, by_confidence: bool) -> dict[str, Statistic]:
    """The statistics of agreement, and a judge's own: its bias (judge minus people), the mean gap
    of its calibration curve, and its flip rate."""
    return agreement_statistics(human_scale) | {
        "bias": lambda table: mean(table.ratings[:, 1] - table.ratings[:, 0]),
        "calibration_error": lambda table: curve_gap(table, human_scale, by_confidence),
        "flip_rate": lambda table: mean(table.flips[~np.isnan(table.flips)]),
    }


def curve(table: UnitColumns, human_scale: Scale, by_confidence: bool) -> list[Bin]:
    """The calibration curve in bins of equal width, without the empty ones."""
    judge, people, (low, high) = table.ratings[:, 1], table.ratings[:, 0], human_scale
    if by_confidence:
        classes = to_categories(table.ratings, human_scale)
        judge, people = table.confidence, (classes[:, 0] == classes[:, 1]).astype(float)
        low, high = 0.0, 1.0
    bins = np.clip(np.floor((judge - low) / (high - low) * BINS + 1e-9), 0, BINS - 1).astype(int)
    edges = np.linspace(low, high, BINS + 1)
    return [
        Bin(
            low=float(edges[index]),
            high=float(edges[index + 1]),
            n=int((bins == index).sum()),
            judge=float(judge[bins == index].mean()),
            people=float(people[bins == index].mean()),
        )
        for index in np.unique(bins)
    ]


def curve_gap(table: UnitColumns, human_scale: Scale, by_confidence: bool) -> float:
    """The mean of |judge - people| over the bins of the curve, weighted by their units."""
    bins = curve(table, human_scale, by_confidence)
    n = len(table.ratings)
    return sum(of.n * abs(of.judge - of.people) for of in bins) / n if n else np.nan


def estimate_with_intervals(
    statistics: Mapping[str, Statistic],
    table: UnitColumns,
    clusters: Sequence[str],
    draws: int = DRAWS,
) -> dict[str, Coefficient]:
    """Computes each statistic with its bootstrap interval over clusters, the same draws for the
    same data. None for one cluster, or if fewer than half the draws define the statistic."""
    if not clusters:
        return dict.fromkeys(statistics, Coefficient(value=None))
    names, codes = np.unique(np.array(clusters), return_inverse=True)
    whole = {name: statistic(table) for name, statistic in statistics.items()}
    if names.size < 2:
        return {name: _figure(value, np.array([]), LEVEL) for name, value in whole.items()}

    def on_rows(statistic: Statistic, rows: Rows) -> float:
        return statistic(table.take(rows))

    of_rows = {name: partial(on_rows, statistic) for name, statistic in statistics.items()}
    drawn = bootstrap_statistics(of_rows, codes, draws)
    level = expand_level(LEVEL, names.size)
    return {name: _figure(value, drawn[name], level) for name, value in whole.items()}


def _figure(value: float, drawn: FloatArray, level: float) -> Coefficient:
    """Makes a figure, rounded: float error in a kappa of 0 is no agreement beyond chance."""
    if np.isnan(value):
        return Coefficient(value=None)
    defined, figure = drawn[~np.isnan(drawn)], Coefficient(value=round(float(value), DIGITS))
    if not defined.size or defined.size < drawn.size / 2:
        return figure
    low, high = percentile_interval(defined, level)
    return figure.model_copy(update={"low": round(low, DIGITS), "high": round(high, DIGITS)})


Flags = npt.NDArray[np.bool_]
# A rater's label, another person's, and the cluster of their response
_Labels: TypeAlias = tuple[bool, bool, str]


def compare_raters(
    verdicts: Mapping[str, Sequence[Unit]], scale: Scale, human_scale: Scale
) -> RaterComparison | None:
    """The macro F1 of each judge and of each person; None if nobody is named."""
    units = next(iter(verdicts.values()), ())
    by_person = _pairs_by_person(units, sum(human_scale) / 2)
    if not by_person:
        return None
    people = [_measure_rater(person, pairs) for person, pairs in sorted(by_person.items())]
    defined = [person for person in people if person.macro_f1.value is not None]
    total = sum((person.macro_f1.value or 0.0) * person.n for person in defined)
    n_pairs = sum(person.n for person in defined)
    judges = []
    for judge, own in verdicts.items():
        pairs = [
            (unit.judge > sum(scale) / 2, label > sum(human_scale) / 2, unit.cluster)
            for unit in own
            for label in unit.people
            if unit.judge is not None and label is not None
        ]
        judges.append(_measure_rater(judge, pairs, DRAWS))
    people_mean = total / n_pairs if n_pairs else None
    return RaterComparison(judges=tuple(judges), people=tuple(people), people_mean=people_mean)


def _pairs_by_person(units: Iterable[Unit], middle: float) -> dict[str, list[_Labels]]:
    by_person: dict[str, list[_Labels]] = {}
    for unit in units:
        labels = [
            (rater, label > middle)
            for rater, label in zip(unit.raters, unit.people, strict=False)
            if label is not None
        ]
        for index, (rater, own) in enumerate(labels):
            others = [label for _, label in labels[:index] + labels[index + 1 :]]
            pairs = by_person.setdefault(rater, [])
            pairs += [(own, other, unit.cluster) for other in others]
    return by_person


def _measure_rater(rater: str, pairs: Sequence[_Labels], draws: int = 0) -> RaterF1:
    own, other = (np.array([pair[side] for pair in pairs], np.bool_) for side in (0, 1))
    value, clusters = macro_f1(own, other), [cluster for _, _, cluster in pairs]
    figure = Coefficient(value=None if np.isnan(value) else value)
    n_clusters = len(set(clusters))
    if draws and figure.value is not None and n_clusters > 1:
        statistics = {"f1": lambda rows: macro_f1(own[rows], other[rows])}
        drawn = bootstrap_statistics(statistics, np.array(clusters), draws)["f1"]
        if (drawn := drawn[~np.isnan(drawn)]).size >= draws / 2:
            low, high = percentile_interval(drawn, expand_level(LEVEL, n_clusters))
            figure = Coefficient(value=value, low=low, high=high)
    return RaterF1(rater=rater, n=len(pairs), macro_f1=figure)


def macro_f1(own: Flags, other: Flags) -> float:
    """The mean of the F1 of yes and of no; NaN where a precision or recall is undefined."""
    scores = []
    for first, second in ((own, other), (~own, ~other)):
        n_first, n_second = int(first.sum()), int(second.sum())
        if not n_first or not n_second:
            return np.nan
        scores.append(2 * int((first & second).sum()) / (n_first + n_second))
    return sum(scores) / 2
