"""Macro F1 of judges beside that of each person, as HealthBench's meta-evaluation has it
(healthbench_meta_eval.py of openai/simple-evals): over all pairs of a rater's label and another
person's of the same response, the mean of the F1 of yes and of no. Labels above the middle of their
scale are yes. A person is compared with the others, a judge with all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.agreement import Scale
from memray_eval.analysis.calibration import (
    DRAWS,
    LEVEL,
    Coefficient,
    RaterComparison,
    RaterF1,
    Unit,
)
from memray_eval.analysis.statistics import bootstrap_statistics, expand_level, percentile_interval

Flags = npt.NDArray[np.bool_]
# A rater's label, another person's, and the cluster of their response
_Pair: TypeAlias = tuple[bool, bool, str]


def compare_raters(
    verdicts: Mapping[str, Sequence[Unit]], scale: Scale, human_scale: Scale
) -> RaterComparison | None:
    """The macro F1 of each judge, by its units, and of each person; None if nobody is named.
    `scale` is the metric's."""
    units = next(iter(verdicts.values()), ())
    by_person = _pairs_by_person(units, sum(human_scale) / 2)
    if not by_person:
        return None
    people = [_measure(person, pairs) for person, pairs in sorted(by_person.items())]
    defined = [person for person in people if person.macro_f1.value is not None]
    total = sum((person.macro_f1.value or 0.0) * person.n for person in defined)
    n_pairs = sum(person.n for person in defined)
    judges = (
        _measure(judge, _pairs_of_judge(own, sum(scale) / 2, sum(human_scale) / 2), DRAWS)
        for judge, own in verdicts.items()
    )
    people_mean = total / n_pairs if n_pairs else None
    return RaterComparison(judges=tuple(judges), people=tuple(people), people_mean=people_mean)


def _pairs_by_person(units: Iterable[Unit], middle: float) -> dict[str, list[_Pair]]:
    by_person: dict[str, list[_Pair]] = {}
    for unit in units:
        labels = [
            (rater, label > middle)
            for rater, label in zip(unit.raters, unit.people, strict=False)
            if label is not None
        ]
        for index, (rater, own) in enumerate(labels):
            others = [label for _, label in labels[:index] + labels[index + 1 :]]
            pairs = by_person.setdefault(rater, [])
            pairs += [(own, other, unit.cluster) for other in others]
    return by_person


def _pairs_of_judge(units: Iterable[Unit], middle: float, human_middle: float) -> list[_Pair]:
    return [
        (unit.judge > middle, label > human_middle, unit.cluster)
        for unit in units
        if unit.judge is not None
        for label in unit.people
        if label is not None
    ]


def _measure(rater: str, pairs: Sequence[_Pair], draws: int = 0) -> RaterF1:
    own, other = (np.array([pair[side] for pair in pairs], np.bool_) for side in (0, 1))
    value, clusters = macro_f1(own, other), [cluster for _, _, cluster in pairs]
    figure = Coefficient(value=None if np.isnan(value) else value)
    n_clusters = len(set(clusters))
    if draws and figure.value is not None and n_clusters > 1:
        statistics = {"f1": lambda rows: macro_f1(own[rows], other[rows])}
        drawn = bootstrap_statistics(statistics, np.array(clusters), draws)["f1"]
        if (drawn := drawn[~np.isnan(drawn)]).size >= draws / 2:
            low, high = percentile_interval(drawn, expand_level(LEVEL, n_clusters))
            figure = Coefficient(value=value, low=low, high=high)
    return RaterF1(rater=rater, n=len(pairs), macro_f1=figure)


def macro_f1(own: Flags, other: Flags) -> float:
    """The mean of the F1 of yes and of no; NaN if one of them is on no side, or on one alone, as
    its precision or recall is then undefined."""
    scores = []
    for first, second in ((own, other), (~own, ~other)):
        n_first, n_second = int(first.sum()), int(second.sum())
        if not n_first or not n_second:
            return np.nan
        scores.append(2 * int((first & second).sum()) / (n_first + n_second))
    return sum(scores) / 2
