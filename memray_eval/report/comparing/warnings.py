"""What else than the candidates differs between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memray_eval.report.comparing.aligned_units import AlignedUnits
from memray_eval.report.comparing.models import Side
from memray_eval.report.statistics import FEW_CLUSTERS


def find_warnings(
    base: Side, meeting: AlignedUnits, compared: Sequence[str], *, is_chosen: bool
) -> Iterator[str]:
    """What makes the difference of two sides something else than that of their candidates, over the
    `compared` metrics, which `is_chosen` says were asked for."""
    other, common = meeting.other, meeting.common
    names, sides = f"A and {common.letter}", {"A": base, common.letter: other}
    for letter, side in sides.items():
        if (status := side.manifest.get("status")) != "finished" and not (
            letter == "A" and common.letter != "B"
        ):
            yield f"{letter} is not finished: its status is {status!r}"
    if base.scores.suites != other.scores.suites:
        yield (
            f"{names} are of different suites: {_join_names(base.scores.suites)}; "
            f"{_join_names(other.scores.suites)}"
        )
    datasets = [side.manifest.get("dataset") or {} for side in (base, other)]
    if datasets[0].get("fingerprint") != datasets[1].get("fingerprint"):
        yield (
            f"{names} read different datasets: "
            f"{' and '.join(str(each.get('path', 'unknown')) for each in datasets)}"
        )
    yield from _differing_settings("judges", "judges", sides, compared)
    yield from _differing_judges(sides, compared)
    yield from _differing_settings("rubric digests", "rubrics", sides, compared)
    if not is_chosen and (apart := sorted(set(base.scores.values) ^ set(other.scores.values))):
        yield f"metrics that only one of {names} has are not compared: {', '.join(apart)}"
    if common.only_a or common.only_b:
        yield f"units without a partner: {common.only_a} of A, {common.only_b} of {common.letter}"
    if meeting.clusters is not None and (n := np.unique(meeting.clusters).size) < FEW_CLUSTERS:
        yield (
            f"{names} have {n} clusters: with fewer than {FEW_CLUSTERS}, clustered standard "
            f"errors come out too small"
        )
    if meeting.n_alone:
        yield f"{meeting.n_alone} common units of {names} name no cluster: each is one of its own"


def _differing_settings(
    what: str, key: str, sides: Mapping[str, Side], compared: Sequence[str]
) -> Iterator[str]:
    """A line for each metric, or metric/task, of which the manifests say different things."""
    said = {letter: side.manifest.get(key) or {} for letter, side in sides.items()}
    for name in dict.fromkeys(name for each in said.values() for name in each):
        there = {letter: each.get(name, "none") for letter, each in said.items()}
        if name.partition("/")[0] in compared and len(set(there.values())) > 1:
            yield (
                f"{name}: different {what}: "
                f"{', '.join(f'{told} in {letter}' for letter, told in there.items())}"
            )


def _differing_judges(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """A line for each metric that the same judges were to score, and others did: a fallback, or a
    juror who failed."""
    for name in compared:
        planned = {str((side.manifest.get("judges") or {}).get(name)) for side in sides.values()}
        heard = {letter: _join_names(_judged_by(side, name)) for letter, side in sides.items()}
        if len(planned) == 1 and "none" not in heard.values() and len(set(heard.values())) > 1:
            yield (
                f"{name}: scored by "
                f"{'; '.join(f'{judges} in {letter}' for letter, judges in heard.items())}"
            )


def _judged_by(side: Side, metric: str) -> list[str]:
    return sorted((side.manifest.get("judged_by") or {}).get(f"{metric}/{side.candidate}") or ())


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
