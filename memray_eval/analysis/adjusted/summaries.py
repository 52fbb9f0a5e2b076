"""Puts adjusted figures beside a run's own, by the labels that hold for its judge, or says why
not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.analysis.adjusted.estimators import (
    MIN_YOUDEN,
    AdjustedMean,
    Labelled,
    Verdicts,
    prediction_powered,
    rogan_gladen,
    youden,
)
from memray_eval.analysis.adjusted.labelled_verdicts import (
    Calibrations,
    JudgeCalibration,
    OwnLabels,
    judge_version,
)
from memray_eval.analysis.scores import Scores, find_cluster, read_scores, unit_keys
from memray_eval.analysis.statistics import Clusters, is_binary
from memray_eval.errors import ConfigError
from memray_eval.ports import FloatArray
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import (
    WITHOUT_CALL,
    AdjustedFigure,
    LabelsNeeded,
    MetricSummary,
    Summary,
)

MIN_LABELS, MIN_CLUSTERS = 10, 4  # fewer tell nothing of a judge
MORE_LABELS = (2, 4)  # times as many, of which a report says what they would give
_OF_LABELS = "\x1f"  # before the clusters of other answers than the run's


class Refusal(NamedTuple):
    """Why a metric's figure cannot be adjusted by these labels."""

    labelled: str
    reason: str


class Correction(NamedTuple):
    """The labels that hold for one metric of one candidate, as shares of its scale. `is_own`: they
    are of the run's own answers."""

    labelled: str
    labels: Labelled
    is_own: bool

    @property
    def n_clusters(self) -> int:
        return int(np.unique(self.labels.clusters).size)


@dataclass(frozen=True)
class JudgedSide:
    """One candidate's scores in a run and its manifest. `numbers` maps cluster names to numbers,
    shared by sides that are compared; `clusters` are those of the units, a unit that names none
    alone in its own. `rows_of_units` maps a unit's id to its row."""

    candidate: str
    run_id: str
    scores: Scores
    manifest: Mapping[str, Any]
    numbers: dict[str, int]
    clusters: Clusters
    rows_of_units: Mapping[str, int]


def number_names(names: Sequence[str], numbers: dict[str, int]) -> Clusters:
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)


def read_side(
    records: pads.Dataset,
    candidate: str,
    run_id: str,
    manifest: Mapping[str, Any],
    numbers: dict[str, int],
    scores: Scores | None = None,
) -> JudgedSide:
    """Reads a candidate's scores, unless they are at hand, and where its units stand in them."""
    read = scores or read_scores(records, candidate, find_cluster(records))
    table = records.to_table(
        columns=["unit_id", "sample_id", "task"], filter=pc.field("candidate") == candidate
    )
    # Not by `key`: in a comparison that may be the key of the unit that it was matched with
    places = pc.index_in(unit_keys(table), value_set=unit_keys(read.units).combine_chunks())
    rows = {
        unit: row
        for unit, row in zip(table["unit_id"].to_pylist(), places.to_pylist(), strict=True)
        if row is not None
    }
    names = pc.coalesce(read.units["cluster"], read.units["key"]).to_pylist()
    clusters = number_names(names, numbers)
    return JudgedSide(candidate, run_id, read, manifest, numbers, clusters, rows)


def adjust_summary(
    summary: Summary, records: pads.Dataset, manifest: Mapping[str, Any], calibrations: Calibrations
) -> Summary:
    """The summary with an adjusted figure, or why not, at each metric of the calibrations."""
    if not calibrations:
        return summary
    judged_by = {f"{row.metric}/{row.candidate}": row.judges for row in summary.metrics}
    numbers: dict[str, int] = {}
    sides = {
        row.candidate: read_side(
            records, row.candidate, summary.run_id, {**manifest, "judged_by": judged_by}, numbers
        )
        for row in summary.candidates
    }

    def adjust(row: MetricSummary) -> MetricSummary:
        side = sides.get(row.candidate)
        if side is None or row.metric not in side.scores.values:
            return row
        correction = find_correction(calibrations, side, row.metric, row.scale)
        if correction is None:
            return row
        if isinstance(correction, Refusal):
            figure = AdjustedFigure(refused=correction.reason, labelled=correction.labelled)
        else:
            figure = _to_figure(side, row.metric, row.scale, correction)
        return row.model_copy(update={"adjusted": figure})

    notes = dict.fromkeys((*summary.notes, *_strange_labels(calibrations, sides)))
    metrics = tuple(map(adjust, summary.metrics))
    return summary.model_copy(update={"metrics": metrics, "notes": tuple(notes)})


