"""Compares two or more candidates, of one run or several, on the units that they share: what
differs, whether that could be chance, and what else makes the runs hard to compare. Two units are
the same if their sample id and task are."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from string import ascii_uppercase
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pydantic import Field

from memray_eval.analysis.marks import left_out, why_undecided
from memray_eval.analysis.pairs import PairwiseReport
from memray_eval.analysis.scores import CLUSTER_COLUMNS, Scores, clips_mean, number_clusters
from memray_eval.analysis.statistics import (
    FEW_CLUSTERS,
    SETTINGS,
    TIE,
    Clusters,
    CompareOptions,
    Interval,
    Paired,
    Rows,
    Scale,
    benjamini_hochberg,
    count_wins,
    cut_to,
    false_alarm_rate,
    holm,
    is_binary,
    mean_interval,
    more_to_show,
    paired,
    paired_p,
    t_interval,
)
from memray_eval.analysis.where import (
    Codes,
    GroupFigure,
    Groups,
    clusters_of_units,
    common_rows,
    differences_by_group,
    mark_shown,
)
from memray_eval.errors import ConfigError, DataError, suggest
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
    """How many units A and `other` share; warnings and tables call that B, C, ... (`letter`)."""

    other: str
    letter: str
    n: int
    only_a: int
    only_b: int


class GateResult(Frozen):
    """What came of a `gate` for one side, in words; what `may` fail changes no exit code."""

    gate: str
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


class Compared(Frozen):
    """The result of `compare`. `baseline` is A, `cluster` the field that units are clustered by,
    `by` the one that `groups` are split by, `leads` the first metric that was named (here, or else
    to the baseline's run), `gates` what came of gates, and `failed_gates` those that must not fail
    and did; `noise` is of two runs of one candidate. `candidates`, and `titles` of runs that have
    one, are by the sides' names, `scales` by metric. `pairs` exists if there is a pairwise run over
    the same candidates, `matrix` of three sides or more."""

    baseline: str
    others: tuple[str, ...]
    cluster: str | None
    settings: CompareOptions
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
        is_told = len(set(names)) == len(names)
        return self.candidates.get(side, side) if is_told else side


@dataclass(frozen=True)
class AlignedUnits:
    """The rows on each side of the units common to both; `n_alone` of these name no cluster."""

    base: Side
    other: Side
    rows_a: npt.NDArray[np.intp]
    rows_b: npt.NDArray[np.intp]
    clusters: Clusters | None
    n_alone: int
    common: CommonUnits

    def figures(self, metric: str) -> tuple[FloatArray, FloatArray, Clusters | None]:
        """Figures of the units that both scored, and their clusters; none without a divisor."""
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


def find_warnings(
    base: Side, units: AlignedUnits, compared: Sequence[str], *, is_chosen: bool
) -> Iterator[str]:
    """Warns of everything that could explain the difference of two sides other than their
    candidates. `is_chosen` says that the `compared` metrics were asked for."""
    other, common = units.other, units.common
    names, sides = f"A and {common.letter}", {"A": base, common.letter: other}
    for letter, side in sides.items():
        if (status := side.manifest.get("status")) != "finished" and not (
            letter == "A" and common.letter != "B"
        ):
            yield f"{letter} is not finished: its status is {status!r}"
    if base.scores.suites != other.scores.suites:
        yield (
            f"{names} are of different suites: {_join_names(base.scores.suites)}; "
            f"{_join_names(other.scores.suites)}"
        )
    datasets = [side.manifest.get("dataset") or {} for side in (base, other)]
    if reads_other_samples(*datasets) and not other.is_like_baseline:
        yield f"{names} read different {_describe_datasets(datasets)}"
    shares = {
        letter: (side.scores.n_no_answer, side.scores.n_answers) for letter, side in sides.items()
    }
    if len({None if n is None else n / max(1, of) for n, of in shares.values()} - {None}) > 1:
        listed = _by_letter({letter: f"{n:,} of {of:,}" for letter, (n, of) in shares.items()})
        yield f"{names} answered differently often; without an answer: {listed}"
    if base.scores.epochs != other.scores.epochs:
        counts = f"{base.scores.epochs} and {other.scores.epochs} answers a sample"
        yield f"{names} have {counts}: their means are compared, the less exact the fewer they are"
    if other.matching:
        yield f"{names}: {other.matching}"
    yield from _differing_judges(sides, compared)
    yield from _differing_models(sides)
    yield from _differing_rubrics(sides, compared)
    yield from _differing_layouts(sides)
    if not is_chosen and (apart := sorted(set(base.scores.values) ^ set(other.scores.values))):
        yield f"metrics that only one of {names} has are not compared: {', '.join(apart)}"
    if common.only_a or common.only_b:
        yield f"answers without a partner: {common.only_a} of A, {common.only_b} of {common.letter}"
    if units.clusters is not None and (n := np.unique(units.clusters).size) < FEW_CLUSTERS:
        yield (
            f"{names} have {n} clusters: with fewer than {FEW_CLUSTERS}, clustered standard errors "
            "come out too small"
        )
    if units.n_alone:
        yield f"{units.n_alone} answers of {names} name no cluster: each is one of its own"


def _describe_datasets(datasets: Sequence[Mapping[str, Any]]) -> str:
    first, second = (str(dataset.get("path", "unknown")) for dataset in datasets)
    if first != second:
        return f"datasets: {first} and {second}"
    counts = [str(dataset.get("n_samples", "unknown")) for dataset in datasets]
    why = " and ".join(counts) if counts[0] != counts[1] else "it or their choice changed"
    return f"samples of {first}: {why}"


def reads_other_samples(dataset: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs read different samples, as far as their manifests tell."""
    # A spread limit's fingerprint has no prefix, and is the same digest of the samples in order
    first, second = (
        f"{manifest.get('fingerprint')}".rpartition(":")[2] for manifest in (dataset, other)
    )
    return first != second


def _differing_settings(
    key: str, sides: Mapping[str, Side], compared: Sequence[str] | None = None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric, or metric/task, of these (None: any name) for which the manifests differ."""
    settings = {letter: side.manifest.get(key) or {} for letter, side in sides.items()}
    for name in dict.fromkeys(name for of_side in settings.values() for name in of_side):
        values = {letter: of_side.get(name, "none") for letter, of_side in settings.items()}
        is_compared = compared is None or name.partition("/")[0] in compared
        if is_compared and len(set(values.values())) > 1:
            yield name, values


def _differing_rubrics(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """Warns of each metric, or metric/task, whose rubrics differ; a user's own has no version."""
    for name, digests in _differing_settings("rubrics", sides, compared):
        versions = {
            letter: (side.manifest.get("rubric_versions") or {}).get(name)
            for letter, side in sides.items()
        }
        shown = {
            letter: f"{f'version {version}, ' if version else ''}digest {digests[letter]}"
            for letter, version in versions.items()
        }
        yield f"{name}: different rubrics: {_by_letter(shown, '; ')}"


def _differing_layouts(sides: Mapping[str, Side]) -> Iterator[str]:
    """Warns of each judge with other layouts of its prompts, where a prompt cache was used."""
    calls = [(side.manifest.get("calls") or {}).get("judges") or {} for side in sides.values()]
    for judge, layouts in sorted(_differing_settings("judge_prompts", sides)):
        is_used = any((of_judge.get(judge) or {}).get("cached_input_tokens") for of_judge in calls)
        if is_used and "none" not in layouts.values():
            yield f"{judge}: different layouts of its prompts: {_by_letter(layouts)}"


def _differing_judges(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """Warns of each metric, or metric/task, for which the sides planned other judges, and of each
    for which others scored it: a fallback, or a jury from which one was missing."""
    for name, judges in _differing_settings("judges", sides, compared):
        yield f"{name}: different judges: {_by_letter(judges)}"
    for name in compared:
        planned = {str((side.manifest.get("judges") or {}).get(name)) for side in sides.values()}
        actual = {}
        for letter, side in sides.items():
            judged_by = side.manifest.get("judged_by") or {}
            actual[letter] = _join_names(sorted(judged_by.get(f"{name}/{side.candidate}") or ()))
        if len(planned) == 1 and "none" not in actual.values() and len(set(actual.values())) > 1:
            yield f"{name}: scored by {_by_letter(actual, '; ')}"


def _differing_models(sides: Mapping[str, Side]) -> Iterator[str]:
    """Warns of each candidate and judge that one of the sides has several models of, or that the
    sides have by the same name and with other models, as far as their servers named them."""
    by_name: dict[tuple[str, str], dict[str, list[str]]] = {}
    for letter, side in sides.items():
        for model in side.manifest.get("served_models") or ():
            if model["of"] == "judge" or model["name"] == side.candidate:
                who = by_name.setdefault((model["of"], model["name"]), {})
                who.setdefault(letter, []).append(model["model"])
    for (of, name), models in by_name.items():
        if len(set(chain.from_iterable(models.values()))) > 1:
            served = {letter: _join_names(names) for letter, names in models.items()}
            yield f"{of} {name}: other models answered: {_by_letter(served, '; ')}"


def _by_letter(texts: Mapping[str, object], between: str = ", ") -> str:
    return between.join(f"{text} in {letter}" for letter, text in texts.items())


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def compare(
    sides: Sequence[Side],
    *,
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
    more: Groups | None = None,
    settings: CompareOptions = SETTINGS,
    flips: int = 0,
) -> Compared:
    """Compares each further side with the first over `metrics` (none: all shared ones), also in
    each group of the field `by` that units were read by and of `more` fields, and lists up to
    `flips` changed units per metric. Raises ConfigError for fewer than two sides, an unknown metric
    or cluster field, and DataError if two sides share no unit."""
    if len(sides) < 2:
        raise ConfigError("compare takes two or more run folders: compare A B [C...]")
    base, *others = sides
    letters = ascii_uppercase[1:]
    if len(others) > len(letters):
        raise ConfigError(f"compare takes up to {len(letters) + 1} runs, not {len(sides)}")
    pairs = [
        align_units(base, other, letter, cluster)
        for other, letter in zip(others, letters, strict=False)
    ]
    chosen = [_choose_metrics(base.scores, other.scores, metrics) for other in others]
    compared: list[MetricComparison] = []
    warnings: list[str] = []
    groups: list[GroupFigure] = []
    for units, names in zip(pairs, chosen, strict=True):
        rows = [_compare_metric(units, name, settings, flips) for name in names]
        compared += rows
        decided = {row.metric for row in rows if not row.is_undecided}
        in_groups = _compare_groups(units, names, settings, list(_splits(units, by, more)))
        groups += [group for group in in_groups if group.metric in decided]
        warnings += find_warnings(base, units, names, is_chosen=bool(metrics))
        warnings += _cut_means(rows)
    corrected = list(_correct_p_values(compared, settings))
    return Compared(
        baseline=base.name,
        others=tuple(side.name for side in others),
        cluster=cluster,
        settings=settings,
        common=tuple(units.common for units in pairs),
        metrics=tuple(corrected),
        warnings=tuple(warnings),
        by=by,
        leads=next(iter(metrics), base.leads),
        groups=tuple(mark_shown(groups)),
        candidates={side.name: side.candidate for side in sides},
        titles={of.name: title for of in sides if (title := str(of.manifest.get("name", "")))},
        scales={of.metric: base.scales[of.metric] for of in compared if of.metric in base.scales},
        matrix=find_standings(sides, metrics, cluster, settings, corrected) if others[1:] else (),
    )


def _cut_means(rows: Sequence[MetricComparison]) -> Iterator[str]:
    """Yields a warning for each metric whose shown means do not differ by its difference."""
    for row in rows:
        of = row.paired
        apart = (of.mean_b or 0.0) - (of.mean_a or 0.0)
        if (
            clips_mean(row.metric)
            and of.difference is not None
            and abs(apart - of.difference) > TIE
        ):
            yield (
                f"{row.metric} of A and {row.letter}: means are cut to the scale, as its figures "
                "are; differences are of means that are not cut"
            )


def _choose_metrics(a: Scores, b: Scores, metrics: Sequence[str]) -> list[str]:
    """The metrics to compare, in the order asked for, or else in A's."""
    shared = [name for name in a.values if name in b.values]
    if unknown := [name for name in metrics if name not in shared]:
        raise ConfigError(f"no metric {unknown[0]!r} in common; {suggest(unknown[0], shared)}")
    return list(metrics) or shared


def _compare_metric(
    units: AlignedUnits, name: str, settings: CompareOptions, n_flips: int
) -> MetricComparison:
    a = units.base.scores.values[name][units.rows_a]
    b = units.other.scores.values[name][units.rows_b]
    has_a, has_b = ~np.isnan(a), ~np.isnan(b)
    both = has_a & has_b
    of_a, of_b, clusters = units.figures(name)
    scale = units.base.scales.get(name)
    of_pairs = paired(of_a, of_b, clusters, settings, scale)
    changed = np.where(both, b - a, 0.0)
    # The largest change first; equal changes keep their order.
    rows = np.argsort(-np.abs(changed), kind="stable")[: np.count_nonzero(np.abs(changed) > TIE)]
    sides = (("A", units.base, units.rows_a), (units.common.letter, units.other, units.rows_b))
    counts = {letter: side.scores.count_left_out(name, of) for letter, side, of in sides}
    undecided = {letter: why_undecided(*count) for letter, count in counts.items()}
    told = {letter: undecided[letter] or left_out(*count) for letter, count in counts.items()}
    update: dict[str, object] = dict(count_wins((b - a)[both]))
    if scale is not None and clips_mean(name) and of_pairs.n:
        means = {"mean_a": of_a, "mean_b": of_b}
        update |= {of: cut_to(float(values.mean()), scale) for of, values in means.items()}
    is_yes_no = both.any() and is_binary(a[both]) and is_binary(b[both])
    return MetricComparison(
        metric=name,
        other=units.other.name,
        average="micro" if name in units.base.scores.shares else "mean",
        paired=of_pairs.model_copy(update=update),
        interval_a=mean_interval(of_a, clusters, settings, scale),
        interval_b=mean_interval(of_b, clusters, settings, scale),
        only_a=int(np.count_nonzero(has_a & ~has_b)),
        only_b=int(np.count_nonzero(has_b & ~has_a)),
        letter=units.common.letter,
        mark_a=units.base.scores.mark_of(name, units.rows_a[both]),
        mark_b=units.other.scores.mark_of(name, units.rows_b[both]),
        flips_up=int((changed > 0).sum()) if is_yes_no else None,
        flips_down=int((changed < 0).sum()) if is_yes_no else None,
        flips=tuple(_flips(units, a, b, rows[:n_flips])),
        left_out=_join_sides(told),
        is_undecided=any(undecided.values()),
    )


def _join_sides(texts: Mapping[str, str]) -> str:
    """What is said of each side, once if it is the same."""
    letters: dict[str, list[str]] = {}
    for letter, text in texts.items():
        letters.setdefault(text, []).append(letter)
    return "; ".join(f"{' and '.join(of)}: {text}" for text, of in letters.items() if text)


def measure_noise(base: Side, other: Side, comparison: Compared) -> Iterator[Noise]:
    """What the comparison of two runs of one candidate says of each metric's noise."""
    units = align_units(base, other, "B", comparison.cluster)
    for row in comparison.metrics:
        of_a, of_b, clusters = units.figures(row.metric)
        rate = false_alarm_rate(of_b - of_a, clusters, comparison.settings)
        margin = row.paired.detectable
        yield Noise(metric=row.metric, n=row.paired.n, false_alarms=rate, margin=margin)


def worst_answers(base: Side, other: Side, metric: str, most: int) -> tuple[Flip, ...]:
    """The units that are most below the baseline's, of equal ones the lowest."""
    units = align_units(base, other, "B", None)
    a, b = base.scores.values[metric][units.rows_a], other.scores.values[metric][units.rows_b]
    rows = np.lexsort((b, b - a))
    return tuple(_flips(units, a, b, rows[~np.isnan((b - a)[rows])][:most]))


def _compare_groups(
    units: AlignedUnits,
    metrics: Sequence[str],
    settings: CompareOptions,
    splits: Sequence[tuple[str, Codes, tuple[str, ...]]],
) -> Iterator[GroupFigure]:
    """Yields the metrics' differences in each group of each field: codes of units, and names."""
    a, b = units.base.scores, units.other.scores
    how = settings.for_all(len(metrics) * sum(len(names) for _, _, names in splits))
    for (by, codes, names), metric in product(splits, metrics):
        where = {"metric": metric, "other": units.other.name, "by": by}
        for group in differences_by_group(
            a, b, units.rows_a, units.rows_b, metric, codes, names, units.clusters, how,
            units.base.scales.get(metric),
        ):  # fmt: skip
            yield group.model_copy(update=where)


def _splits(
    units: AlignedUnits, by: str | None, groups: Groups | None
) -> Iterator[tuple[str, Codes, tuple[str, ...]]]:
    """The fields that split the common units: the one that they were read by, then the others."""
    if by is not None:
        of_unit = units.base.scores.units["group"].take(units.rows_a)
        coded = of_unit.combine_chunks().dictionary_encode()
        names = sorted(coded.dictionary.to_pylist())
        order = np.array([names.index(name) for name in coded.dictionary.to_pylist()], np.int64)
        yield by, order[coded.indices.to_numpy()], tuple(names)
    keys = units.base.scores.units["key"].take(units.rows_a)
    if groups is not None:
        for field, (_, of_field) in groups.of.items():
            if field != by:
                yield field, groups.numbered(field, keys), of_field


def _flips(units: AlignedUnits, a: FloatArray, b: FloatArray, rows: Rows) -> Iterator[Flip]:
    of_base = units.base.scores.units.select(["sample_id", "task"]).take(units.rows_a[rows])
    of_other = units.other.scores.units["sample_id"].take(units.rows_b[rows]).to_pylist()
    for unit, other, row in zip(of_base.to_pylist(), of_other, rows, strict=True):
        yield Flip(
            **unit,
            other_id="" if other == unit["sample_id"] else other,
            direction="up" if b[row] > a[row] else "down",
            a=a[row],
            b=b[row],
        )


def _correct_p_values(
    comparisons: Sequence[MetricComparison], how: CompareOptions
) -> Iterator[MetricComparison]:
    """Adds corrected p-values, and about how many more units would show what is not."""
    raw = [metric.paired.p_value for metric in comparisons if metric.paired.p_value is not None]
    corrected = iter(zip(holm(raw), benjamini_hochberg(raw), strict=True))
    for_all = how.for_all(len(raw))
    for metric in comparisons:
        of = metric.paired
        if of.p_value is None:
            yield metric
            continue
        p_holm, p_fdr = next(corrected)
        more = None
        if p_holm > 1 - how.level and of.difference is not None and of.stderr is not None:
            more = more_to_show(of.difference, of.stderr, of.n, of.n_clusters or of.n, for_all)
        update: dict[str, object] = {"p_holm": p_holm, "p_fdr": p_fdr, "more": more}
        if p_holm > 1 - how.level and ((of.low or 0.0) > 0 or (of.high or 0.0) < 0):
            # Student's interval for all rows (Bonferroni) holds 0: Holm's correction, of sign
            # flips, took the difference back
            freedom, error = (of.n_clusters or of.n) - 1, of.stderr or 0.0
            low, high = t_interval(of.difference or 0.0, error, freedom, for_all.level)
            update["corrected"] = Interval(min(low, 0.0), max(high, 0.0))
        yield metric.model_copy(update=update)


def find_standings(
    sides: Sequence[Side],
    metrics: Sequence[str],
    cluster: str | None,
    how: CompareOptions,
    against_first: Sequence[MetricComparison],
) -> tuple[Standing, ...]:
    """Every side's standing on each metric that all sides have (of `metrics`, if these are named)
    and that enough answers and verdicts count in.

    The best has the highest figure in the same data, so p-values (Student's, paired) are corrected
    for all pairs of sides before Holm's correction over metrics and sides. Of pairs with the first
    side the comparisons `against_first` decide, as their own sentences say what they show."""
    # each side's rows of the units that all sides have, in one order
    by_side = [side.scores.units["key"].combine_chunks() for side in sides]
    keys = by_side[0]
    for others in by_side[1:]:
        keys = keys.filter(pc.is_in(keys, value_set=others))
    rows = [pc.index_in(keys, value_set=own).to_numpy().astype(np.intp) for own in by_side]
    units = sides[0].scores.units["cluster"].take(rows[0])
    clusters = clusters_of_units(units) if cluster is not None and len(units) else None
    found = [
        standing
        for name in metrics or sides[0].scores.values
        if all(name in side.scores.values for side in sides)
        and not any(
            why_undecided(*side.scores.count_left_out(name, of))
            for side, of in zip(sides, rows, strict=True)
        )
        for standing in _of_metric(sides, name, rows, clusters, how)
    ]
    for_pairs = math.comb(len(sides), 2) / (len(sides) - 1)
    corrected = holm([min(1.0, p * for_pairs) for _, p in found])
    first = sides[0].name
    below = {
        (row.metric, row.other if (row.paired.difference or 0.0) < 0 else first)
        for row in against_first
        if row.is_found(how.level)
    }
    standings = []
    for (row, _), p in zip(found, corrected, strict=True):
        is_best = first in (row.side, row.best) or p > 1 - how.level
        is_best &= (row.metric, row.side) not in below
        update = {"p_holm": p if row.best else None, "is_best": is_best}
        standings.append(row.model_copy(update=update))
    return tuple(standings)


def _of_metric(
    sides: Sequence[Side], name: str, rows: Sequence[Rows], clusters: Clusters | None,
    how: CompareOptions,
) -> Iterator[tuple[Standing, float]]:  # fmt: skip
    """Yields the sides' standings on one metric, with p-values before correction."""
    columns = [side.scores.values[name][of] for side, of in zip(sides, rows, strict=True)]
    is_scored = ~np.isnan(columns).any(axis=0)
    figures = [
        values
        for side, of in zip(sides, rows, strict=True)
        if is_scored.any() and (values := side.scores.of_figure(name, of[is_scored])) is not None
    ]
    if len(figures) < len(sides):
        return
    groups = None if clusters is None else clusters[is_scored]
    means = [float(values.mean()) for values in figures]
    best = means.index(max(means))
    if name in sides[0].scales and clips_mean(name):
        means = [cut_to(mean, sides[0].scales[name]) for mean in means]
    for at, (side, values) in enumerate(zip(sides, figures, strict=True)):
        low, high = mean_interval(values, groups, how, side.scales.get(name)) or (None, None)
        yield (
            Standing(
                metric=name, side=side.name, n=values.size, value=means[at], low=low, high=high,
                best="" if at == best else sides[best].name,
            ),
            1.0 if at == best else paired_p(figures[best], values, groups),
        )  # fmt: skip
