"""Reads a run's scores as columns of ids, names and values; and the texts of a few units."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.marks import mark
from memray_eval.analysis.score_table import (
    Records,
    RunTable,
    ScoreTable,
    column_statistics,
    score_columns,
    shares,
)
from memray_eval.analysis.statistics import (
    FEW_CLUSTERS,
    TIE,
    Clusters,
    Interval,
    Rows,
    cut_to,
    error_by_cluster,
    figures_interval,
    standard_error,
)
from memray_eval.metric import Pooled, linearise_ratio
from memray_eval.metrics import all_metrics
from memray_eval.ports import FloatArray
from memray_eval.results.schema import from_table_apart
from memray_eval.types import (
    CLUSTER_KEYS,
    FALLBACKS,
    SESSION,
    MetricSummary,
    Record,
    Summary,
    id_text,
    is_estimate,
)

_UNIT = ("sample_id", "task", "suite", "candidate")
_OF_SCORE = ("metric", "value", "judge", "status")
_LOST = ("no_answer", "abstained")  # statuses
_NO_ANSWER, _EPOCH = "no_answer", "epoch"  # which records of older versions lack
LOOKED_AT = 1000  # records; if none of these has such a key, the others are not searched
CLUSTER_COLUMNS = ("sample_id", "task", "scenario", "prompt_type", "language")
SPLIT_COLUMNS = ("task", "scenario", "prompt_type", "language")
MOST_GROUPS = 50
_FILES_AT_ONCE = 4
METADATA = "metadata"
ESTIMATED, REPLACED = 1, 2
Kinds: TypeAlias = npt.NDArray[np.int8]
_BETWEEN = "\x1f"  # separates sample id and task in a unit's key, kind and metric of a column


@dataclass(frozen=True)
class Scores:
    """One candidate's scores, a row a unit (NaN: no score). `kinds` tells by metric and unit
    ESTIMATED and REPLACED (a rule's, because the judge failed) from a judge's (0); `shares` are
    part and whole of pooled metrics. `lost` marks the answers that are none under `on_no_answer:
    exclude`, and the verdicts that could not be used. `n_no_answer` of `n_answers` are none (None:
    an older version did not count). With up to `epochs` answers a unit is their mean, unless they
    are read apart."""

    units: pa.Table
    values: Mapping[str, FloatArray]
    suites: tuple[str, ...]
    kinds: Mapping[str, Kinds] = field(default_factory=dict)
    shares: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    lost: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = field(default_factory=dict)
    n_no_answer: int | None = None
    n_answers: int = 0
    epochs: int = 1

    def of_figure(self, metric: str, rows: Rows) -> FloatArray | None:
        """Figures of these units, all scored, of which the mean is the metric's figure over them,
        and the standard error its own. None where there is nothing to divide by."""
        if metric not in self.shares:
            return self.values[metric][rows]
        part, whole = self.shares[metric]
        return linearise_ratio(part[rows], whole[rows])

    def mark_of(self, metric: str, rows: Rows) -> str:
        """The mark of a metric's figure over these units, all scored."""
        kinds = self.kinds[metric][rows] if metric in self.kinds else np.zeros(rows.size)
        return mark(
            rows.size, *(int(np.count_nonzero(kinds == kind)) for kind in (ESTIMATED, REPLACED))
        )

    def count_left_out(self, metric: str, rows: Rows) -> tuple[int, int, int]:
        """What `marks.left_out` takes, of these units."""
        if metric not in self.lost:
            return 0, 0, 0
        lost = [column[rows] for column in self.lost[metric]]
        is_asked = ~np.isnan(self.values[metric][rows]) | (lost[0] + lost[1] > 0)
        n_no_answer, n_abstained = (math.ceil(column.sum() - TIE) for column in lost)
        return int(is_asked.sum()), n_no_answer, n_abstained

    def mean_by_sample(self) -> Scores:
        """The same with a unit a sample: the mean of its answers' values, with the mark of any."""
        samples = self.units["key"].combine_chunks().dictionary_encode().indices

        def merge(column: FloatArray | Kinds, how: str = "mean") -> npt.NDArray[Any]:
            table = pa.table({"sample": samples, "of": pa.array(column, from_pandas=True)})
            merged = table.group_by("sample", use_threads=False).aggregate([("of", how)])
            return np.asarray(merged[f"of_{how}"].to_numpy())

        return replace(
            self,
            units=self.units.take(first_of_each(self.units["key"])),
            values={name: merge(column) for name, column in self.values.items()},
            kinds={name: merge(kinds, "max") for name, kinds in self.kinds.items()},
            shares={name: (merge(part), merge(of)) for name, (part, of) in self.shares.items()},
            lost={name: (merge(none), merge(bad)) for name, (none, bad) in self.lost.items()},
        )


def other_splits(by: str) -> str:
    """By what samples may be grouped in place of a field that none of them names, in words."""
    names = [name for name in SPLIT_COLUMNS if name != by]
    return f"there may be: {', '.join(names)}, and the keys of the samples' metadata"


def candidates_of(records: Records) -> list[str]:
    """The sorted names of the candidates in a run's records."""
    return sorted(records.to_table(columns=["candidate"])["candidate"].unique().to_pylist())


@lru_cache(maxsize=1)  # a summary asks several times; a dataset's files are fixed
def find_cluster(records: Records) -> str | None:
    """Finds the first of CLUSTER_KEYS that groups the samples. None if every sample is a group of
    its own, or all are one group; but turns of a single session are not independent either."""
    named = metadata_keys(records)
    if not named.intersection(CLUSTER_KEYS):
        return None
    read = records.to_table(columns=["sample_id", METADATA])
    texts = read.group_by("sample_id").aggregate([(METADATA, "min")])[f"{METADATA}_min"]
    for key in CLUSTER_KEYS:
        if key in named:
            clusters = [of for of in clusters_of(texts, METADATA, key) if of is not None]
            fewest = 0 if key == SESSION else 1
            if fewest < len(set(clusters)) < len(clusters):
                return key
    return None


@lru_cache(maxsize=1)
def count_epochs(records: Records) -> int:
    """How many answers a sample has at most, of one candidate."""
    dataset = records.records if isinstance(records, RunTable) else records
    kept = (column_statistics(file.metadata, [_EPOCH]) for file in dataset.get_fragments())
    most = (column.max for file in kept for column, _ in file if column and column.has_min_max)
    return max(most, default=1)


@lru_cache(maxsize=1)
def metadata_keys(records: Records) -> set[str]:
    """The metadata keys of the first records."""
    first = records.head(LOOKED_AT, columns=[METADATA])[METADATA].to_pylist()
    return {key for text in first for key in json.loads(text or "{}")}


def read_scores(
    records: Records, candidate: str, cluster: str | None = None, by: str | None = None
) -> Scores:
    """The same of one candidate."""
    return read_all_scores(records, [candidate], cluster, by)[candidate]


def read_all_scores(
    records: Records,
    candidates: Collection[str],
    cluster: str | None = None,
    by: str | None = None,
    metrics: Collection[str] | None = None,
    by_epoch: bool = False,
) -> dict[str, Scores]:
    """Reads the scores of candidates, of all metrics or `metrics`; a repeated unit counts once.
    `cluster` and `by` are of CLUSTER_COLUMNS or metadata keys. `by_epoch`: each answer is a
    unit."""
    fields = [field for field in (cluster, by) if field is not None]
    extra = {_column_of(field) for field in fields} - set(_UNIT)
    columns = (*_UNIT, *sorted(extra))
    if isinstance(records, RunTable):
        files = [_split(block, candidates, columns, metrics) for block in records.blocks]
    else:

        def split(file: pads.ParquetFileFragment) -> dict[str, pa.Table]:
            return _split(_read_file(file, columns), candidates, columns, metrics)

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            files = list(pool.map(split, records.get_fragments()))
    scores = {
        name: _join_files([file.pop(name) for file in files], cluster, by) for name in candidates
    }
    apart = by_epoch or all(read.epochs == 1 for read in scores.values())
    return scores if apart else {name: read.mean_by_sample() for name, read in scores.items()}


def _join_files(files: list[pa.Table], cluster: str | None, by: str | None) -> Scores:
    """Joins all files, whose columns are taken out one by one: no two are in memory twice."""
    is_counted = all(_NO_ANSWER in file.column_names for file in files)
    units = pa.concat_tables(files, promote_options="default")
    files.clear()
    keys = unit_keys(units)
    clusters, groups = (
        pa.nulls(len(units), pa.string())
        if field is None
        else pa.array(clusters_of(units[_column_of(field)], _column_of(field), field), pa.string())
        for field in (cluster, by)
    )
    table = pa.table(
        {
            "key": keys,
            "sample_id": units["sample_id"],
            "task": pc.fill_null(units["task"], ""),
            "cluster": clusters,
            "group": pc.fill_null(groups, ""),
        }
    )
    answers, epochs = keys, 1
    if _EPOCH in units.column_names:
        numbers = pc.fill_null(units[_EPOCH], 1)
        epochs = pc.max(numbers).as_py() or 1
        if epochs > 1:
            answers = pc.binary_join_element_wise(keys, numbers.cast(pa.string()), _BETWEEN)
    kept = first_of_each(answers)
    if kept.size != len(table):  # else nothing is to be copied
        table, units = table.take(kept), units.take(kept)
    by_kind: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name in units.column_names:
        kind, is_figure, metric = name.partition(_BETWEEN)
        if is_figure:  # null for a file without the metric
            nothing = np.nan if pa.types.is_floating(units[name].type) else 0
            by_kind[kind][metric] = pc.fill_null(units[name], nothing).to_numpy()
            units = units.drop_columns([name])
    return Scores(
        units=table,
        values=by_kind["value"],
        suites=tuple(sorted(units["suite"].unique().drop_null().to_pylist())),
        kinds=by_kind["kind"],
        shares={name: (part, by_kind["whole"][name]) for name, part in by_kind["part"].items()},
        lost={
            name: (none, by_kind["abstained"][name]) for name, none in by_kind["no_answer"].items()
        },
        n_no_answer=pc.count(units[_NO_ANSWER]).as_py() if is_counted else None,
        n_answers=len(units),
        epochs=epochs,
    )


def unit_keys(units: pa.Table) -> pa.ChunkedArray:
    """The key of each unit: its sample id and task."""
    return pc.binary_join_element_wise(
        units["sample_id"], pc.fill_null(units["task"], ""), _BETWEEN
    )


def _column_of(field: str) -> str:
    return field if field in CLUSTER_COLUMNS else METADATA


def read_units(
    records: pads.Dataset, candidates: Collection[str], units: Collection[tuple[str, str]]
) -> dict[tuple[str, str, str], list[Record]]:
    """Reads whole records of a few units, by candidate, sample id and task, one an epoch, from the
    row groups that hold one. A row that no longer reads as a record is left out."""
    ids = pa.array(sorted({sample_id for sample_id, _ in units}), pa.string())
    wanted = pc.field("candidate").isin(list(candidates)) & pc.field("sample_id").isin(ids)
    units_read: defaultdict[tuple[str, str, str], dict[int, Record]] = defaultdict(dict)
    for file in records.get_fragments():
        with file.open() as stream:
            parquet = pq.ParquetFile(stream)
            named = parquet.read(columns=["sample_id"])["sample_id"]
            groups = range(parquet.num_row_groups)
            ends = np.cumsum([parquet.metadata.row_group(group).num_rows for group in groups])
        rows = np.flatnonzero(pc.is_in(named, value_set=ids).to_numpy())
        holding = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
        if not holding:
            continue
        table = file.subset(row_group_ids=holding).to_table(schema=records.schema, filter=wanted)
        for record in from_table_apart(table, lambda sample_id, error: None)[0]:
            if (record.sample.id, record.sample.task) in units:
                key = record.candidate.name, record.sample.id, record.sample.task
                units_read[key].setdefault(record.epoch, record)
    return {key: [*answers.values()] for key, answers in units_read.items()}


def pick_answer(
    answers: Sequence[Record], metric: str, value: float | None = None
) -> Record | None:
    """Of a unit's answers the one whose score is nearest to the unit's `value`, their mean, or the
    lowest; of equal ones the first. None without an answer."""

    def rank(record: Record) -> float:
        of = next((score.value for score in record.scores if score.metric == metric), None)
        return math.inf if of is None else of if value is None else abs(of - value)

    return min(answers, key=rank, default=None)


def _read_file(file: pads.ParquetFileFragment, columns: Sequence[str]) -> ScoreTable:
    wanted = [*columns, _NO_ANSWER, _EPOCH, *score_columns(*_OF_SCORE)]
    with file.open() as stream:
        parquet = pq.ParquetFile(stream)
        table = parquet.read(columns=wanted)
        names = pc.struct_field(table["scores"].combine_chunks().flatten(), "metric").unique()
        if any(map(pooled_ratio, names.to_pylist())):
            table = parquet.read(columns=[*wanted, *score_columns("parts")])
    return ScoreTable.of(table)


def _split(
    table: ScoreTable,
    candidates: Collection[str],
    columns: Sequence[str],
    metrics: Collection[str] | None,
) -> dict[str, pa.Table]:
    """The rows of each candidate in a file, or in a block of a RunTable, with a column for each
    kind of figure and metric."""
    of, names = table.units["candidate"], (*columns, _NO_ANSWER, _EPOCH)
    held = {name: table.units[name] for name in names if name in table.units.schema.names}
    narrow = replace(table, units=pa.table(held))
    return {
        name: _split_by_metric(
            narrow.of_units(pc.equal(of, name).to_numpy(zero_copy_only=False)), metrics
        )
        for name in candidates
    }


def _split_by_metric(scores: ScoreTable, metrics: Collection[str] | None) -> pa.Table:
    coded = scores.column("metric").dictionary_encode()
    names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    pooled = {code: ratio for code, name in enumerate(names) if (ratio := pooled_ratio(name))}
    part, whole = shares(scores.scores, codes, pooled)
    kind = np.zeros(codes.size, np.int8)
    kind[scores.is_judge(FALLBACKS.__contains__)] = REPLACED
    kind[scores.is_judge(is_estimate)] = ESTIMATED
    lost = {
        status: scores.map_names("status", status.__eq__, np.False_).astype(np.int8)
        for status in _LOST
    }
    figures = {"value": scores.values, "kind": kind, **lost}
    units = scores.units.drop_columns(["candidate"])
    for code, name in enumerate(names):
        if metrics is not None and name not in metrics:
            continue
        of_metric = figures | ({"part": part, "whole": whole} if code in pooled else {})
        for key, column in of_metric.items():
            of_units = pa.array(scores.by_unit(codes == code, column))
            units = units.append_column(f"{key}{_BETWEEN}{name}", [of_units])
    return units


def pooled_ratio(metric: str) -> Pooled | None:
    """The ratio of sums that stands for a metric, None where its mean does."""
    definition = all_metrics().get(metric)
    return definition.pooled if definition else None


def clips_mean(metric: str) -> bool:
    """True if a metric's values may lie off its scale, and its mean is cut to it."""
    definition = all_metrics().get(metric)
    return definition is not None and definition.clips_mean


def first_of_each(keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The first row of each key, in order."""
    if pc.count_distinct(keys, mode="all").as_py() == len(keys):
        return np.arange(len(keys))
    rows = pa.table({"key": keys, "row": np.arange(len(keys))}).group_by("key")
    return np.sort(rows.aggregate([("row", "min")])["row_min"].to_numpy())


def clusters_of(column: pa.ChunkedArray, name: str, field: str) -> list[str | None]:
    """The cluster of each unit, None if it names none."""
    if name != METADATA:
        return [text or None for text in column.to_pylist()]
    path = field.removeprefix(f"{METADATA}.").split(".")
    clusters = []
    for text in column.to_pylist():
        value: Any = json.loads(text or "{}")
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        value = id_text(value)
        is_text = value is None or isinstance(value, str)
        clusters.append(value if is_text else json.dumps(value, sort_keys=True))
    return clusters


def number_clusters(names: pa.ChunkedArray) -> Clusters:
    """Numbers the clusters; a unit that names none is a cluster of its own."""
    coded = names.combine_chunks().dictionary_encode().indices.fill_null(-1)
    codes: Clusters = coded.to_numpy().astype(np.intp, copy=True)
    alone = np.flatnonzero(codes < 0)
    codes[alone] = codes.max() + 1 + np.arange(alone.size)
    return codes


Flags = npt.NDArray[np.bool_]
OF_GROUPS = ("mean", "median", "min", "max", "std")
Key = tuple[str, str, str | None]  # candidate, metric, and task; None for all of them


@dataclass(frozen=True)
class Intervals:
    """By key the `error_by_cluster` of means; `cluster` is None if units are independent."""

    cluster: str | None = None
    errors: Mapping[Key, tuple[float, int]] = field(default_factory=dict)

    def of(
        self,
        key: Key,
        mean: float | None,
        stderr: float | None,
        n: int,
        scale: tuple[float, float] = (0.0, 1.0),
        level: float = 0.95,
    ) -> Interval | None:
        """The interval of a mean, by its plain standard error over n scored units of this scale."""
        return figures_interval(mean, stderr, n, level, scale, self.errors.get(key))

    def of_metric(self, metric: MetricSummary) -> Interval | None:
        """The interval of the figure that stands for a metric: the one in the summary, if there."""
        key, figure = (metric.candidate, metric.metric, None), metric.figure
        if figure.low is not None and figure.high is not None:
            return Interval(figure.low, figure.high)
        return self.of(key, figure.value, figure.stderr, metric.n_scored, metric.scale)

    def in_words(self) -> str:
        if self.cluster is None:
            return (
                "95% intervals: Student's t, and Wilson's where all scores lie at the ends of the "
                "scale. Answers are taken as independent."
            )
        most = max((groups for _, groups in self.errors.values()), default=0)
        few = f" With fewer than {FEW_CLUSTERS} clusters they are rough." * (most < FEW_CLUSTERS)
        return (
            f"95% intervals: Student's t with standard errors clustered by {self.cluster} (CR1, up "
            f"to {most:,} clusters), because answers of one cluster are not independent.{few}"
        )


def add_intervals(summary: Summary, records: Records) -> Summary:
    """The summary with the interval of every metric's figure, and how they were measured."""
    intervals = measure_intervals(records, summary)

    def add(metric: MetricSummary) -> MetricSummary:
        interval = intervals.of_metric(metric)
        ends: dict[str, float | None] = dict(interval._asdict()) if interval else {}
        _, groups = intervals.errors.get((metric.candidate, metric.metric, None), (0.0, 2))
        if groups == 1:  # whose answers a reader of the summary would take as independent
            ends = {"stderr": None}
        return metric.model_copy(update={"figure": metric.figure.model_copy(update=ends)})

    update: dict[str, object] = {"metrics": tuple(map(add, summary.metrics))}
    if intervals.errors:
        scales = {row.metric: row.scale for row in summary.metrics}
        low, high = scales.get(summary.headline, (0.0, 100.0))
        rows = list(summary.performance)
        for at, row in enumerate(rows):
            error, n = intervals.errors.get((row.candidate, summary.headline, row.task), (None, 1))
            error = None if error is None else error * (100 / (high - low))
            rows[at] = row.model_copy(update={"quality_stderr": error, "n_clusters": n})
        update["performance"] = tuple(rows)
    return summary.model_copy(update=update | {"intervals": intervals.in_words()})


def measure_intervals(records: Records, summary: Summary) -> Intervals:
    """Measures clustered errors over all units and by task, if there is a cluster or epochs."""
    cluster = find_cluster(records)
    if cluster is None and count_epochs(records) == 1:
        return Intervals()
    names = [candidate.candidate for candidate in summary.candidates]
    # one candidate's at a time: a million units of several need not be in memory together
    scores = ((name, read_scores(records, name, cluster)) for name in names)
    return clustered_intervals(scores, cluster, summary)


def clustered_intervals(
    by_candidate: Iterable[tuple[str, Scores]], cluster: str | None, summary: Summary
) -> Intervals:
    """The same from scores that were read with their clusters."""
    errors: dict[Key, tuple[float, int]] = {}
    for name, scores in by_candidate:
        if not scores.units.num_rows or (cluster is None and scores.epochs == 1):
            continue
        clusters = number_clusters(scores.units["cluster"])
        tasks = np.asarray(scores.units["task"].to_pylist(), dtype=object)
        named = {task.task for task in summary.tasks if task.bucket is None}
        chosen: dict[str | None, Flags] = {
            None: np.ones(len(tasks), np.bool_),
            **{task: tasks == task for task in named},
        }
        for metric, values in scores.values.items():
            for task, of_task in chosen.items():
                rows = np.flatnonzero(of_task & ~np.isnan(values))
                figures = scores.of_figure(metric, rows) if rows.size else None
                if figures is not None:
                    errors[name, metric, task] = error_by_cluster(figures, clusters[rows])
    return Intervals(cluster or ("sample" if errors else None), errors)


def summarise_groups(records: Records, metric: MetricSummary, by: str) -> dict[str, MetricSummary]:
    """The metric in each group of the field `by`: its figure with the interval, and the mean,
    median, min, max, std and stderr of the group's scored units (of epochs: their means)."""
    cluster, name = find_cluster(records), metric.metric
    scores = read_all_scores(records, [metric.candidate], cluster, by, [name])[metric.candidate]
    has_clusters = cluster is not None or scores.epochs > 1
    clusters = number_clusters(scores.units["cluster"]) if has_clusters else None
    values = scores.values.get(name, np.full(scores.units.num_rows, np.nan))
    groups = np.asarray(scores.units["group"].to_pylist(), dtype=object)
    summaries = {}
    for group in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero((groups == group) & ~np.isnan(values))
        update: dict[str, object] = {
            of: float(getattr(np, of)(values[rows])) if rows.size else None for of in OF_GROUPS
        }
        ends: dict[str, float | None] = dict.fromkeys(("value", "stderr", "low", "high"))
        if rows.size and (figures := scores.of_figure(name, rows)) is not None:
            mean, error = cut_to(float(figures.mean()), metric.scale), standard_error(figures)
            update["mean"] = cut_to(float(values[rows].mean()), metric.scale)
            clustered = None if clusters is None else error_by_cluster(figures, clusters[rows])
            interval = figures_interval(
                mean, error, rows.size, scale=metric.scale, clustered=clustered
            )
            ends |= {"value": mean, "stderr": error, **(interval._asdict() if interval else {})}
        figure = metric.figure.model_copy(update=ends)
        in_group = np.flatnonzero(groups == group)
        n_no_answer, n_abstained = scores.count_left_out(name, in_group)[1:]
        update |= {"n": in_group.size, "n_scored": rows.size, "figure": figure}
        update |= {"n_no_answer": n_no_answer, "n_abstained": n_abstained}
        summaries[group] = metric.model_copy(update=update | {"stderr": figure.stderr})
    return summaries
