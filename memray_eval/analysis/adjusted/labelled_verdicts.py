"""The labelled verdicts that correct a judge: a file that `calibrate --save` wrote, or a table of
people's labels of a run's own answers (CSV, JSONL, ...)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from memray_eval.analysis.calibration import Unit
from memray_eval.config.problems import describe
from memray_eval.config.sections import split_metric
from memray_eval.datasets.labels import parse_number, read_rows
from memray_eval.datasets.parsing import InvalidSample, parse_json
from memray_eval.errors import ConfigError, DataError
from memray_eval.metric import RULES
from memray_eval.storage.paths import write_atomically
from memray_eval.types import WITHOUT_CALL, Frozen

# Of a table of labels of a run's own answers
UNIT_ID, LABEL, WEIGHT, METRIC, RUN_ID = "unit_id", "label", "weight", "metric", "run_id"
# Of a table of other answers: a judge's name and its score beside people's, and what makes answers
# depend on each other
JUDGE, JUDGE_SCORE, CLUSTER = "judge", "judge_score", "cluster"
_OF_PERSON = re.compile(r"human\d*")  # a column for each person, in place of LABEL


class LabelledVerdict(Frozen):
    """One labelled answer: what the judge said and the mean of what people said, both on the
    metric's scale; what makes answers depend on each other; and 1 / its chance to be labelled."""

    id: str
    judge: float = Field(allow_inf_nan=False)
    people: float = Field(allow_inf_nan=False)
    cluster: str
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)


class JudgeCalibration(Frozen):
    """The labelled verdicts of one judge on one metric. `judge`, `version` and the digest of the
    `rubric` say of which verdicts it holds; of `imported` ones the last two are not known, and a
    scale of None is the metric's. `labelled` names the file of the labels. `n_unscored` of its
    answers have no verdict of this judge."""

    metric: str
    judge: str
    version: str = ""
    rubric: str = ""
    imported: bool = False
    scale: tuple[float, float] | None
    human_scale: tuple[float, float]
    labelled: str
    n_unscored: int = 0
    verdicts: tuple[LabelledVerdict, ...]

    def fits_rubric(self, digest: str) -> bool:
        """Whether verdicts by the rubric of this digest are like these."""
        return self.imported or digest == self.rubric


class CalibrationFile(Frozen):
    """What `calibrate --save` writes."""

    format: Literal["memray-eval calibration 1"] = "memray-eval calibration 1"
    calibrations: tuple[JudgeCalibration, ...]


class OwnLabel(Frozen):
    """A person's label of one answer of a run, on the metric's scale."""

    unit_id: str
    metric: str
    label: float
    weight: float = 1.0
    run_id: str = ""


class OwnLabels(Frozen):
    """People's labels of a run's own answers, from the file `labelled`; one may have several."""

    labelled: str
    labels: tuple[OwnLabel, ...]


Calibrations = tuple[JudgeCalibration | OwnLabels, ...]


def judge_version(judge: str, manifest: Mapping[str, Any]) -> str:
    """What a judge's name does not tell of it: the version of memray_eval for rules, the digests of
    the user's code for a judge that is code."""
    if judge.startswith(RULES):
        return f"memray-eval {(manifest.get('package') or {}).get('version', '')}".strip()
    own = manifest.get("own_code") or {}
    return ", ".join(
        digest for name, digest in sorted(own.items()) if judge.startswith(f"{Path(name).stem}/")
    )


def to_calibration(
    units: Sequence[Unit],
    metric: str,
    scale: tuple[float, float],
    human_scale: tuple[float, float],
    labelled: str,
    manifest: Mapping[str, Any] | None,
) -> JudgeCalibration:
    """The calibration of the judge that scored most of the units, in a run with this manifest, or
    elsewhere if it is None. Verdicts of others (fallbacks) are left out, but for the rules' on
    empty answers."""
    named = Counter(
        unit.judged_by
        for unit in units
        if unit.judge is not None and unit.judged_by not in WITHOUT_CALL
    )
    judge = named.most_common(1)[0][0] if named else ""
    (low, high), (from_low, from_high) = scale, human_scale
    verdicts = []
    for unit in units:
        if unit.judge is None or unit.judged_by not in {judge, *WITHOUT_CALL}:
            continue
        labels = [label for label in unit.people if label is not None]
        share = (sum(labels) / len(labels) - from_low) / (from_high - from_low)
        verdicts.append(
            LabelledVerdict(
                id=unit.id,
                judge=unit.judge,
                people=round(low + share * (high - low), 9),
                cluster=unit.cluster,
                weight=unit.weight,
            )
        )
    return JudgeCalibration(
        metric=metric,
        judge=judge,
        version=judge_version(judge, manifest or {}),
        rubric=((manifest or {}).get("rubrics") or {}).get(metric, ""),
        imported=manifest is None,
        scale=scale,
        human_scale=human_scale,
        labelled=labelled,
        n_unscored=len(units) - len(verdicts),
        verdicts=tuple(verdicts),
    )


