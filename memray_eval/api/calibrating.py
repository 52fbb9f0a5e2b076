"""Judges measured against people's labels, from Python and for the command line."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from memray_eval.analysis.calibration import (
    AdjustedMean,
    CalibrationReport,
    Unit,
    adjusted_mean,
    calibrate_judge,
    compare_raters,
    people_agreement,
    rescale,
    suggest_judge,
)  # fmt: skip
from memray_eval.analysis.scores import find_cluster
from memray_eval.analysis.statistics import code_names
from memray_eval.api.runs import Displayed, Tables, to_stderr, to_table
from memray_eval.config.loading import load_config
from memray_eval.config.sections import MetricOptions
from memray_eval.datasets.labels import (
    LabelledResponse,
    Labelling,
    map_columns,
    read_labelled,
)  # fmt: skip
from memray_eval.datasets.reading import to_rows, write_rows
from memray_eval.errors import ConfigError, suggest, without_advice
from memray_eval.execution.prepare.origins import existing_candidate
from memray_eval.execution.runs import run
from memray_eval.metrics import pick
from memray_eval.metrics.own import find_own_metrics
from memray_eval.report.calibration_console import (
    PEOPLE,
    ScoredUnit,
    SheetLabels,
    draw,
    read_sheets,
    scored_units,
    sections,
    write_sheet,
)
from memray_eval.report.sections import Section
from memray_eval.results.lookup import find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.leases import ScratchFolder
from memray_eval.storage.paths import readable
from memray_eval.types import EXISTING, FALLBACKS, WITHOUT_CALL, MetricSummary, Record, Score

# By this judge -> what came of each response, and the digest of its rubric
Evaluate: TypeAlias = Callable[[str], tuple[Iterable[Record], str]]
EXISTING_ONLY = existing_candidate(EXISTING)
_FIELDS = {name: name for name in ("query", "response", "human")}


class LabelledFile(NamedTuple):
    """Responses with people's labels on `scale`, of the metric that a job calls `named`; its
    scores, also those that exist, are on `metric_scale`. `scores_of` names the column of these."""

    path: Path
    rows: Sequence[LabelledResponse]
    scale: tuple[float, float]
    named: str
    metric: str
    metric_scale: tuple[float, float]
    scores_of: str = ""


class Calibration(Displayed, CalibrationReport):
    """The result of `calibrate`.

    Its tables: `figures` (a row a judge and figure) and `curve`.

        me.calibrate("labels.csv", "relevance").to_pandas()
    """

    def _sections(self) -> Iterator[Section]:
        yield next(sections(self))

    def _tables(self) -> Tables:
        of = [(judge.judge, judge.figures) for judge in self.judges]
        of += [(PEOPLE, self.people.figures)] if self.people else []
        figures = (
            {"judge": name, "figure": figure, **value.model_dump()}
            for name, values in of
            for figure, value in values.items()
        )
        curve = ({"of": judge.judge, **dict(part)} for judge in self.judges for part in judge.curve)
        return {
            "figures": lambda: to_table(figures, "judge figure value low high"),
            "curve": lambda: to_table(curve, "of low high n judge people"),
        }


def calibrate(
    labelled: Any,
    metric: str | None = None,
    *,
    judge: str | Sequence[str] = "rules",
    map: Mapping[str, str] | None = None,
    human_scale: tuple[float, float] | None = None,
    limit: int | None = None,
    skip_unlabelled: bool = False,
    budget_usd: float | None = None,
    confirm: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Calibration:
    """Measures judges against people's scores of the same responses: agreement, kappa, bias, each
    with its interval. `labelled` is a path, a list of mappings or a table; `map` says which column
    is which field, if they are not called query, response, human (human2, ... for more people);
    with {"judge": COLUMN}, scores that exist, only human is needed. `human_scale` is the labels'
    range, if it is not the metric's. A response without a label raises DataError, unless
    `skip_unlabelled`. The rest is as of `evaluate`.

        me.calibrate("labels.csv", "relevance", judge=["rules", "openai/gpt-4o"])
    """
    with ScratchFolder("calibrate") as folder:
        is_file = isinstance(labelled, str | Path)
        path = Path(labelled if is_file else write_rows(to_rows(labelled), folder))
        needed = {"human": "human"} if "judge" in (map or {}) else _FIELDS
        pairs = [f"{name}={column}" for name, column in (needed | dict(map or {})).items()]
        file = read_labels(
            path, metric, pairs, scale=human_scale, limit=limit, skips=skip_unlabelled
        )
    keys = {"budget.usd": budget_usd, **settings}
    judges: Sequence[str] = [judge] if isinstance(judge, str) else judge
    judges = [file.scores_of] if file.scores_of else judges
    report = measure_judges(file, judges, keys, (), confirm, to_stderr(quiet))
    return Calibration.model_validate(dict(report) | ({} if is_file else {"labelled": "rows"}))


def read_labels(
    path: Path,
    metric: str | None,
    columns: Sequence[str] = (),
    *,
    words: Mapping[str, float] = MappingProxyType({}),
    separator: str | None = None,
    scale: tuple[float, float] | None = None,
    limit: int | None = None,
    skips: bool = False,
    encoding: str = "",
) -> LabelledFile:
    """Reads labels of a metric; existing scores of a judge may be of a metric that is not ours.
    `columns` are FIELD=COLUMN; `skips` leaves out rows without a label. Raises ConfigError and
    DataError."""
    if metric is None:
        raise ConfigError(
            "no metric: name it with --metric; a sheet that --sheet wrote is read by: "
            f"memray-eval calibrate RUN --labels {path}"
        )
    bare = Labelling(columns={}, separator=separator, words=dict(words))
    labelling = map_columns(columns, bare)
    scores_of = labelling.columns.get("judge", "")
    try:
        (own_name, *_), own_metrics = find_own_metrics([metric])
        (measured,) = pick([own_name], MetricOptions(own=own_metrics))
        name, metric_scale = measured.name, measured.scale
    except ConfigError:
        if not scores_of or scale is None:
            raise
        name, metric_scale = metric, scale
    scale = scale or metric_scale
    rows = [
        row
        if row.judge is None
        else row.model_copy(update={"judge": rescale(row.judge, scale, metric_scale)})
        for row in read_labelled(path, labelling, scale, limit, skips, encoding)
    ]
    return LabelledFile(path, rows, scale, metric, name, metric_scale, scores_of)


def measure_judges(
    file: LabelledFile,
    judges: Sequence[str],
    keys: Mapping[str, Any],
    settings: Sequence[str],
    confirm: bool,
    say: Callable[[str], None],
) -> CalibrationReport:
    """Compares judges on labelled responses by a run of each, of a job with `keys` and `settings`,
    or the scores that exist. `say` gets the runs' messages; raises what `run` raises."""
    with ScratchFolder("calibrate") as folder:
        responses = Path(folder) / "responses.jsonl"
        lines = (json.dumps(row.fields, ensure_ascii=False) + "\n" for row in file.rows)
        responses.write_text("".join(lines), "utf-8")

        def evaluate(judge: str) -> tuple[Iterable[Record], str]:
            job = {"dataset": str(responses), "judge": judge, "candidates": [EXISTING_ONLY]}
            job |= {"metrics": [file.named], "out": f"{folder}/results"}
            config = load_config(None, {**keys, **job}, settings)
            with without_advice():
                finished = run(config, say, quiet=True, agree=lambda _: confirm)
            of_run = finished.folder.read_manifest().get("rubrics") or {}
            return finished.folder.each(), "".join(list(of_run.values())[:1])

        if file.scores_of:
            return compare_judges(file, judges, lambda judge: ((), ""))
        return compare_judges(file, judges, evaluate)


