"""Several answers a sample: the share of samples on which any and on which all of them are right,
and the variance of scores, split into that between samples and that between the draws of one.

Of a sample with c of n answers right, pass@k = 1 - C(n-c, k) / C(n, k) (Chen et al. 2021) and
pass^k = C(c, k) / C(n, k) (tau-bench, Yao et al. 2024); their means over samples are unbiased. The
variances are those of one-way random effects by ANOVA: of draws MSW, of samples (MSB - MSW) / n."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from memray_eval.analysis.score_table import Records
from memray_eval.analysis.scores import (
    ESTIMATED,
    METADATA,
    Scores,
    candidates_of,
    count_epochs,
    find_cluster,
    read_all_scores,
)
from memray_eval.analysis.statistics import (
    TIE,
    Clusters,
    code_names,
    expand_level,
    paired,
    percentile_interval,
    resample_clusters,
    wilson_interval,
)
from memray_eval.metric import Metric
from memray_eval.ports import FloatArray
from memray_eval.types import Bounded, EpochFigures, PassFigures, TwinDifference
from memray_eval.types.samples import EXPECTS

LEVEL, RESAMPLES = 0.95, 1000
MOST_GROUPS = 5000  # more samples are drawn several at a time: as exact, and as fast
SHOWN_K = (1, 2, 3, 4, 5, 10, 20, 50, 100)


def summarise_epochs(
    records: Records, metrics: Sequence[Metric], right_from: Mapping[str, float]
) -> tuple[EpochFigures, ...]:
    """The figures of each metric and candidate, if there are several answers a sample. An answer is
    right from `right_from` on, or at the top of a scale from 0 whose ends alone were scored."""
    if count_epochs(records) == 1:
        return ()
    cluster, names = find_cluster(records), [metric.name for metric in metrics]
    figures = []
    for candidate in candidates_of(records):
        read = read_all_scores(records, [candidate], cluster, metrics=names, by_epoch=True)
        scores = read[candidate]
        samples = code_names(keys := scores.units["key"])
        clusters = code_names(pc.coalesce(scores.units["cluster"], keys))
        groups = clusters[np.unique(samples, return_index=True)[1]]
        for metric in metrics if scores.epochs > 1 else ():
            values = scores.values.get(metric.name, np.zeros(0))
            if not (scored := values[~np.isnan(values)]).size:
                continue
            is_binary = metric.scale[0] == 0.0 and np.isin(scored, metric.scale).all()
            bound = right_from.get(metric.name, metric.scale[1] if is_binary else None)
            of_metric = measure_epochs(values, samples, groups, scores.epochs, bound)
            named = {"metric": metric.name, "candidate": candidate}
            figures.append(of_metric.model_copy(update=named))
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
    means = np.bincount(of, scored - middle, n_samples) / np.maximum(n, 1)
    within = np.bincount(of, (scored - middle - means[of]) ** 2, n_samples)
    has = n > 0
    columns = np.stack([has, n, n * means, n * means**2, within, n**2])[:, has]
    of_all, of_draws, n_groups = _add_up(list(columns), groups[has])
    (between, draws), (between_drawn, draws_drawn) = map(_variances, (of_all, of_draws))
    is_right = scored >= (np.inf if right_from is None else right_from - TIE)
    right = np.bincount(of[is_right], minlength=n_samples).astype(np.float64)
    ks = sorted({*(k for k in SHOWN_K if k < epochs), epochs}) if right_from is not None else ()
    return EpochFigures(
        epochs=epochs,
        n_samples=int(np.count_nonzero(n > 1)),
        between_samples=_bounded(between.clip(0.0), between_drawn.clip(0.0), n_groups),
        between_draws=_bounded(draws, draws_drawn, n_groups),
        is_floored=bool(between < 0.0),
        right_from=right_from,
        passes=tuple(_passes(n, right, k, groups) for k in ks),
    )


def _add_up(
    columns: Sequence[npt.ArrayLike], groups: Clusters
) -> tuple[FloatArray, FloatArray, int]:
    """The columns' sums over samples, those of RESAMPLES draws of groups, and how many groups."""
    codes = np.unique(groups, return_inverse=True)[1] % MOST_GROUPS
    sums = np.stack([np.bincount(codes, np.asarray(column)) for column in columns], axis=1)
    drawn = []
    for rows in resample_clusters(len(sums), RESAMPLES, seed=0):
        places = rows + len(sums) * np.arange(len(rows))[:, None]
        counts = np.bincount(places.ravel(), minlength=rows.size).reshape(rows.shape)
        drawn.append(counts.astype(np.float64) @ sums)
    return sums.sum(axis=0), np.concatenate(drawn), len(sums)


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
    has, i = n >= k, np.arange(k)[:, None]
    if not has.any():
        return PassFigures(k=k, n_samples=0)
    n, right = n[has], right[has]
    none = np.prod(np.maximum(n - right - i, 0) / (n - i), axis=0)
    every = np.prod(np.maximum(right - i, 0) / (n - i), axis=0)
    of_all, of_draws, n_groups = _add_up([np.ones(n.size), 1.0 - none, every], groups[has])
    shares, drawn = of_all[1:] / of_all[0], of_draws.T[1:] / of_draws.T[0]
    any_right, all_right = (_bounded(*of, n_groups, True) for of in zip(shares, drawn, strict=True))
    return PassFigures(k=k, n_samples=n.size, any_right=any_right, all_right=all_right)


