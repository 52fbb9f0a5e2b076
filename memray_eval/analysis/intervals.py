"""The 95 % intervals of a report: from the summary's own figures or, if the samples name a user or
context that they share, from standard errors clustered by it, which need the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.score_table import Records
from memray_eval.analysis.scores import (
    Scores,
    count_epochs,
    find_cluster,
    number_clusters,
    read_all_scores,
    read_scores,
)
from memray_eval.analysis.statistics import (
    FEW_CLUSTERS,
    Clusters,
    Interval,
    Rows,
    error_by_cluster,
    figures_interval,
    standard_error,
)
from memray_eval.types import SESSION, Figure, MetricSummary, Performance, Summary

Flags = npt.NDArray[np.bool_]
OF_GROUPS = ("mean", "median", "min", "max", "std")
Key = tuple[str, str, str | None]  # candidate, metric, and task; None for all of them


@dataclass(frozen=True)
class Intervals:
    """`errors` holds the `error_by_cluster` of means by key. `cluster` is the metadata field, None
    if units are independent."""

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
        few = (
            f" With fewer than {FEW_CLUSTERS} clusters they are rough."
            if most < FEW_CLUSTERS
            else ""
        )
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
    if intervals.cluster == SESSION:
        update["performance"] = tuple(_cluster_qualities(summary, intervals))
    return summary.model_copy(update=update | {"intervals": intervals.in_words()})


def _cluster_qualities(summary: Summary, intervals: Intervals) -> Iterator[Performance]:
    """The rows on speed with the standard error of their quality over sessions."""
    scales = {metric.metric: metric.scale for metric in summary.metrics}
    for row in summary.performance:
        error, n = intervals.errors.get((row.candidate, summary.headline, row.task), (None, 1))
        if error is not None:
            low, high = scales[summary.headline]
            error *= 100 / (high - low)
        yield row.model_copy(update={"quality_stderr": error, "n_clusters": n})


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
        figure = _figure_of(scores, metric, rows, clusters)
        update: dict[str, object] = {
            of: float(getattr(np, of)(values[rows])) if rows.size else None for of in OF_GROUPS
        }
        update |= {"n": int((groups == group).sum()), "n_scored": rows.size, "figure": figure}
        summaries[group] = metric.model_copy(update=update | {"stderr": figure.stderr})
    return summaries


def _figure_of(
    scores: Scores, metric: MetricSummary, rows: Rows, clusters: Clusters | None
) -> Figure:
    figures = scores.of_figure(metric.metric, rows) if rows.size else None
    if figures is None:
        return metric.figure.model_copy(update=dict.fromkeys(("value", "stderr", "low", "high")))
    mean, error = float(figures.mean()), standard_error(figures)
    clustered = None if clusters is None else error_by_cluster(figures, clusters[rows])
    interval = figures_interval(mean, error, rows.size, scale=metric.scale, clustered=clustered)
    low, high = interval or (None, None)
    update = {"value": mean, "stderr": error, "low": low, "high": high}
    return metric.figure.model_copy(update=update)