def compare_judges(
    file: LabelledFile, judges: Sequence[str], evaluate: Evaluate
) -> CalibrationReport:
    """Compares judges on the same labelled responses. Raises ConfigError if there is no judge."""
    if not judges:
        raise ConfigError("--judge names none; try rules")
    scales = file.metric_scale, file.scale
    trials = []
    for judge in dict.fromkeys(judges):
        records, rubric = evaluate(judge)
        pairs = ((of.sample.id, score) for of in records for score in of.scores)
        scores = {sample: score for sample, score in pairs if score.metric == file.metric}
        units = [_to_unit(row, scores.get(row.id), judge) for row in file.rows]
        update = {"rubric": rubric.partition(", ")[0]}
        trials.append((calibrate_judge(units, judge, *scales).model_copy(update=update), units))
    return CalibrationReport(
        labelled=file.path.name,
        metric=file.metric,
        scale=file.metric_scale,
        human_scale=file.scale,
        n=len(file.rows),
        n_clusters=len({row.cluster for row in file.rows}),
        judges=tuple(calibration for calibration, _ in trials),
        people=people_agreement(trials[0][1], file.scale),
        suggestion=suggest_judge(trials, *scales) if len(trials) > 1 else None,
        raters=compare_raters({of.judge: units for of, units in trials}, *scales),
    )


def _to_unit(row: LabelledResponse, score: Score | None, judge: str) -> Unit:
    """A labelled response with the judge's verdict, else with this judge's existing score, or
    none."""
    labelled = row.model_dump(exclude={"fields"})
    unit = Unit(**labelled, judged_by="" if row.judge is None else judge)
    if score is None:
        return unit
    judgment = json.loads(score.judgment or "{}")
    values = [verdict["value"] for verdict in judgment.get("jury", ())]
    verdict = {
        "judge": score.value,
        "confidence": judgment.get("confidence"),
        "repeats": tuple(value for value in values if value is not None),
        "cost_usd": score.cost_usd,
        "unpriced_calls": score.usage.unpriced_calls,
        "judged_by": score.judge,
    }
    return unit.model_copy(update=verdict)


