"""Where candidates differ, or where a single one stands out: a metric's figures by task, scenario,
prompt type, language and length of the prompt.

Two candidates are compared on the units of a group that both have. One candidate's group is set
against its figure over all units. Only ids, metric names and values are decoded, and the fields
that split. The level of intervals and tests holds for all groups of a run together, because the
largest are looked for among them."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.score_table import Records
from memray_eval.analysis.scores import (
    LOOKED_AT,
    METADATA,
    MOST_GROUPS,
    SPLIT_COLUMNS,
    Scores,
    find_cluster,
    first_of_each,
    number_clusters,
    read_all_scores,
    unit_keys,
)
from memray_eval.analysis.statistics import (
    SETTINGS,
    TIE,
    Clusters,
    CompareOptions,
    Interval,
    Rows,
    Scale,
    apart_p,
    difference_interval,
    holm,
    mean_interval,
)
from memray_eval.ports import FloatArray
from memray_eval.types import Frozen, Summary

LENGTH = "length"
MOST = 0.5  # a group has most of a difference if it has more than this share of it
LEAST = 20  # units of a group that may stand out
CHANCE = 0.01  # that any group stands out where none does: they are looked at beside all else
_MOST_LENGTHS = 8
_UNITS = ((1 << 20, "M"), (1 << 10, "k"))
Codes = npt.NDArray[np.int64]


class GroupFigure(Frozen):
    """The difference in one group of `n` units, in the metric's own scale, with its interval, whose
    level holds for all groups together; in a comparison that of `other` from A on the common units
    of a group of the field `by`. `p` is that of the hypothesis that the group is like all units
    (`apart_p`). `is_shown`: it has LEAST units and is told from all units, corrected over all
    groups (Holm)."""

    metric: str = ""
    other: str = ""
    by: str = ""
    group: str
    n: int
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    is_shown: bool = False

    @property
    def interval(self) -> Interval | None:
        return None if self.low is None or self.high is None else Interval(self.low, self.high)

    @property
    def rank(self) -> tuple[bool, float]:
        return not self.is_shown, -abs(self.difference)


class Split(NamedTuple):
    """One metric split `by` a field: of candidate `of` against another, or (`against` is "")
    against its own figure over all units. Groups that stand out come first, then the largest
    differences."""

    metric: str
    by: str
    of: str
    against: str
    scale: tuple[float, float]
    groups: tuple[GroupFigure, ...]

    @property
    def width(self) -> float:
        return (self.scale[1] - self.scale[0]) or 1.0

    @property
    def is_shown(self) -> bool:
        return self.groups[0].is_shown

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """With a group that stands out first, themes before lengths, then the largest."""
        return not self.is_shown, self.by == LENGTH, -abs(self.groups[0].difference) / self.width


@dataclass(frozen=True)
class Groups:
    """How fields split units: for each field the number of each unit's group, and their names."""

    keys: pa.Array
    of: Mapping[str, tuple[Codes, tuple[str, ...]]]

    def numbered(self, field: str, keys: pa.Array | pa.ChunkedArray) -> Codes:
        """The number of the group of each of these units, -1 for a unit that is not known."""
        rows = pc.index_in(keys, value_set=self.keys).fill_null(-1).to_numpy().astype(np.int64)
        codes, _ = self.of[field]
        return np.where(rows < 0, -1, codes[rows])


