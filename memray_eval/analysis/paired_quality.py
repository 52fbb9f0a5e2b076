"""Measures how the qualities of a run's candidates differ, pair by pair, on the prompts that both
answered, with the statistics of `compare`.

Only ids, metric names and values are decoded, and the key that groups units, if samples name one.
What stays in memory is one number per prompt and candidate. A unit written twice counts once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import ScoreTable, fields_of_shares, read_score_tables
from memray_eval.analysis.scores import METADATA, clusters_of, find_cluster, number_clusters
from memray_eval.analysis.statistics import (
    TIE,
    Clusters,
    Rows,
    Settings,
    clustered_error,
    difference_interval,
    standard_error,
    units_to_show,
)
from memray_eval.metric import Metric, linearise_ratio
from memray_eval.ports import FloatArray
from memray_eval.types import MetricSummary, QualityPair

_COLUMNS = ("sample_id", "task", "candidate")
_POINTS = 100.0


def paired_qualities(
    records: pads.Dataset, headline: Metric, candidates: Sequence[str], level: float = 0.95
) -> tuple[QualityPair, ...]:
    """Compares every pair of candidates by the headline metric, its scale laid over 0-100. `level`
    holds for all intervals together (Bonferroni): the chance that any pair of equal candidates is
    told apart is at most 1 - level."""
    pairs = list(combinations(candidates, 2))
    if not pairs:
        return ()
    qualities = _read_qualities(records, [headline], candidates)
    how = Settings(level=1 - (1 - level) / len(pairs))
    return tuple(qualities.pair(headline, a, b, how) for a, b in pairs)


def differences_from_best(
    records: pads.Dataset, metrics: Sequence[MetricSummary], by_name: Mapping[str, Metric]
) -> tuple[QualityPair, ...]:
    """Compares, for each metric, every candidate (b) with the one of the highest figure (a). The
    level holds for all pairs of candidates and all metrics together: which is best is seen in the
    same data."""
    rated: dict[str, dict[str, float]] = {}
    for one in metrics:
        if one.figure.value is not None and one.metric in by_name:
            rated.setdefault(one.metric, {})[one.candidate] = one.figure.value
    compared = {name: figures for name, figures in rated.items() if len(figures) > 1}
    candidates = sorted({name for figures in compared.values() for name in figures})
    if not compared:
        return ()
    n_pairs = len(compared) * math.comb(len(candidates), 2)
    how = Settings(level=1 - (1 - Settings().level) / n_pairs)
    qualities = _read_qualities(records, [by_name[name] for name in compared], candidates)
    return tuple(
        qualities.pair(by_name[name], best, other, how)
        for name, figures in compared.items()
        for best in [max(sorted(figures), key=lambda one: figures[one])]
        for other in sorted(figures)
        if other != best
    )


@dataclass(frozen=True)
class _Qualities:
    """By metric and candidate, part and whole of each prompt's quality in 0-1, NaN without one; and
    the cluster of each prompt, None if prompts are independent."""

    of: Mapping[tuple[str, str], tuple[FloatArray, FloatArray]]
    clusters: Clusters | None

    def pair(self, metric: Metric, a: str, b: str, how: Settings) -> QualityPair:
        both = ~np.isnan(self.of[metric.name, a][0]) & ~np.isnan(self.of[metric.name, b][0])
        of_a, of_b = (
            self._figures(metric, candidate, np.flatnonzero(both)) for candidate in (a, b)
        )
        found = pair_of(a, b, of_a, of_b, self.clusters, how)
        return found.model_copy(update={"metric": metric.name})

    def _figures(self, metric: Metric, candidate: str, rows: Rows) -> FloatArray:
        """A column of which the mean over `rows` is the metric's figure over them."""
        part, whole = self.of[metric.name, candidate]
        figures = np.full(part.size, np.nan)
        found = part[rows] if metric.pooled is None else linearise_ratio(part[rows], whole[rows])
        if found is not None:
            figures[rows] = found
        return figures


