"""The report of a pairwise run: measured from its records, kept in its folder, and found again
beside the runs that it compares."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

from pyarrow import fs
from pydantic import ValidationError

from memray_eval.analysis.pairs.figures import measure_pairs
from memray_eval.analysis.pairs.models import PairSide, PairwiseReport
from memray_eval.analysis.pairs.verdicts import read_verdicts
from memray_eval.analysis.scores import find_cluster
from memray_eval.analysis.statistics import Settings
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder
from memray_eval.storage.paths import locate, readable

logger = logging.getLogger(__name__)


def report_pairs(folder: RunFolder, sides: Sequence[PairSide]) -> PairwiseReport:
    """Measures the verdicts of a pairwise run. Raises DataError for unreadable records."""
    how, names, kept = Settings(), [side.name for side in sides], read_report(folder)
    with readable(folder.path):
        cluster = find_cluster(folder.records())
    # the rounds of an earlier version, which lie beside it
    parent = folder.path.rpartition("/")[0] or "."
    others = [run for run in kept.runs if run != folder.run_id] if kept is not None else []
    folders = [*filter(RunFolder.has_manifest, (RunFolder(f"{parent}/{run}") for run in others))]
    folders.append(folder)
    records = chain.from_iterable(folder.each() for folder in folders)
    verdicts = read_verdicts(records, names, cluster)
    return PairwiseReport(
        runs=tuple(folder.run_id for folder in folders),
        sides=tuple(sides),
        level=how.level,
        cluster=cluster,
        is_whole=all(of_metric.is_whole for of_metric in verdicts),
        criteria=tuple(measure_pairs(of_metric, names, how) for of_metric in verdicts),
    )


def read_report(folder: RunFolder) -> PairwiseReport | None:
    """The report that a pairwise run keeps; None where there is none, or another version's."""
    kept = folder.read_json(FIGURES_OF_PAIRS)
    if kept is None:
        return None
    try:
        return PairwiseReport.model_validate(kept)
    except ValidationError as error:
        logger.warning("%s/pairs.json is none of this version: %s", folder.path, error)
        return None


def find_report(runs: Sequence[tuple[RunFolder, str]]) -> PairwiseReport | None:
    """The newest report of a pairwise run over all of these candidates of runs, among the folders
    beside the first; None where there is none."""
    parent = runs[0][0].path.rpartition("/")[0] or "."
    filesystem, inner = locate(parent)
    with readable(parent):
        infos = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
        names = [info.base_name for info in infos if info.type == fs.FileType.Directory]
        kept = filesystem.get_file_info([f"{inner}/{name}/pairs.json" for name in names])
    wanted = {(folder.run_id, candidate) for folder, candidate in runs}
    newest = sorted(
        (info.mtime_ns or 0, name)
        for name, info in zip(names, kept, strict=True)
        if info.type == fs.FileType.File
    )
    for _, name in reversed(newest):
        report = read_report(RunFolder(f"{parent}/{name}"))
        if report is not None and wanted <= {(side.run, side.candidate) for side in report.sides}:
            return report
    return None