def _strange_labels(calibrations: Calibrations, sides: Mapping[str, JudgedSide]) -> Iterator[str]:
    """A note for each file with labels of units that are not in the run that they name."""
    runs = {"", *(side.run_id for side in sides.values())}
    known = {unit for side in sides.values() for unit in side.rows_of_units}
    for labels in calibrations:
        if not isinstance(labels, OwnLabels):
            continue
        units = [label.unit_id for label in labels.labels if label.run_id in runs]
        if lost := [unit for unit in units if unit not in known]:
            yield (
                f"{labels.labelled}: {len(lost)} of its {len(units)} labels are of no unit that "
                f"is scored here, such as {lost[0]!r}; they do not count"
            )


def check_metrics(calibrations: Calibrations, metrics: Sequence[str]) -> None:
    """Raises ConfigError for labels of which no metric is among those of a run."""
    for calibration in calibrations:
        named = (
            {calibration.metric}
            if isinstance(calibration, JudgeCalibration)
            else {label.metric for label in calibration.labels}
        )
        if not named & set(metrics):
            raise ConfigError(
                f"--calibration: {calibration.labelled} is of {', '.join(sorted(named))}, which "
                f"this run does not score; it scores {', '.join(metrics)}"
            )


def find_correction(
    calibrations: Calibrations, side: JudgedSide, metric: str, scale: tuple[float, float]
) -> Correction | Refusal | None:
    """The labels that hold for a metric's verdicts on this side; why none do; None where no
    calibration is of the metric."""
    refusals = []
    for calibration in calibrations:
        correction: Correction | Refusal | None
        if isinstance(calibration, OwnLabels):
            correction = _own_correction(calibration, side, metric, scale)
        elif calibration.metric == metric:
            judged_by = side.manifest.get("judged_by") or {}
            judges = judged_by.get(f"{metric}/{side.candidate}") or {}
            reason = why_not(calibration, metric, scale, judges, side.manifest)
            correction = Refusal(calibration.labelled, reason)
            if not reason:
                correction = _correction(calibration, side.numbers, scale)
        else:
            continue
        if isinstance(correction, Correction):
            return correction
        if correction is not None:
            refusals.append(correction)
    return refusals[0] if refusals else None


def why_not(
    calibration: JudgeCalibration,
    metric: str,
    scale: tuple[float, float],
    judges: Mapping[str, int],
    manifest: Mapping[str, Any],
) -> str:
    """Why verdicts of these judges, in a run with this manifest, are others than those that were
    labelled; "" where they are the same."""
    if calibration.scale is None:
        for verdict in calibration.verdicts:
            if off := [x for x in (verdict.judge, verdict.people) if not scale[0] <= x <= scale[1]]:
                span = f"off the scale {scale[0]:g} to {scale[1]:g}"
                return f"{off[0]:g} in row {verdict.id} is {span}"
    elif calibration.scale != scale:
        return f"the labels are on a scale of {calibration.scale[0]:g} to {calibration.scale[1]:g}"
    total = sum(judges.values())
    if not total:
        return "the run does not say who judged it"
    for name, count in judges.items():
        if name not in {calibration.judge, *WITHOUT_CALL}:
            return (
                f"the labels are of verdicts by {calibration.judge or 'nobody'}, and "
                f"{name or 'nobody'} gave {count:,} of the {total:,} here"
            )
    version = judge_version(calibration.judge, manifest)
    if not calibration.imported and version != calibration.version:
        return (
            f"the labels are of verdicts by {calibration.judge} in its version "
            f"{calibration.version or '(none)'}, and those here are by {version or '(none)'}"
        )
    rubrics = manifest.get("rubrics") or {}
    for key, digest in {metric: "", **rubrics}.items():
        if key.partition("/")[0] == metric and digest and not calibration.fits_rubric(digest):
            return (
                f"the labels are of verdicts by the rubric {calibration.rubric}, and {key} has "
                f"{digest}"
            )
    return ""


def _correction(
    calibration: JudgeCalibration, numbers: dict[str, int], scale: tuple[float, float]
) -> Correction | Refusal:
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    names = [f"{_OF_LABELS}{verdict.cluster}" for verdict in calibration.verdicts]
    labels = Labelled(
        np.array([(verdict.judge - low) / width for verdict in calibration.verdicts]),
        np.array([(verdict.people - low) / width for verdict in calibration.verdicts]),
        number_names(names, numbers),
        np.array([verdict.weight for verdict in calibration.verdicts], dtype=np.float64),
    )
    return _checked(Correction(calibration.labelled, labels, False))


