"""The input and the result of a comparison, and the units that two sides share."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pydantic import Field

from memray_eval.analysis.pairs.figures import PairwiseReport
from memray_eval.analysis.scores import CLUSTER_COLUMNS, Scores, number_clusters
from memray_eval.analysis.statistics import Clusters, Interval, Paired, Scale, Settings
from memray_eval.analysis.where import GroupFigure, common_rows
from memray_eval.errors import ConfigError, DataError
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen

Direction = Literal["up", "down"]
Outcome: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Side:
    """One candidate of one run, under its name in this comparison. `manifest` is the run's
    manifest.json. `matching` says how its units were matched with the baseline's, where not just
    by their ids."""

    name: str
    candidate: str
    manifest: Mapping[str, Any]
    scores: Scores
    matching: str = ""
    is_like_baseline: bool = False  # its samples are the baseline's, whatever the manifests say
    scales: Mapping[str, Scale] = field(default_factory=dict)  # by metric
    leads: str = ""  # the first metric that its run was told to compute


class Flip(Frozen):
    """A unit whose two scores, `a` and `b`, differ. `direction` is up if B's is higher. `other_id`
    is B's sample id where that is another."""

    sample_id: str
    other_id: str = ""
    task: str
    direction: Direction
    a: float
    b: float


class MetricComparison(Frozen):
    """One metric of B (`other`) against A, over the `paired.n` common units that both sides scored;
    `only_a` and `only_b` were scored by one side.

    The p-values are corrected over all metrics and candidates: `p_holm` bounds the chance of any
    false finding, `p_fdr` the share of false ones (Benjamini-Hochberg). `flips_up` and `flips_down`
    exist for metrics of zeros and ones. `flips` lists the units that changed, the largest changes
    first. `mark_a` and `mark_b` say how many of the paired values are estimates or fallbacks.
    `corrected` is the interval, over all rows, of a difference that is not shown though its own is
    clear of 0. `left_out` says how many answers and verdicts are in no figure, of which side;
    `is_undecided`: they are so many that nothing is shown. `more`: about so many further units
    would show a difference that is not (over all rows), None if no number would."""

    metric: str
    other: str
    paired: Paired
    average: Literal["mean", "micro"] = "mean"
    interval_a: Interval | None = None
    interval_b: Interval | None = None
    p_holm: float | None = None
    p_fdr: float | None = None
    only_a: int = 0
    only_b: int = 0
    flips_up: int | None = None
    flips_down: int | None = None
    flips: tuple[Flip, ...] = ()
    letter: str = "B"
    mark_a: str = ""
    mark_b: str = ""
    more: int | None = None
    corrected: Interval | None = Field(default=None, exclude_if=operator.not_)
    left_out: str = Field(default="", exclude_if=operator.not_)
    is_undecided: bool = Field(default=False, exclude_if=operator.not_)

    def is_found(self, level: float) -> bool:
        """True if the difference is told from chance, corrected over all rows (Holm)."""
        return not self.is_undecided and self.p_holm is not None and self.p_holm <= 1 - level

    @property
    def remarks(self) -> str:
        """The mark, and what is left out, in one text; why nothing is shown the head says."""
        out = "not decided" if self.is_undecided else self.left_out
        return "; ".join(filter(None, (self.mark, out)))

    @property
    def mark(self) -> str:
        """Both marks in one text."""
        if self.mark_a == self.mark_b:
            return self.mark_a
        sides = (("A", self.mark_a), (self.letter, self.mark_b))
        return "; ".join(f"{side}: {mark}" for side, mark in sides if mark)


class Standing(Frozen):
    """A metric's figure of one `side` over the `n` units that all sides scored, with its interval.
    `p_holm` is that of its difference from the `best`, over all metrics and pairs of sides;
    `is_best`: it is not shown to be below the best. `best` is "" for the best itself."""

    metric: str
    side: str
    n: int
    value: float
    low: float | None = None
    high: float | None = None
    best: str = ""
    p_holm: float | None = None
    is_best: bool = True


class CommonUnits(Frozen):
    """How many units A and `other` share. `letter` is how warnings and tables call the other: B, C,
    ..."""

    other: str
    letter: str
    n: int
    only_a: int
    only_b: int


class GateResult(Frozen):
    """What came of a gate for one side, in words; what `may` fail changes no exit code."""

    text: str
    metric: str
    other: str
    outcome: Outcome
    tier: str = "must"

    def __str__(self) -> str:
        return f"{self.outcome}{' (may)' * (self.tier == 'may')}: {self.text}"


