"""Warns of what differs between two runs besides their candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from memray_eval.analysis.comparing.models import AlignedUnits, Side
from memray_eval.analysis.statistics import FEW_CLUSTERS


def find_warnings(
    base: Side, units: AlignedUnits, compared: Sequence[str], *, is_chosen: bool
) -> Iterator[str]:
    """Warns of everything that could explain the difference of two sides other than their
    candidates. `is_chosen` says that the `compared` metrics were asked for."""
    other, common = units.other, units.common
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
    if reads_other_samples(*datasets) and not other.is_like_baseline:
        yield f"{names} read different {_describe_datasets(datasets)}"
    shares = {
        letter: (side.scores.n_no_answer, side.scores.n_answers) for letter, side in sides.items()
    }
    if len({None if n is None else n / max(1, of) for n, of in shares.values()} - {None}) > 1:
        listed = ", ".join(f"{n:,} of {of:,} in {letter}" for letter, (n, of) in shares.items())
        yield f"{names} answered differently often; without an answer: {listed}"
    if base.scores.epochs != other.scores.epochs:
        counts = f"{base.scores.epochs} and {other.scores.epochs} answers a sample"
        yield f"{names} have {counts}: their means are compared, the less exact the fewer they are"
    if other.matching:
        yield f"{names}: {other.matching}"
    yield from _differing_judges(sides, compared)
    yield from _differing_models(sides)
    yield from _differing_rubrics(sides, compared)
    yield from _differing_layouts(sides)
    if not is_chosen and (apart := sorted(set(base.scores.values) ^ set(other.scores.values))):
        yield f"metrics that only one of {names} has are not compared: {', '.join(apart)}"
    if common.only_a or common.only_b:
        yield f"answers without a partner: {common.only_a} of A, {common.only_b} of {common.letter}"
    if units.clusters is not None and (n := np.unique(units.clusters).size) < FEW_CLUSTERS:
        yield (
            f"{names} have {n} clusters: with fewer than {FEW_CLUSTERS}, clustered standard errors "
            "come out too small"
        )
    if units.n_alone:
        yield f"{units.n_alone} answers of {names} name no cluster: each is one of its own"


def _describe_datasets(datasets: Sequence[Mapping[str, Any]]) -> str:
    first, second = (str(dataset.get("path", "unknown")) for dataset in datasets)
    if first != second:
        return f"datasets: {first} and {second}"
    counts = [str(dataset.get("n_samples", "unknown")) for dataset in datasets]
    why = " and ".join(counts) if counts[0] != counts[1] else "it or their choice changed"
    return f"samples of {first}: {why}"


def reads_other_samples(dataset: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs read different samples, as far as their manifests tell."""
    # A spread limit's fingerprint has no prefix, and is the same digest of the samples in order
    first, second = (
        f"{manifest.get('fingerprint')}".rpartition(":")[2] for manifest in (dataset, other)
    )
    return first != second


def _differing_settings(
    key: str, sides: Mapping[str, Side], compared: Sequence[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric, or metric/task, for which the manifests differ in this, and what each has."""
    settings = {letter: side.manifest.get(key) or {} for letter, side in sides.items()}
    for name in dict.fromkeys(name for of_side in settings.values() for name in of_side):
        values = {letter: of_side.get(name, "none") for letter, of_side in settings.items()}
        if name.partition("/")[0] in compared and len(set(values.values())) > 1:
            yield name, values


def _differing_rubrics(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """Warns of each metric, or metric/task, whose rubrics differ, by version and digest; a user's
    own rubric has a digest alone."""
    for name, digests in _differing_settings("rubrics", sides, compared):
        shown = []
        for letter, digest in digests.items():
            version = (sides[letter].manifest.get("rubric_versions") or {}).get(name)
            shown.append(f"{f'version {version}, ' if version else ''}digest {digest} in {letter}")
        yield f"{name}: different rubrics: {'; '.join(shown)}"


def _differing_layouts(sides: Mapping[str, Side]) -> Iterator[str]:
    """Warns of each judge whose prompts are laid out otherwise in one of the runs, where a prompt
    cache was used: nothing else is laid out by what pays off."""
    manifests = {letter: side.manifest for letter, side in sides.items()}
    by_side = {letter: manifest.get("judge_prompts") for letter, manifest in manifests.items()}
    for judge in sorted({judge for layouts in by_side.values() for judge in layouts or ()}):
        layouts = {letter: (of_side or {}).get(judge) for letter, of_side in by_side.items()}
        calls = [
            ((manifest.get("calls") or {}).get("judges") or {}) for manifest in manifests.values()
        ]
        is_used = any((of_judge.get(judge) or {}).get("cached_input_tokens") for of_judge in calls)
        if is_used and None not in layouts.values() and len(set(layouts.values())) > 1:
            listed = ", ".join(f"{layout} in {letter}" for letter, layout in layouts.items())
            yield f"{judge}: different layouts of its prompts: {listed}"


def _differing_judges(sides: Mapping[str, Side], compared: Sequence[str]) -> Iterator[str]:
    """Warns of each metric, or metric/task, for which the sides planned other judges, and of each
    for which others scored it: a fallback, or a jury from which one was missing."""
    for name, judges in _differing_settings("judges", sides, compared):
        listed = ", ".join(f"{judge} in {letter}" for letter, judge in judges.items())
        yield f"{name}: different judges: {listed}"
    for name in compared:
        planned = {str((side.manifest.get("judges") or {}).get(name)) for side in sides.values()}
        actual = {}
        for letter, side in sides.items():
            judged_by = side.manifest.get("judged_by") or {}
            actual[letter] = _join_names(sorted(judged_by.get(f"{name}/{side.candidate}") or ()))
        if len(planned) == 1 and "none" not in actual.values() and len(set(actual.values())) > 1:
            listed = "; ".join(f"{judges} in {letter}" for letter, judges in actual.items())
            yield f"{name}: scored by {listed}"


def _differing_models(sides: Mapping[str, Side]) -> Iterator[str]:
    """Warns of each candidate and judge that one of the sides has several models of, or that the
    sides have by the same name and with other models, as far as their servers named them."""
    by_name: dict[tuple[str, str], dict[str, list[str]]] = {}
    for letter, side in sides.items():
        for model in side.manifest.get("served_models") or ():
            if model["of"] == "judge" or model["name"] == side.candidate:
                who = by_name.setdefault((model["of"], model["name"]), {})
                who.setdefault(letter, []).append(model["model"])
    for (of, name), models in by_name.items():
        if len(set(chain.from_iterable(models.values()))) > 1:
            listed = "; ".join(
                f"{_join_names(served)} in {letter}" for letter, served in models.items()
            )
            yield f"{of} {name}: other models answered: {listed}"


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