def read_groups(records: Records) -> Groups:
    """Reads which of SPLIT_COLUMNS, and of the prompts' lengths, split the units into 2 to
    MOST_GROUPS groups. A field that splits as an earlier one does is left out."""
    table = records.to_table(columns=["sample_id", *SPLIT_COLUMNS, METADATA, "prompt_tokens"])
    keys = unit_keys(table)
    kept = first_of_each(keys)
    table = table.take(kept)
    splits: dict[str, tuple[Codes, tuple[str, ...]]] = {}
    named = {name: pc.fill_null(table[name], "") for name in SPLIT_COLUMNS}
    # what the samples' metadata say, else the tokens of the prompts
    lengths = table["prompt_tokens"].cast(pa.float64()).to_numpy()
    if any(_length_of(text) is not None for text in table[METADATA][:LOOKED_AT].to_pylist()):
        # None becomes NaN
        lengths = np.array([_length_of(text) for text in table[METADATA].to_pylist()], np.float64)
    if not np.isnan(lengths).all():
        named[LENGTH] = pa.chunked_array([pa.array(_bin_lengths(lengths), pa.string())])
    for name, texts in named.items():
        coded = texts.combine_chunks().dictionary_encode()
        codes, names = coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()
        is_new = all(
            len(set(zip(codes.tolist(), other.tolist(), strict=True))) > len(names)
            or len(names) != len(others)
            for other, others in splits.values()
        )
        if 1 < len(names) <= MOST_GROUPS and is_new:
            splits[name] = codes, tuple(names)
    return Groups(keys.take(kept).combine_chunks(), splits)


def _length_of(metadata: str | None) -> float | None:
    value: Any = json.loads(metadata or "{}").get(LENGTH)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value > 0 and math.isfinite(value) else None


def _bin_lengths(lengths: FloatArray) -> list[str]:
    """Names a power of two for each length, or of four or sixteen where there are many."""
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.ceil(np.log2(np.maximum(lengths, 1.0)))
    step = 1
    while np.unique(bins := np.ceil(powers / step) * step).size - np.isnan(bins).any() > (
        _MOST_LENGTHS
    ):
        step *= 2
    return ["" if np.isnan(power) else f"up to {length_label(2.0**power)}" for power in bins]


def length_label(length: float) -> str:
    """A number of tokens in five characters at most: 512, 4k (4,096), ~98k (100,000), ~1.4M."""
    for unit, suffix in _UNITS:
        if length >= unit and length % unit == 0:
            return f"{length / unit:.0f}{suffix}"
    if length < 10_000:
        return f"{length:.0f}"
    unit, suffix = _UNITS[0] if length >= 1000 * 1024 else _UNITS[1]
    return f"~{length / unit:.{int(length / unit < 9.95)}f}{suffix}"


def differences_by_group(
    a: Scores, b: Scores, rows_a: Rows, rows_b: Rows, metric: str, codes: Codes,
    names: Sequence[str], clusters: Clusters | None, how: CompareOptions,
    scale: Scale | None = None,
) -> Iterator[GroupFigure]:  # fmt: skip
    """Yields the difference b - a of a metric's figures in each group that has units scored on both
    sides. `codes` number the groups of the units in `rows_a` and `rows_b`, which are the same."""
    both = np.flatnonzero(~np.isnan(a.values[metric][rows_a]) & ~np.isnan(b.values[metric][rows_b]))
    whole = [side.of_figure(metric, of[both]) for side, of in ((a, rows_a), (b, rows_b))]
    of_clusters = None if clusters is None else clusters[both]
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes[both] == code)
        if not rows.size:
            continue
        in_group = both[rows]
        of_a, of_b = a.of_figure(metric, rows_a[in_group]), b.of_figure(metric, rows_b[in_group])
        if of_a is None or of_b is None or whole[0] is None or whole[1] is None:
            continue
        in_clusters = None if clusters is None else clusters[in_group]
        ends = difference_interval(of_a, of_b, in_clusters, how, scale)
        low, high = ends or (None, None)
        p = apart_p(rows, of_b - of_a, whole[1] - whole[0], of_clusters)
        difference = float((of_b - of_a).mean())
        yield GroupFigure(group=name, n=rows.size, difference=difference, low=low, high=high, p=p)


