"""The 95 % intervals of a page. They come from the summary's own figures or, if the samples name
the user or context that they share, from standard errors clustered by it, which need the
records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow.dataset as pads

from memray_eval.report.scores import find_cluster, number_clusters, read_scores
from memray_eval.report.statistics import (
    FEW_CLUSTERS,
    Interval,
    clustered_error,
    figures_interval,
    t_interval,
)
from memray_eval.types import Summary

Flags = npt.NDArray[np.bool_]
Key = tuple[str, str, str | None]  # candidate, metric, and task; None for all of them


@dataclass(frozen=True)
class Intervals:
    """`errors` holds, by key, the clustered standard error of a mean and the number of clusters.
    `cluster` is the metadata field, None if units are independent."""

    cluster: str | None = None
    errors: Mapping[Key, tuple[float, int]] = field(default_factory=dict)

    def of(
        self,
        key: Key,
        mean: float | None,
        stderr: float | None,
        n: int,
        scale: tuple[float, float] = (0.0, 1.0),
    ) -> Interval | None:
        """The interval of a mean in the summary, given its plain standard error over n scored units
        of a metric with this scale."""
        if mean is None:
            return None
        if key in self.errors:
            error, groups = self.errors[key]
            return t_interval(mean, error, groups - 1) if error > 0.0 else None
        return figures_interval(mean, stderr, n, scale=scale)

    def in_words(self) -> str:
        if self.cluster is None:
            return (
                "95% intervals: Student's t, and Wilson's where all scores lie at the ends of the "
                "scale. Units are taken as independent."
            )
        most = max((groups for _, groups in self.errors.values()), default=0)
        few = (
            f" With fewer than {FEW_CLUSTERS} clusters they are rough."
            if most < FEW_CLUSTERS
            else ""
        )
        return (
            f"95% intervals: Student's t with standard errors clustered by {self.cluster} (CR1, up "
            f"to {most:,} clusters), because units of one cluster are not independent.{few}"
        )


def measure_intervals(records: pads.Dataset, summary: Summary) -> Intervals:
    """Measures clustered standard errors over all units and by task, if the samples name a
    cluster."""
    cluster = find_cluster(records)
    if cluster is None:
        return Intervals()
    errors: dict[Key, tuple[float, int]] = {}
    for candidate in summary.candidates:
        scores = read_scores(records, candidate.candidate, cluster)
        if not scores.units.num_rows:
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
                rows = of_task & ~np.isnan(values)
                if rows.any():
                    error = clustered_error(values[rows], clusters[rows])
                    errors[candidate.candidate, metric, task] = (
                        error or 0.0,
                        int(np.unique(clusters[rows]).size),
                    )
    return Intervals(cluster, errors)