def _bounded(
    value: FloatArray | np.floating, drawn: FloatArray, n_groups: int, is_share: bool = False
) -> Bounded | None:
    """A figure with its percentile interval, Wilson's for a share of 0 or 1; None without one."""
    figure, interval = float(value), None
    if np.isnan(figure):
        return None
    drawn = drawn[~np.isnan(drawn)]
    if drawn.size and np.ptp(drawn) > TIE:
        interval = percentile_interval(drawn, expand_level(LEVEL, n_groups))
    elif is_share and round(figure, 9) in (0.0, 1.0):
        interval = wilson_interval(round(figure) * n_groups, n_groups, LEVEL)
    return Bounded(value=figure, **(interval._asdict() if interval else {}))


CONDUCTS = ("memory_conduct", "judged_conduct")  # 0 where it must not be told: it was revealed
METRICS = (*CONDUCTS, "memory_utilization", "helpfulness")
SECOND = frozenset({"twin", "b"})
LEAST = 5  # pairs: of fewer an interval says nothing
Pair: TypeAlias = tuple[str, str]  # sample ids


class _Kind(NamedTuple):
    """Pairs compared together. `reveals`: the first side must not be told what the second must."""

    task: str
    attribute: str
    sides: tuple[str, str]
    reveals: bool


def twin_differences(
    records: Records, candidates: Sequence[str], metrics: Sequence[str]
) -> tuple[TwinDifference, ...]:
    """The second side less the first, by candidate, metric and kind of pair."""
    compared = [name for name in METRICS if name in metrics]
    pairs = _find_pairs(records) if compared else {}
    scores = read_all_scores(records, candidates, metrics=compared) if pairs else {}
    return tuple(
        _compare(of_candidate, pairs[kind], name, metric, kind)
        for name, of_candidate in scores.items()
        for metric in compared
        if not np.isnan(of_candidate.values.get(metric, np.nan)).all()
        for kind in sorted(pairs)
    )


def _compare(
    scores: Scores, pairs: Sequence[Pair], name: str, metric: str, kind: _Kind
) -> TwinDifference:
    values, units = scores.values[metric], (scores.units[key] for key in ("sample_id", "task"))
    keys = zip(*(column.to_pylist() for column in units), strict=True)
    row_of = {key: row for row, key in enumerate(keys) if not np.isnan(values[row])}
    rows = [[row_of.get((sample_id, kind.task)) for sample_id in pair] for pair in pairs]
    rows_a, rows_b = np.array([r for r in rows if None not in r], np.intp).reshape(-1, 2).T
    is_estimate = scores.kinds[metric][np.concatenate([rows_a, rows_b])] == ESTIMATED
    twin = TwinDifference(
        candidate=name, metric=metric, n=rows_a.size, estimates=int(is_estimate.sum()),
        **kind._asdict() | {"reveals": kind.reveals and metric in CONDUCTS},
    )  # fmt: skip
    if rows_a.size < LEAST:
        return twin.model_copy(update={"why": f"fewer than {LEAST} pairs"})
    a, b = scores.of_figure(metric, rows_a), scores.of_figure(metric, rows_b)
    if a is None or b is None:
        return twin.model_copy(update={"why": "nothing to divide by"})
    fields = {"mean_a", "mean_b", "difference", "low", "high"}
    return twin.model_copy(update=paired(a, b).model_dump(include=fields))


def _find_pairs(records: Records) -> dict[_Kind, list[Pair]]:
    table = records.to_table(columns=["sample_id", "task", METADATA])
    cases: defaultdict[tuple[str, ...], dict[str, tuple[str, dict[str, Any]]]] = defaultdict(dict)
    for sample_id, task, text in zip(*(column.to_pylist() for column in table), strict=True):
        about = json.loads(text) if text and '"kind"' in text else {}
        if {"case", "kind"} <= about.keys():
            kind, entries = str(about["kind"]), str(about.get("entries", ""))
            cases[task or "", str(about["case"]), entries][kind] = sample_id, about
    pairs: defaultdict[_Kind, list[Pair]] = defaultdict(list)
    for (task, *_), sides in cases.items():
        seconds = (kind for kind in sides if kind in SECOND or kind.endswith("-absent"))
        second = next(seconds, None)
        if second is None or len(sides) != 2:
            continue
        first = next(kind for kind in sides if kind != second)
        (id_a, about_a), (id_b, about_b) = sides[first], sides[second]
        must_not, must = (about.get(EXPECTS) or {} for about in (about_a, about_b))
        reveals = must_not.keys() == {"not"} and "say" in must
        attribute = str(about_b.get("attribute", ""))
        pairs[_Kind(task, attribute, (first, second), reveals)].append((id_a, id_b))
    return _name_people(records, pairs)


def _name_people(records: Records, pairs: Mapping[_Kind, list[Pair]]) -> dict[_Kind, list[Pair]]:
    """The pairs by kinds with what two people are, such as woman and man, in place of a and b."""
    named = {sample_id for kind, ids in pairs.items() if kind.attribute for sample_id in ids[0]}
    if not named:
        return dict(pairs)
    is_named = pc.field("sample_id").isin(sorted(named))
    table = records.to_table(columns=["sample_id", "memory"], filter=is_named)
    memories = dict(zip(*(column.to_pylist() for column in table), strict=True))

    def name(kind: _Kind, pair: Pair) -> _Kind:
        if not kind.attribute:
            return kind
        people = (json.loads(memories[side] or "{}").get(f"user_{kind.attribute}") for side in pair)
        first, second = (str(is_ or side) for is_, side in zip(people, kind.sides, strict=True))
        return kind._replace(sides=(first, second))

    return {name(kind, ids[0]): ids for kind, ids in pairs.items()}
