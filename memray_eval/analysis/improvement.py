"""Holds a judge's rubric against people's labels: a split of the labels, the causes of what the
judge says otherwise, and the gain of a revised rubric on the half that was held back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from memray_eval.analysis.adjusted_mean import MIN_CLUSTERS, MIN_LABELS
from memray_eval.analysis.agreement import Scale, spearman, to_categories, weighted_kappa
from memray_eval.analysis.calibration import (
    MIN_COVERAGE,
    Coefficient,
    Unit,
    compare_agreement,
    to_table,
)
from memray_eval.errors import DataError, cause_of
from memray_eval.types import Frozen

By = Literal["size", "no verdict", "label", "group"]
AGREEMENTS = {"kappa": weighted_kappa, "spearman": spearman}


class DisagreementCause(Frozen):
    """The labelled responses of one kind: `n`, how many of them the judge scores otherwise than
    people by half a step and more, or not at all, the mean of judge less people on people's scale,
    and the response that is furthest apart."""

    by: By
    name: str
    n: int
    n_apart: int
    gap: float | None
    example: str


class Gain(Frozen):
    """What a rubric gains over another in agreement with people, by kappa or spearman, on the `n`
    responses that were scored by both; `coverage` is their share of those that the old one scored.
    """

    figure: str
    n: int
    before: Coefficient
    after: Coefficient
    gain: Coefficient
    coverage: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval lies above 0, and the rubric is not one that avoids verdicts."""
        return (self.gain.low or 0.0) > 0 and self.coverage >= MIN_COVERAGE


class Improvement(Frozen):
    """What `improve` found: the split of the labels, the causes of disagreement on those to learn
    from, the rubric that was `revised` so, by what findings, and its gains on those held back; none
    without a revision. `saved` is the rubric's path. `cost_usd` is None if a price is not known."""

    metric: str
    judge: str
    labelled: str
    human_scale: Scale
    seed: int
    n_dev: int
    n_test: int
    causes: tuple[DisagreementCause, ...]
    revised: str = ""
    findings: str = ""
    rubric: str = ""
    digest: str = ""
    gains: tuple[Gain, ...] = ()
    is_shown: bool = False
    saved: str = ""
    cost_usd: float | None = 0.0


class Apart(NamedTuple):
    """A labelled response with the mean of its labels and the judge's score, on people's scale; the
    gap between them is infinite without a score."""

    unit: Unit
    label: float
    judge: float | None

    @property
    def gap(self) -> float:
        return math.inf if self.judge is None else abs(self.judge - self.label)


def split_clusters(clusters: Sequence[str], seed: int) -> list[bool]:
    """Draws the half of the responses that is held back, in whole clusters."""
    names, sizes = np.unique(np.array(clusters), return_counts=True)
    order = np.random.default_rng(seed).permutation(names.size)
    before = np.cumsum(sizes[order]) - sizes[order]
    held_back = set(names[order[before < len(clusters) / 2]].tolist())
    return [cluster in held_back for cluster in clusters]


def check_half(name: str, units: Sequence[Unit]) -> None:
    """Raises DataError for labels that are too few, or all the same, to measure agreement by."""
    n_clusters = len({unit.cluster for unit in units})
    if len(units) < MIN_LABELS or n_clusters < MIN_CLUSTERS:
        raise DataError(
            f"the {name} half has {len(units)} labelled responses of {n_clusters} clusters; each "
            f"half needs {MIN_LABELS} of {MIN_CLUSTERS}: label more"
        )
    labels = {label for unit in units for label in unit.people if label is not None}
    if len(labels) == 1:
        raise DataError(
            f"all labels of the {name} half are {labels.pop():g}, so that kappa and rho are "
            "undefined: label responses that people score otherwise"
        )


def lay_apart(units: Sequence[Unit], scale: Scale, human_scale: Scale) -> list[Apart]:
    """The units with the mean of their labels and the judge's score on people's scale."""
    ratings = to_table(units, scale, human_scale).ratings.tolist()  # NaN: no score
    return [
        Apart(unit, label, None if unit.judge is None else judge)
        for unit, (label, judge) in zip(units, ratings, strict=True)
    ]


def find_causes(
    rows: Sequence[Apart], groups: Sequence[str], human_scale: Scale
) -> tuple[DisagreementCause, ...]:
    """Groups the responses: those apart by how far and in which direction, those without a verdict
    by its reason, and all of them by people's label and by `groups`."""
    low, step = human_scale[0], min(1.0, human_scale[1] - human_scale[0])
    labels = to_categories(np.array([row.label for row in rows]), human_scale)
    named: dict[By, Sequence[str]] = {
        "size": [_size(row, step) for row in rows],
        "no verdict": [cause_of(row.unit.unscored) if row.judge is None else "" for row in rows],
        "label": [f"{low + step * label:g}" for label in labels.tolist()],
        "group": groups if len(set(groups)) > 1 else [""] * len(rows),
    }
    return tuple(
        _cause(by, name, [row for row, own in zip(rows, names, strict=True) if own == name], step)
        for by, names in named.items()
        for name in sorted(set(names) - {""})
    )


def _size(row: Apart, step: float) -> str:
    steps = 0 if row.judge is None else round((row.judge - row.label) / step)
    return f"judge {'higher' if steps > 0 else 'lower'} by {abs(steps) * step:g}" if steps else ""


def _cause(by: By, name: str, rows: Sequence[Apart], step: float) -> DisagreementCause:
    gaps = [row.judge - row.label for row in rows if row.judge is not None]
    return DisagreementCause(
        by=by,
        name=name,
        n=len(rows),
        n_apart=sum(row.gap >= step / 2 for row in rows),
        gap=float(np.mean(gaps)) if gaps else None,
        example=max(rows, key=lambda row: row.gap).unit.id,
    )


def choose_cases(rows: Sequence[Apart], n: int) -> list[Apart]:
    """The `n` scored responses that teach most: the furthest apart of each label in turn, one of a
    cluster."""
    scored = [row for row in rows if row.judge is not None]
    ranked = sorted(scored, key=lambda row: (-row.gap, row.unit.id))
    of_cluster = {row.unit.cluster: row for row in reversed(ranked)}
    turns, seen = list[tuple[int, int, Apart]](), Counter[int]()
    for place, row in enumerate(row for row in ranked if of_cluster[row.unit.cluster] is row):
        turns.append((seen[round(row.label)], place, row))
        seen[round(row.label)] += 1
    return [row for _, _, row in sorted(turns)[:n]]


def measure_gains(
    before: Sequence[Unit], after: Sequence[Unit], scale: Scale, human_scale: Scale
) -> tuple[Gain, ...]:
    """The gains of the rubric behind `after` over that behind `before`, of the same responses. The
    first decides: kappa for labels on whole steps of people's scale, else (means of people) rho."""
    known = {unit.id for unit in before if unit.judge is not None}
    n = sum(unit.judge is not None and unit.id in known for unit in after)
    labels = np.array([label for unit in before for label in unit.people if label is not None])
    steps = (labels - human_scale[0]) / min(1.0, human_scale[1] - human_scale[0])
    is_categorical = np.allclose(steps, np.round(steps))
    gains = []
    for figure in AGREEMENTS if is_categorical else reversed(AGREEMENTS):
        compared = compare_agreement(AGREEMENTS[figure], after, before, scale, human_scale)
        figures = dict(zip(("after", "before", "gain"), compared, strict=True))
        gains.append(Gain(figure=figure, n=n, coverage=n / max(1, len(known)), **figures))
    return tuple(gains)