def pair_of(
    a: str,
    b: str,
    of_a: FloatArray,
    of_b: FloatArray,
    clusters: Clusters | None = None,
    settings: Settings | None = None,
) -> QualityPair:
    """Compares two columns of qualities in 0-1, one row per prompt, NaN for a missing one."""
    how, both = settings or Settings(), ~np.isnan(of_a) & ~np.isnan(of_b)
    groups = None if clusters is None else clusters[both]
    left, right = of_a[both], of_b[both]
    found = QualityPair(a=a, b=b, n=left.size, level=how.level)
    if not left.size:
        return found
    difference = float((right - left).mean())
    error = (
        standard_error(right - left) if groups is None else clustered_error(right - left, groups)
    ) or 0.0
    units = left.size if groups is None else int(np.unique(groups).size)
    interval = difference_interval(left, right, groups, how)
    if interval is not None:
        is_shown = interval.low > 0 or interval.high < 0
    else:  # no spread: only the number of units can tell
        is_shown = abs(difference) > TIE and 2.0 ** (1 - units) < 1 - how.level
    needed = None if is_shown else units_to_show(difference, error, units, how)
    return found.model_copy(
        update={
            "difference": _POINTS * difference,
            "low": interval and _POINTS * interval.low,
            "high": interval and _POINTS * interval.high,
            "is_shown": is_shown,
            "more": None if needed is None else max(1, round(left.size * (needed / units - 1))),
        }
    )


def _read_qualities(
    records: pads.Dataset, metrics: Sequence[Metric], candidates: Sequence[str]
) -> _Qualities:
    """Reads the qualities by all prompts of the run."""
    cluster = find_cluster(records)
    columns = (*_COLUMNS, METADATA) if cluster else _COLUMNS
    tables = read_score_tables(records, columns, fields_of_shares(metrics))
    rows = pa.concat_tables([_to_rows(table, metrics) for table in tables])
    prompts = pc.binary_join_element_wise(
        rows["sample_id"], pc.fill_null(rows["task"], ""), "\x1f"
    ).combine_chunks()
    coded = prompts.dictionary_encode()
    place = coded.indices.to_numpy()
    whose = pc.index_in(rows["candidate"], pa.array(candidates)).fill_null(-1).to_numpy()
    found = {}
    for metric in metrics:
        low, width = metric.scale[0], (metric.scale[1] - metric.scale[0]) or 1.0
        part, whole = (rows[f"{kind} {metric.name}"].to_numpy() for kind in ("part", "whole"))
        share = (part - low * whole) / width
        for code, name in enumerate(candidates):
            of_it = np.flatnonzero((whose == code) & ~np.isnan(share))
            columns_of_it = np.full((2, len(coded.dictionary)), np.nan)
            columns_of_it[:, place[of_it]] = share[of_it], whole[of_it]
            found[metric.name, name] = columns_of_it[0], columns_of_it[1]
    if cluster is None:
        return _Qualities(found, None)
    names = np.empty(len(coded.dictionary), dtype=object)
    names[place] = clusters_of(rows[METADATA], METADATA, cluster)
    numbered = number_clusters(pa.chunked_array([pa.array(names.tolist(), pa.string())]))
    return _Qualities(found, numbered)


def _to_rows(table: ScoreTable, metrics: Sequence[Metric]) -> pa.Table:
    """One row per unit, with part and whole of its value of each metric, NaN without one."""
    codes = table.codes([metric.name for metric in metrics])
    rows = pa.Table.from_batches([table.units])
    for kind, column in zip(("part", "whole"), table.shares(metrics), strict=True):
        for code, metric in enumerate(metrics):
            of_units = pa.array(table.by_unit(codes == code, column))
            rows = rows.append_column(f"{kind} {metric.name}", of_units)
    return rows