def write_calibrations(path: str, calibrations: Iterable[JudgeCalibration]) -> None:
    """Writes the file, whole or not at all. Raises ConfigError where it cannot be written."""
    kept = CalibrationFile(calibrations=tuple(calibrations))
    with write_atomically(path) as stream:
        stream.write(kept.model_dump_json(indent=1).encode("utf-8", "backslashreplace") + b"\n")


def read_calibrations(names: Iterable[str]) -> Calibrations:
    """Reads what `--calibration` names: paths, or METRIC=PATH for a table of labels. Raises
    ConfigError for a file that is neither, DataError for an unreadable one or a label that is
    none."""
    return tuple(calibration for name in names for calibration in _read_file(*split_metric(name)))


def _read_file(metric: str, name: str) -> Calibrations:
    path = Path(name)
    if path.suffix.lower() == ".json":
        try:
            data = parse_json(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        except InvalidSample as error:
            raise DataError(f"{path}: {error}") from None
        if isinstance(data, dict):
            try:
                return CalibrationFile.model_validate(data).calibrations
            except ValidationError as error:
                first = next(iter(describe(error, CalibrationFile)), "")
                raise ConfigError(
                    f"{path} is no file of `memray-eval calibrate LABELLED --save FILE` ({first})"
                ) from None
    rows = list(enumerate(read_rows(path), 1))
    if any(JUDGE_SCORE in row and UNIT_ID not in row for _, row in rows):
        return _imported(path, rows, metric)
    labels = [label for number, row in rows for label in _parse_row(path, number, row, metric)]
    if not labels:
        raise DataError(f"{path} holds no label")
    return (OwnLabels(labelled=path.name, labels=tuple(labels)),)


def _imported(
    path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]], metric: str
) -> tuple[JudgeCalibration, ...]:
    """The calibration of each metric and judge of a table of other answers, without a call. A row
    without a label is left out."""
    units: dict[tuple[str, str], list[Unit]] = {}
    for number, row in rows:
        labels = list(_parse_row(path, number, {UNIT_ID: number, **row}, metric))
        judge, cell = str(row.get(JUDGE) or ""), row.get(JUDGE_SCORE)
        if not labels:
            continue
        if not judge or (_to_number(cell) is None and not _is_empty(cell)):
            what = JUDGE_SCORE if judge else JUDGE
            raise DataError(
                f"{path}, row {number}: {what} is {row.get(what)!r}; {JUDGE} says whose score it "
                f"is, as the run names its judge, such as openai/gpt-4o, and {JUDGE_SCORE} is a "
                "number"
            )
        unit = Unit(
            id=str(number),
            people=tuple(label.label for label in labels),
            judge=_to_number(cell),
            judged_by=judge,
            cluster=str(row.get(CLUSTER) or number),
            weight=labels[0].weight,
        )
        units.setdefault((labels[0].metric, judge), []).append(unit)
    if not units:
        raise DataError(f"{path} holds no label")
    same = (0.0, 1.0), (0.0, 1.0)  # as they are
    return tuple(
        to_calibration(of_judge, name, *same, path.name, None).model_copy(update={"scale": None})
        for (name, _), of_judge in units.items()
    )


def _parse_row(path: Path, number: int, row: Mapping[str, Any], metric: str) -> Iterator[OwnLabel]:
    """Yields a row's labels, one of each person; none if nobody labelled it, or took that back."""
    columns = [name for name in row if name == LABEL or _OF_PERSON.fullmatch(name)]
    if UNIT_ID not in row or not columns:
        lacking = LABEL if UNIT_ID in row else UNIT_ID
        raise ConfigError(
            f"{path} has no column {lacking!r}: a table of labels of a run's own answers has "
            f"{UNIT_ID}, {LABEL} (or human, human2, ...), {METRIC} and, if not all were as likely "
            f"to be labelled, {WEIGHT} (1 / that chance), that of other answers {JUDGE} and "
            f"{JUDGE_SCORE} in place of {UNIT_ID}; other labelled files go through "
            "`memray-eval calibrate LABELLED --save FILE`"
        )
    named = metric or str(row.get(METRIC) or "")
    if not named:
        raise ConfigError(
            f"{path} does not say of which metric its labels are: write --calibration "
            f"METRIC={path}, or add a column {METRIC!r}"
        )
    weight = 1.0 if _is_empty(row.get(WEIGHT)) else _to_number(row[WEIGHT])
    for column in columns:
        if _is_empty(row[column]):
            continue
        label = _to_number(row[column])
        if label is None or weight is None or weight <= 0:
            what = column if label is None else WEIGHT
            raise DataError(
                f"{path}, row {number}: {what} is {row[what]!r}, not a number that it can be"
            )
        yield OwnLabel(
            unit_id=str(row[UNIT_ID]),
            metric=named,
            label=label,
            weight=weight,
            run_id=str(row.get(RUN_ID) or ""),
        )


def _is_empty(cell: object) -> bool:
    return cell is None or str(cell).strip() == ""


def _to_number(value: object) -> float | None:
    number = parse_number(value, {})
    return number if number is not None and isfinite(number) else None