def draw_sheet(run: str, metric: str | None, limit: int, path: str | None) -> str:
    """Writes a sheet of a run's answers for people to label and returns its path. Raises
    ConfigError for a metric that the run does not score, and for a file that is there already."""
    folder = RunFolder(find_run(run))
    row = _metric_of(folder, metric)
    path = path or f"{row.metric}-labels.csv"
    if Path(path).exists():
        raise ConfigError(f"{path} is there already, maybe with labels; name another with --out")
    units = scored_units(folder.each(), row.metric)
    if not units:
        raise ConfigError(f"{folder.path}: no answer has a score of {row.metric}")
    write_sheet(path, folder.each(), draw(units, limit), row)
    return path


def calibrate_run(
    run: str,
    sheets: Sequence[Path],
    metric: str | None,
    words: Mapping[str, float],
    human_scale: tuple[float, float] | None,
    encoding: str = "",
) -> CalibrationReport:
    """Compares the judge of a run with the labels in filled sheets, and adjusts its means by them.
    Of answers that no judge was asked of, such as empty ones, labels count in the means alone; one
    that rules scored because the judge failed is one it did not score. Raises ConfigError and
    DataError."""
    folder = RunFolder(find_run(run))
    row = _metric_of(folder, metric)
    scale = human_scale or row.scale
    with readable(folder.path):
        cluster = find_cluster(folder.records())
    units = scored_units(folder.each(), row.metric, cluster)
    labels = read_sheets(sheets, units, row.metric, scale, words, encoding)
    raters = list(dict.fromkeys(name for of in labels.values() for name in of.labels))
    judges = list(dict.fromkeys(units[unit_id].judge for unit_id in labels))
    judges = [name for name in judges if name not in WITHOUT_CALL | FALLBACKS.keys()] or judges
    rows = [
        LabelledResponse(
            id=unit_id,
            fields={"id": unit_id},
            people=tuple(of.labels.get(name) for name in raters),
            cluster=unit.cluster,
            judge=unit.value if unit.judge in judges else None,
        )
        for unit_id, of in labels.items()
        for unit in [units[unit_id]]
        if unit.judge in judges or unit.judge in FALLBACKS
    ]
    judge = ", ".join(judges)
    name = Path(", ".join(path.name for path in sheets))
    file = LabelledFile(name, rows, scale, row.metric, row.metric, row.scale, scores_of=judge)
    rubric = (folder.read_manifest().get("rubrics") or {}).get(row.metric, "")
    report = compare_judges(file, [judge], lambda judge: ((), rubric))
    by_candidate = defaultdict[str, dict[str, ScoredUnit]](dict)
    for unit_id, unit in units.items():
        by_candidate[unit.candidate][unit_id] = unit
    adjusted = [_adjust(*of, labels, scale, row.scale) for of in by_candidate.items()]
    return report.model_copy(update={"adjusted": tuple(adjusted)})


def _metric_of(folder: RunFolder, named: str | None) -> MetricSummary:
    """The summary of a metric that the run scores; if none is named, of the only one, or the only
    one by a rubric."""
    rows = {row.metric: row for row in folder.read_summary().metrics if row.n_scored}
    by_rubric = rows.keys() & (folder.read_manifest().get("rubric_versions") or {}).keys()
    if named is None and 1 in (len(rows), len(by_rubric)):
        return rows[min(by_rubric or rows)]
    if named is None:
        raise ConfigError(f"no metric: name one with --metric; the run has {', '.join(rows)}")
    if named not in rows:
        raise ConfigError(
            f"--metric: {folder.path} has no scores of {named}; {suggest(named, rows)}"
        )
    return rows[named]


def _adjust(
    candidate: str,
    units: Mapping[str, ScoredUnit],
    labels: Mapping[str, SheetLabels],
    human_scale: tuple[float, float],
    scale: tuple[float, float],
) -> AdjustedMean:
    people, weights = np.full(len(units), np.nan), np.ones(len(units))
    for row, unit_id in enumerate(units):
        if (of := labels.get(unit_id)) is not None:
            values = [label for label in of.labels.values() if label is not None]
            people[row], weights[row] = np.mean(values), of.weight
    judge = np.array([unit.value for unit in units.values()])
    clusters = code_names([unit.cluster for unit in units.values()])
    return adjusted_mean(
        candidate, judge, rescale(people, human_scale, scale), weights, clusters, scale
    )