def deviations_by_group(
    scores: Scores, metric: str, codes: Codes, names: Sequence[str],
    clusters: Clusters | None, settings: CompareOptions, scale: Scale = (0.0, 1.0),
) -> Iterator[GroupFigure]:  # fmt: skip
    """Yields how far a metric's figure in each group is from its figure over all units, with an
    interval that ends where the scale does.

    The figure over all units is w group + (1 - w) rest, so the deviation is (1 - w) (group - rest);
    the interval of group - rest is made from the intervals of both (the method of variance
    estimates recovery: Newcombe 1998 for shares, Zou and Donner 2008). w is the group's share of
    the units or, for a ratio, of its whole."""
    scored = ~np.isnan(scores.values[metric])
    every = np.flatnonzero(scored)
    of_all = scores.of_figure(metric, every)
    of_clusters = None if clusters is None else clusters[every]
    weights = scores.shares[metric][1] if metric in scores.shares else scored.astype(np.float64)
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    for code, name in enumerate(names):
        group, rest = (np.flatnonzero(scored & is_in) for is_in in (codes == code, codes != code))
        if not group.size or not rest.size:
            continue
        sides = [scores.of_figure(metric, rows) for rows in (group, rest)]
        if sides[0] is None or sides[1] is None or of_all is None:
            continue
        shares = [(side - low) / width for side in sides if side is not None]
        means = [float(side.mean()) for side in shares]
        ends = [
            mean_interval(side, None if clusters is None else clusters[rows], settings)
            for side, rows in zip(shares, (group, rest), strict=True)
        ]
        away = float(weights[rest].sum() / weights[scored].sum()) * width
        apart = means[0] - means[1]
        limits: tuple[float, float] | tuple[None, None] = None, None
        if ends[0] is not None and ends[1] is not None:
            below = math.hypot(means[0] - ends[0].low, ends[1].high - means[1])
            above = math.hypot(ends[0].high - means[0], means[1] - ends[1].low)
            is_within = all(-TIE <= mean <= 1.0 + TIE for mean in means)  # of criteria it may not
            least, most = (-means[1], 1 - means[1]) if is_within else (-math.inf, math.inf)
            limits = away * max(least, apart - below), away * min(most, apart + above)
        yield GroupFigure(
            group=name,
            n=group.size,
            difference=away * apart,
            low=limits[0],
            high=limits[1],
            p=apart_p(np.searchsorted(every, group), sides[0], of_all, of_clusters),
        )


def mark_shown(groups: Sequence[GroupFigure]) -> list[GroupFigure]:
    """Marks the groups that stand out among all of these: of LEAST units, by Holm's correction."""
    tested = {
        at: group.p for at, group in enumerate(groups) if group.n >= LEAST and group.p is not None
    }
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        group.model_copy(update={"is_shown": corrected.get(at, 1.0) <= CHANCE})
        for at, group in enumerate(groups)
    ]


@dataclass(frozen=True)
class RunScores:
    """The scores of a run's candidates, the groups of its units, and the key that clusters them."""

    of: Mapping[str, Scores]
    groups: Groups
    cluster: str | None = None


def read_run_scores(records: Records, summary: Summary) -> RunScores:
    """Reads the scores of all candidates that a run's summary has metrics of."""
    cluster = find_cluster(records)
    names = dict.fromkeys(metric.candidate for metric in summary.metrics)
    return RunScores(read_all_scores(records, names, cluster), read_groups(records), cluster)


def find_places(run: RunScores, summary: Summary) -> list[Split]:
    """Splits every metric of a finished run by every field that splits its units, the largest
    difference first: of two candidates (of more than two, the one with the highest figure and the
    one with the lowest), or of the single candidate from its own figure."""
    pairs = {
        metric.metric: pair for metric in summary.metrics if (pair := _pair(summary, metric.metric))
    }
    how = SETTINGS.for_all(len(pairs) * sum(len(names) for _, names in run.groups.of.values()))
    splits = []
    for metric, (of, against) in pairs.items():
        if not all(metric in run.of[name].values for name in (of, against) if name):
            continue
        scale = next(row.scale for row in summary.metrics if row.metric == metric)
        for by in run.groups.of:
            groups = _by_group(run, of, against, metric, by, how, scale)
            splits.append(Split(metric, by, of, against, scale, tuple(groups)))
    marked = iter(mark_shown([group for split in splits for group in split.groups]))
    return sort_splits(
        split._replace(groups=tuple(islice(marked, len(split.groups)))) for split in splits
    )


