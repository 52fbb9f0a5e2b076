"""The runs that are compared: their folders, and a candidate of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from memray_eval.analysis.comparing.matching import match_units
from memray_eval.analysis.comparing.models import Comparison, Side
from memray_eval.analysis.comparing.warnings import reads_other_samples
from memray_eval.analysis.scores import (
    MOST_GROUPS,
    SPLIT_COLUMNS,
    Text,
    candidates_of,
    find_cluster,
    find_split,
    read_scores,
    read_texts,
)
from memray_eval.analysis.where import Groups, read_groups
from memray_eval.errors import ConfigError, DataError
from memray_eval.results.latest import find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable


class ComparedRun(NamedTuple):
    """One candidate of a run, under the name it has in the comparison."""

    name: str
    folder: RunFolder
    candidate: str

    def side(self, cluster: str | None, by: str | None = None) -> Side:
        with readable(self.folder.path):
            scores = read_scores(self.folder.records(), self.candidate, cluster, by)
        return Side(self.name, self.candidate, self.folder.read_manifest(), scores)


def open_sides(
    opened: Sequence[ComparedRun], cluster: str | None, by: str | None = None
) -> list[Side]:
    """The sides of a comparison. Units of runs that read different samples are matched by what
    they ask, since ids may be no more than row numbers."""
    sides = [one.side(cluster, by) for one in opened]
    base, *others = sides
    samples = base.manifest.get("dataset") or {}
    return [
        base,
        *(
            match_units(base, opened[0].folder, side, run.folder)
            if reads_other_samples(samples, side.manifest.get("dataset") or {})
            else side
            for side, run in zip(others, opened[1:], strict=True)
        ),
    ]


def find_cluster_field(opened: Sequence[ComparedRun], cluster: str | None) -> str | None:
    """The field that clusters units: the one asked for, else the one that the baseline's samples
    name."""
    if cluster is not None:
        return None if cluster == "none" else cluster
    with readable(opened[0].folder.path):
        return find_cluster(opened[0].folder.records())


def find_split_field(opened: Sequence[ComparedRun], by: str | None) -> str | None:
    """The field that splits units: the one asked for, else the first that does in the baseline.
    Raises ConfigError for one with too many groups."""
    if by == "none":
        return None
    baseline = opened[0].folder
    with readable(baseline.path):
        if by is None:
            return find_split(baseline.records())
        groups = read_scores(baseline.records(), opened[0].candidate, by=by).units["group"]
    n_groups = len(groups.unique())
    if n_groups > MOST_GROUPS:
        raise ConfigError(
            f"--by {by}: {n_groups} groups, more than the {MOST_GROUPS} that it may be"
        )
    if n_groups == 1 and not groups[0].as_py():
        raise ConfigError(
            f"--by {by}: no unit names it; there are: {', '.join(SPLIT_COLUMNS)}, and the keys of "
            "the samples' metadata"
        )
    return by


def read_more_groups(opened: Sequence[ComparedRun]) -> Groups:
    """The groups of all fields that split the baseline's units."""
    baseline = opened[0].folder
    with readable(baseline.path):
        return read_groups(baseline.records())


def pick_candidates(runs: Sequence[str]) -> list[ComparedRun]:
    """Opens the runs and picks a candidate of each. Raises ConfigError for fewer than two, and for
    a candidate that is not there or not chosen; DataError for a folder that is not a run's."""
    if len(runs) < 2:
        raise ConfigError("compare takes two or more run folders: memray-eval compare A B [C...]")
    picked = []
    for run in runs:
        folder, candidate = _open_run(run)
        with readable(folder.path):
            there = candidates_of(folder.records())
        picked.append((folder, _choose_candidate(run, candidate, there), len(there) > 1))
    short = [f"{folder.run_id}:{candidate}" if is_one_of_several else folder.run_id
             for folder, candidate, is_one_of_several in picked]  # fmt: skip
    named = [
        name if Counter(short)[name] == 1 else run for name, run in zip(short, runs, strict=True)
    ]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise ConfigError(f"{twice[0]} is given twice; compare it with another run or candidate")
    return [
        ComparedRun(name, folder, candidate)
        for name, (folder, candidate, _) in zip(named, picked, strict=True)
    ]


def _open_run(run: str) -> tuple[RunFolder, str | None]:
    """Opens the folder of RUN or RUN:CANDIDATE and returns it with the candidate named after it.
    Either may hold colons."""
    ends = [
        len(run),
        *(
            place
            for place in range(len(run) - 1, 0, -1)
            if run[place] == ":" and run[place + 1 : place + 3] != "//"
        ),
    ]
    for end in ends:
        folder = RunFolder(find_run(run[:end]))
        if folder.has_manifest():
            folder.read_manifest()
            return folder, run[end + 1 :] or None
    raise DataError(
        f"{run} has no manifest.json; give the folder of a run (results/<run_id>), or RUN:CANDIDATE"
    )


def _choose_candidate(run: str, wanted: str | None, there: Sequence[str]) -> str:
    names = ", ".join(there)
    if not there:
        raise DataError(f"{run} holds no records")
    if wanted is None:
        if len(there) > 1:
            raise ConfigError(
                f"{run} has several candidates: {names}; pick one with {run}:{there[0]}"
            )
        return there[0]
    if wanted not in there:
        raise ConfigError(f"{run}: no candidate {wanted!r}; there are: {names}")
    return wanted


def read_changed_texts(
    comparison: Comparison, opened: Sequence[ComparedRun]
) -> dict[str, dict[tuple[str, str], Text]]:
    """The texts of the units that a comparison lists as changed, by side and then by sample id and
    task."""
    units = {
        (sample_id, flip.task)
        for metric in comparison.metrics
        for flip in metric.flips
        for sample_id in (flip.sample_id, flip.other_id or flip.sample_id)
    }
    if not units:
        return {}
    return {one.name: read_texts(one.folder.records(), one.candidate, units) for one in opened}