def _own_correction(
    calibration: OwnLabels, side: JudgedSide, metric: str, scale: tuple[float, float]
) -> Correction | Refusal | None:
    """The labels of this side's own answers; None where none is of the metric."""
    values, low, width = side.scores.values[metric], scale[0], (scale[1] - scale[0]) or 1.0
    by_row: dict[int, list[float]] = {}
    weights: dict[int, float] = {}
    of_metric = [label for label in calibration.labels if label.metric == metric]
    for label in of_metric:
        row = side.rows_of_units.get(label.unit_id)
        is_here = label.run_id in ("", side.run_id)
        if is_here and row is not None and not np.isnan(values[row]):
            if not scale[0] <= label.label <= scale[1]:
                off = f"{label.label:g} of {label.unit_id} is off the scale"
                reason = f"the label {off} {scale[0]:g} to {scale[1]:g}"
                return Refusal(calibration.labelled, reason)
            by_row.setdefault(row, []).append(label.label)
            weights[row] = label.weight
    if not by_row:
        reason = "none of its labels is of an answer that is scored here"
        return Refusal(calibration.labelled, reason) if of_metric else None
    rows = np.array(sorted(by_row), dtype=np.intp)
    labels = Labelled(
        (values[rows] - low) / width,
        np.array([(float(np.mean(by_row[row])) - low) / width for row in rows.tolist()]),
        side.clusters[rows],
        np.array([weights[row] for row in rows.tolist()], dtype=np.float64),
    )
    return _checked(Correction(calibration.labelled, labels, True))


def _checked(correction: Correction) -> Correction | Refusal:
    """The correction, or why its labels are too few or too alike."""
    labels, reason = correction.labels, ""
    if labels.people.size < MIN_LABELS or correction.n_clusters < MIN_CLUSTERS:
        reason = (
            f"{labels.people.size} labels of {correction.n_clusters} clusters; {MIN_LABELS} of "
            f"{MIN_CLUSTERS} are the fewest"
        )
    elif np.ptp(labels.people) == 0:
        reason = (
            f"all {labels.people.size} labels are the same, so that they do not tell how the judge "
            "takes others"
        )
    elif (
        not correction.is_own
        and is_binary(labels.people)
        and is_binary(labels.judge)
        and (slope := youden(labels)) < MIN_YOUDEN
    ):
        reason = (
            f"sensitivity + specificity - 1 of this judge is {slope:z.2f} by these labels, below "
            f"{MIN_YOUDEN}: it hardly tells right from wrong"
        )
    return Refusal(correction.labelled, reason) if reason else correction


def estimate(shares: FloatArray, clusters: Clusters, correction: Correction) -> AdjustedMean:
    """The adjusted mean of a judge's values: by sensitivity and specificity where values and labels
    are 0 or 1 and of other answers than the run's, else by PPI++."""
    run, labels = Verdicts(shares, clusters), correction.labels
    is_share = all(map(is_binary, (shares, labels.judge, labels.people)))
    return (rogan_gladen if is_share and not correction.is_own else prediction_powered)(run, labels)


def _to_figure(
    side: JudgedSide, metric: str, scale: tuple[float, float], correction: Correction
) -> AdjustedFigure:
    values, low, width = side.scores.values[metric], scale[0], (scale[1] - scale[0]) or 1.0
    rows = np.flatnonzero(~np.isnan(values))
    labels: dict[str, Any] = {
        "labelled": correction.labelled,
        "n_labels": correction.labels.people.size,
        "n_clusters": correction.n_clusters,
        "is_own": correction.is_own,
    }
    if not rows.size:
        return AdjustedFigure(refused="nothing was scored", **labels)
    mean = estimate((values[rows] - low) / width, side.clusters[rows], correction)
    return AdjustedFigure(
        method="PPI++" if mean.sensitivity is None else "Rogan-Gladen",
        raw=float(values[rows].mean()),
        value=low + width * mean.value,
        low=low + width * mean.interval.low,
        high=low + width * mean.interval.high,
        sensitivity=mean.sensitivity,
        specificity=mean.specificity,
        tuning=mean.tuning,
        needed=tuple(
            LabelsNeeded(
                more=(times - 1) * correction.labels.people.size,
                half_width=width * mean.half_width(times),
            )
            for times in MORE_LABELS
        ),
        least_half_width=width * mean.half_width(float("inf")),
        **labels,
    )


class AdjustedRunFolder(RunFolder):
    """A run's folder whose summary has adjusted figures beside its own. Raises ConfigError where
    the calibrations are of none of its metrics."""

    def __init__(self, path: str, calibrations: Calibrations) -> None:
        super().__init__(path)
        self._calibrations = calibrations
        self._adjusted: Summary | None = None

    def read_summary(self) -> Summary:
        if self._adjusted is None:
            summary, calibrations = super().read_summary(), self._calibrations
            check_metrics(calibrations, list(dict.fromkeys(row.metric for row in summary.metrics)))
            with readable(self.path), self.local_records() as records:
                self._adjusted = adjust_summary(
                    summary, records, self.read_manifest(), calibrations
                )
        return self._adjusted


def adjusted_columns(summary: Summary) -> pa.Table:
    """A row for each adjusted figure: metric, candidate, and the figure with its interval."""
    schema = pa.schema(
        dict.fromkeys(("metric", "candidate"), pa.string())
        | dict.fromkeys(("adjusted", "adjusted_low", "adjusted_high"), pa.float64())
    )
    rows = (
        (row.metric, row.candidate, figure.value, figure.low, figure.high)
        for row in summary.metrics
        if (figure := row.adjusted) is not None and figure.value is not None
    )
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
