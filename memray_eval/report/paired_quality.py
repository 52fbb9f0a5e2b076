"""Measures how the qualities of a run's candidates differ, pair by pair, on the prompts that both
answered, with the statistics of `compare`.

Only ids, metric names and values are decoded, and the key that groups units, if samples name one.
What stays in memory is one number per prompt and candidate. A unit written twice counts once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.metric import Metric
from memray_eval.ports import FloatArray
from memray_eval.report.scores import METADATA, clusters_of, find_cluster, number_clusters
from memray_eval.report.statistics import (
    TIE,
    Clusters,
    Settings,
    clustered_error,
    difference_interval,
    standard_error,
    units_to_show,
)
from memray_eval.types import QualityPair

_SCORE = "scores.list.element"
_COLUMNS = ("sample_id", "task", "candidate", f"{_SCORE}.metric", f"{_SCORE}.value")
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
    values, clusters = _read_qualities(records, headline, candidates)
    how = Settings(level=1 - (1 - level) / len(pairs))
    return tuple(
        pair_of(a, b, values[candidates.index(a)], values[candidates.index(b)], clusters, how)
        for a, b in pairs
    )


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
    records: pads.Dataset, headline: Metric, candidates: Sequence[str]
) -> tuple[FloatArray, Clusters | None]:
    """Reads qualities in 0-1, one row per candidate and one column per prompt, and the cluster of
    each prompt, or None if prompts are independent."""
    cluster = find_cluster(records)
    columns = (*_COLUMNS, METADATA) if cluster else _COLUMNS
    rows = pa.concat_tables(
        [_read_rows(file, columns, headline) for file in records.get_fragments()]
    )
    prompts = pc.binary_join_element_wise(
        rows["sample_id"], pc.fill_null(rows["task"], ""), "\x1f"
    ).combine_chunks()
    coded = prompts.dictionary_encode()
    place = coded.indices.to_numpy()
    whose = pc.index_in(rows["candidate"], pa.array(candidates)).to_numpy()
    low, high = headline.scale
    values = np.full((len(candidates), len(coded.dictionary)), np.nan)
    shares = (rows["value"].to_numpy() - low) / ((high - low) or 1.0)
    known = ~np.isnan(shares) & ~np.isnan(whose.astype(np.float64))
    values[whose[known].astype(np.intp), place[known]] = shares[known]
    if cluster is None:
        return values, None
    names = np.empty(len(coded.dictionary), dtype=object)
    names[place] = clusters_of(rows[METADATA], METADATA, cluster)
    return values, number_clusters(pa.chunked_array([pa.array(names.tolist(), pa.string())]))


def _read_rows(
    file: pads.ParquetFileFragment, columns: Sequence[str], headline: Metric
) -> pa.Table:
    """Reads one row per unit, with its value of the headline metric, NaN without one."""
    with file.open() as stream:
        table = pq.ParquetFile(stream).read(columns=list(columns))
    scores = table["scores"].combine_chunks()
    unit, each = pc.list_parent_indices(scores).to_numpy(), scores.flatten()
    wanted = pc.equal(pc.struct_field(each, "metric"), headline.name).to_numpy(zero_copy_only=False)
    values = np.full(len(table), np.nan)
    values[unit[wanted]] = pc.struct_field(each, "value").to_numpy(zero_copy_only=False)[wanted]
    return table.drop_columns(["scores"]).append_column("value", pa.array(values))
