"""Compares every metric of every side with the first side, on the units that both have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from string import ascii_uppercase

import numpy as np
import pyarrow.compute as pc

from memray_eval.analysis.comparing.models import (
    AlignedUnits,
    Comparison,
    Flip,
    MetricComparison,
    Noise,
    Side,
    Standing,
    align_units,
)
from memray_eval.analysis.comparing.warnings import find_warnings
from memray_eval.analysis.marks import left_out, why_undecided
from memray_eval.analysis.scores import Scores
from memray_eval.analysis.statistics import (
    SETTINGS,
    TIE,
    Clusters,
    Interval,
    Paired,
    Rows,
    Settings,
    benjamini_hochberg,
    count_wins,
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
    differences_by_group,
    mark_shown,
)
from memray_eval.errors import ConfigError, suggest
from memray_eval.ports import FloatArray


def compare(
    sides: Sequence[Side],
    *,
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
    more: Groups | None = None,
    settings: Settings = SETTINGS,
    flips: int = 0,
) -> Comparison:
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
    corrected = list(_correct_p_values(compared, settings))
    return Comparison(
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
        titles={
            side.name: title for side in sides if (title := str(side.manifest.get("name", "")))
        },
        scales={
            row.metric: base.scales[row.metric] for row in compared if row.metric in base.scales
        },
        matrix=tuple(
            find_standings(sides, metrics, cluster, settings, corrected) if others[1:] else ()
        ),
    )


def _choose_metrics(a: Scores, b: Scores, metrics: Sequence[str]) -> list[str]:
    """The metrics to compare, in the order asked for, or else in A's."""
    shared = [name for name in a.values if name in b.values]
    if unknown := [name for name in metrics if name not in shared]:
        raise ConfigError(f"no metric {unknown[0]!r} in common; {suggest(unknown[0], shared)}")
    return list(metrics) or shared


def _compare_metric(
    units: AlignedUnits, name: str, settings: Settings, n_flips: int
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
    is_yes_no = both.any() and is_binary(a[both]) and is_binary(b[both])
    return MetricComparison(
        metric=name,
        other=units.other.name,
        average="micro" if name in units.base.scores.shares else "mean",
        paired=of_pairs.model_copy(update=count_wins((b - a)[both])),
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


def measure_noise(base: Side, other: Side, comparison: Comparison) -> Iterator[Noise]:
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
    settings: Settings,
    splits: Sequence[tuple[str, Codes, tuple[str, ...]]],
) -> Iterator[GroupFigure]:
    """Yields the metrics' differences in each group of each field that has a score on both sides.
    A split has the codes of the groups of the common units, and the groups' names."""
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
    comparisons: Sequence[MetricComparison], how: Settings
) -> Iterator[MetricComparison]:
    """Adds p-values corrected over all comparisons that have one, and to those that are not shown
    about how many more units would do."""
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
            update["corrected"] = _correct_interval(of, for_all)
        yield metric.model_copy(update=update)


def _correct_interval(of: Paired, how: Settings) -> Interval:
    """Student's interval at the level for all rows (Bonferroni), which holds 0: the correction that
    decides (Holm, of sign flips) took the difference back."""
    middle, units = of.difference or 0.0, of.n_clusters or of.n
    low, high = t_interval(middle, of.stderr or 0.0, units - 1, how.level)
    return Interval(min(low, 0.0), max(high, 0.0))


def find_standings(
    sides: Sequence[Side],
    metrics: Sequence[str],
    cluster: str | None,
    how: Settings,
    against_first: Sequence[MetricComparison],
) -> list[Standing]:
    """Every side's standing on each metric that all sides have (of `metrics`, if these are named)
    and that enough answers and verdicts count in.

    The best has the highest figure in the same data, so p-values (Student's, paired) are corrected
    for all pairs of sides before Holm's correction over metrics and sides. Of pairs with the first
    side the comparisons `against_first` decide, as their own sentences say what they show."""
    rows = _common_rows(sides)
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
    return [
        row.model_copy(
            update={
                "p_holm": p if row.best else None,
                "is_best": (row.metric, row.side) not in below
                and (first in (row.side, row.best) or p > 1 - how.level),
            }
        )
        for (row, _), p in zip(found, corrected, strict=True)
    ]


def _of_metric(
    sides: Sequence[Side], name: str, rows: Sequence[Rows], clusters: Clusters | None,
    how: Settings,
) -> Iterator[tuple[Standing, float]]:  # fmt: skip
    """Yields the sides' standings on one metric, with p-values before correction; none if no unit
    is scored on all sides, or one of them has nothing to divide by."""
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
    for at, (side, values) in enumerate(zip(sides, figures, strict=True)):
        low, high = mean_interval(values, groups, how, side.scales.get(name)) or (None, None)
        yield (
            Standing(
                metric=name, side=side.name, n=values.size, value=means[at], low=low, high=high,
                best="" if at == best else sides[best].name,
            ),
            1.0 if at == best else paired_p(figures[best], values, groups),
        )  # fmt: skip


def _common_rows(sides: Sequence[Side]) -> list[Rows]:
    """Each side's rows of the units that all sides have, in one order."""
    by_side = [side.scores.units["key"].combine_chunks() for side in sides]
    keys = by_side[0]
    for others in by_side[1:]:
        keys = keys.filter(pc.is_in(keys, value_set=others))
    return [pc.index_in(keys, value_set=own).to_numpy().astype(np.intp) for own in by_side]