def sort_splits(splits: Iterable[Split]) -> list[Split]:
    """Those of two groups or more, the ones that say most first, and their groups likewise."""
    ordered = [
        split._replace(groups=tuple(sorted(split.groups, key=lambda group: group.rank)))
        for split in splits
        if len(split.groups) > 1
    ]
    return sorted(ordered, key=lambda split: split.rank)


def _pair(summary: Summary, metric: str) -> tuple[str, str] | None:
    """The candidate whose metric is split, and the one that it is compared with or ""."""
    order = [candidate.candidate for candidate in summary.candidates]
    figures = {
        row.candidate: row.figure.value
        for row in summary.metrics
        if row.metric == metric and row.figure.value is not None and row.candidate in order
    }
    if not figures:
        return None
    if len(order) == 1:
        return order[0], ""
    if len(figures) < 2:
        return None
    if len(order) == 2:
        wins = Counter(pair.a for pair in summary.differences if pair.is_shown)
        of, against = sorted(order, key=lambda name: -wins[name])
        return of, against
    rising = sorted(figures, key=lambda name: figures[name])
    return rising[-1], rising[0]


def _by_group(
    run: RunScores, of: str, against: str, metric: str, by: str, how: CompareOptions, scale: Scale
) -> Iterator[GroupFigure]:
    scores, names = run.of[of], run.groups.of[by][1]
    other = run.of[against] if against else scores
    rows_a, rows_b = common_rows(other, scores)
    units = scores.units.select(["key", "cluster"]).take(rows_b)
    codes, clusters = run.groups.numbered(by, units["key"]), clusters_of_units(units["cluster"])
    if not against:
        return deviations_by_group(scores, metric, codes, names, clusters, how, scale)
    return differences_by_group(
        other, scores, rows_a, rows_b, metric, codes, names, clusters, how, scale
    )


def common_rows(a: Scores, b: Scores) -> tuple[Rows, Rows]:
    """The rows of the units that both have, in the order of `b`."""
    places = pc.index_in(b.units["key"], value_set=a.units["key"].combine_chunks())
    rows_b = np.flatnonzero(places.is_valid().to_numpy())
    return places.drop_null().to_numpy().astype(np.intp), rows_b


def clusters_of_units(named: pa.ChunkedArray) -> Clusters | None:
    """Numbers the clusters of units; None if no unit names one."""
    return None if named.null_count == len(named) else number_clusters(named)


def main_group(groups: Sequence[GroupFigure]) -> str | None:
    """The group that stands out with most of a difference, and not simply of the units."""
    total = sum(group.n * group.difference for group in groups)
    if len(groups) < 2 or not total:
        return None
    top = max(groups, key=lambda group: group.n * group.difference / total)
    has_most = top.n * top.difference / total > MOST
    is_even = top.n > MOST * sum(group.n for group in groups)
    return top.group if top.is_shown and has_most and not is_even else None


def places_of(splits: Iterable[Split]) -> dict[str, str]:
    """The place that has most of each metric's difference, such as "task billing"."""
    groups: dict[str, str] = {}
    for split in splits:
        if split.against and (group := main_group(split.groups)) is not None:
            groups.setdefault(split.metric, f"{split.by} {group or 'unnamed'}")
    return groups


def places_in_words(places: Mapping[str, str], most: int) -> list[str]:
    """Says where metrics differ, of up to `most` metrics; "" stands for no place."""
    if len(set(places.values())) == 1:
        return [f"most of it in {group}" for group in set(places.values()) if group]
    sentences = [f"{metric} mostly in {group}" for metric, group in places.items() if group]
    return sentences[:most]
