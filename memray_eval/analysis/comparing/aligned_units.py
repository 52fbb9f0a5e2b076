"""Aligns two sides of a comparison on the units that both have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from memray_eval.analysis.comparing.models import CommonUnits, Side
from memray_eval.analysis.scores import CLUSTER_COLUMNS, number_clusters
from memray_eval.analysis.statistics import Clusters
from memray_eval.analysis.where import common_rows
from memray_eval.errors import ConfigError, DataError


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


def align_units(base: Side, other: Side, letter: str, cluster: str | None) -> AlignedUnits:
    """Finds the units that both sides have, with their clusters if a `cluster` field is named.
    Raises DataError if there are none, and ConfigError if no unit names the field."""
    rows_a, rows_b = common_rows(base.scores, other.scores)
    if not rows_b.size:
        raise DataError(
            f"{base.name} and {other.name} share no unit: no sample id with the same task is in "
            "both"
        )
    groups, n_alone = None, 0
    if cluster is not None:
        names = pc.coalesce(
            base.scores.units["cluster"].take(rows_a), other.scores.units["cluster"].take(rows_b)
        )
        n_alone = names.null_count
        if n_alone == len(names):
            there = ", ".join(CLUSTER_COLUMNS)
            raise ConfigError(
                f"no unit names a {cluster!r} to cluster by; there are: {there}, and the keys of "
                "the samples' metadata"
            )
        groups = number_clusters(names)
    n, n_a, n_b = rows_b.size, base.scores.units.num_rows, other.scores.units.num_rows
    common = CommonUnits(other=other.name, letter=letter, n=n, only_a=n_a - n, only_b=n_b - n)
    return AlignedUnits(base, other, rows_a, rows_b, groups, n_alone, common)