class Noise(Frozen):
    """What two runs of one candidate say of a metric: how often `METRIC.high < 0` fails by chance,
    and the `margin` by which a metric may be allowed to fall so that a gate passes, of runs that do
    not differ, as often as the settings' power. None: it cannot be told."""

    metric: str
    n: int
    false_alarms: float | None
    margin: float | None


class Comparison(Frozen):
    """The result of `compare`. `baseline` is A, `cluster` the field that units are clustered by,
    `by` the one that `groups` are split by, `leads` the first metric that was named (here, or else
    to the baseline's run), `gates` what came of gates, and `failed_gates` those that must not fail
    and did; `noise` is of two runs of one candidate. `candidates`, and `titles` of runs that have
    one, are by the sides' names, `scales` by metric. `pairs` exists if there is a pairwise run over
    the same candidates, `matrix` of three sides or more."""

    baseline: str
    others: tuple[str, ...]
    cluster: str | None
    settings: Settings
    common: tuple[CommonUnits, ...]
    metrics: tuple[MetricComparison, ...]
    warnings: tuple[str, ...] = ()
    failed_gates: tuple[str, ...] = ()
    leads: str = Field(default="", exclude_if=operator.not_)
    gates: tuple[GateResult, ...] = Field(default=(), exclude_if=operator.not_)
    noise: tuple[Noise, ...] = Field(default=(), exclude_if=operator.not_)
    by: str | None = None
    groups: tuple[GroupFigure, ...] = ()
    candidates: dict[str, str] = Field(default_factory=dict)
    titles: dict[str, str] = Field(default_factory=dict)
    scales: dict[str, Scale] = Field(default_factory=dict)
    pairs: PairwiseReport | None = None
    matrix: tuple[Standing, ...] = ()

    def rows_of(self, other: str) -> list[MetricComparison]:
        """The rows of one side."""
        return [row for row in self.metrics if row.other == other]

    def with_title(self, side: str) -> str:
        """A side's name with the title of its run."""
        return f"{side} ({self.titles[side]})" if side in self.titles else side

    def shown_as(self, side: str) -> str:
        """What a sentence calls a side: its candidate, where that tells all sides apart."""
        names = list(self.candidates.values())
        return (
            self.candidates[side]
            if side in self.candidates and len(set(names)) == len(names)
            else side
        )


@dataclass(frozen=True)
class AlignedUnits:
    """The units common to A and another side: their rows on each side, and their clusters.
    `n_alone` of them name no cluster."""

    base: Side
    other: Side
    rows_a: npt.NDArray[np.intp]
    rows_b: npt.NDArray[np.intp]
    clusters: Clusters | None
    n_alone: int
    common: CommonUnits

    def figures(self, metric: str) -> tuple[FloatArray, FloatArray, Clusters | None]:
        """Both sides' figures of the units that both scored, and the clusters of these; none where
        a side has nothing to divide by."""
        a, b = self.base.scores, self.other.scores
        both = ~np.isnan(a.values[metric][self.rows_a] + b.values[metric][self.rows_b])
        of_a = a.of_figure(metric, self.rows_a[both])
        of_b = b.of_figure(metric, self.rows_b[both])
        if of_a is None or of_b is None:
            return np.zeros(0), np.zeros(0), None
        return of_a, of_b, None if self.clusters is None else self.clusters[both]


def align_units(base: Side, other: Side, letter: str, cluster: str | None) -> AlignedUnits:
    """Finds the units that both sides have, with their clusters if a `cluster` field is named.
    Raises DataError if there are none, and ConfigError if no unit names the field."""
    rows_a, rows_b = common_rows(base.scores, other.scores)
    if not rows_b.size:
        raise DataError(
            f"{base.name} and {other.name} share no sample: no id with the same task is in both"
        )
    groups, n_alone = None, 0
    if cluster is not None:
        names = pc.coalesce(
            base.scores.units["cluster"].take(rows_a), other.scores.units["cluster"].take(rows_b)
        )
        n_alone = names.null_count
        if n_alone == len(names):
            columns = ", ".join(CLUSTER_COLUMNS)
            raise ConfigError(
                f"no answer names a {cluster!r} to cluster by; there are: {columns}, and the keys "
                "of the samples' metadata"
            )
        groups = number_clusters(names)
    n, n_a, n_b = rows_b.size, base.scores.units.num_rows, other.scores.units.num_rows
    common = CommonUnits(other=other.name, letter=letter, n=n, only_a=n_a - n, only_b=n_b - n)
    return AlignedUnits(base, other, rows_a, rows_b, groups, n_alone, common)
