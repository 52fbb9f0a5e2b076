"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import (
    JobOptions,
    argument,
    flag,
    named_number,
    option,
    split_names,
    takes,
)
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError, without_advice
from memray_eval.storage.scratch import ScratchFolder
from memray_eval.types import EXISTING, Record

if TYPE_CHECKING:
    from memray_eval.analysis.calibration import CalibrationReport, Coefficient, Unit
    from memray_eval.config.schema import RunConfig
    from memray_eval.datasets.labels import LabelledResponse, Labelling
    from memray_eval.metric import Metric

# A file of responses, by this judge -> what came of each
Evaluate: TypeAlias = Callable[[Path, str], Iterable[Record]]
TITLES = {
    "exact": "exact agreement",
    "kappa": "weighted kappa",
    "alpha_ordinal": "alpha, ordinal",
    "alpha_interval": "alpha, interval",
    "alpha_nominal": "alpha, nominal",
    "spearman": "Spearman",
    "bias": "bias",
    "calibration_error": "calibration gap",
    "flip_rate": "flip rate",
}
CELL = 26  # -0.123 [-0.123, -0.123]
PEOPLE = "people"
EXISTING_ONLY = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}
LABELLED = "File of responses with human scores: .json, .jsonl, .csv, .tsv or .parquet."


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


@dataclass(frozen=True, kw_only=True)
class LabelOptions(JobOptions):
    """The options of the commands that read labels."""

    columns: list[str] | None = option(
        "Read a field from a column, FIELD=COLUMN,...: response, query, answers, context, memory, "
        "task, human, human2, ..., weight (1 / the probability of being labelled), group, judge (a "
        "judge's scores that exist)",
        None,
        "--map",
    )
    preset: str | None = option(
        "Use the columns of a published file: evouna, topical_chat, begin or mentalalign."
    )
    human_scale: str | None = option(
        "Range of the human scores: LOW,HIGH.  [default: the metric's own]"
    )
    label: list[str] | None = option("Number for a label that is a word: WORD=NUMBER. Repeatable.")
    answers_separator: str | None = option("Separator between the accepted answers in one column.")
    skip_unlabelled: bool = flag("Skip responses without a label.", None, "--skip-unlabelled")
    limit: int | None = option("Use only the first N rows.", min=1)
    encoding: str | None = option(
        "Encoding of the file, such as cp1252.  [default: UTF-8, or UTF-16 by its mark]"
    )

    def read(self, path: Path, metric: str | None) -> LabelledFile:
        """Reads labels of a metric, which a judge's scores that exist may be of without being one
        of ours. Raises ConfigError and DataError."""
        from memray_eval.datasets import labels

        named, labelling = (
            labels.find_preset(self.preset, metric)
            if self.preset
            else (metric, labels.Labelling(columns={}))
        )
        if named is None:
            raise ConfigError("no metric: name it with --metric, or a known file with --preset")
        labelling = labels.map_columns(self.columns or (), self._over(labelling))
        scores_of = labelling.columns.get("judge", "")
        try:
            measured = find_metric(named)
            name, metric_scale = measured.name, measured.scale
        except ConfigError:
            if not scores_of or labelling.scale is None:
                raise
            name, metric_scale = named, labelling.scale
        scale = labelling.scale or metric_scale
        how = labelling, scale, self.limit, self.skip_unlabelled, self.encoding or ""
        rows = labels.read_labelled(path, *how)
        low, width = metric_scale[0], (metric_scale[1] - metric_scale[0]) / (scale[1] - scale[0])
        rows = [
            row.model_copy(update={"judge": low + (row.judge - scale[0]) * width})
            if row.judge is not None
            else row
            for row in rows
        ]
        return LabelledFile(path, rows, scale, named, name, metric_scale, scores_of)

    def _over(self, labelling: Labelling) -> Labelling:
        """How labels are read, with what the options say of their words, answers and scale."""
        form = "WORD=NUMBER, such as yes=1"
        words = dict(named_number(text, "--label", form) for text in self.label or ())
        own: dict[str, Any] = {"words": {**labelling.words, **words}}
        own |= {"separator": self.answers_separator} if self.answers_separator else {}
        own |= {"scale": _parse_scale(self.human_scale)} if self.human_scale else {}
        return labelling.model_copy(update=own)

    def keys(self, file: LabelledFile) -> dict[str, Any]:
        """The keys of a job that scores a file."""
        return {
            "metrics": [file.named],
            "judging.cache": "off" if self.no_cache else None,
            "budget.usd": self.budget_usd,
        }


@app.command(rich_help_panel=LOOK)
@takes(
    "labelled metric judge columns preset human_scale label answers_separator skip_unlabelled "
    "limit encoding repeats no_cache budget_usd yes settings save fit_questions as_json"
)
def calibrate(
    options: LabelOptions,
    labelled: Path = argument(LABELLED),
    metric: str | None = option("Metric that people scored (a preset has its own)."),
    judge: str = option(
        "Judge to measure: rules, embedded or PROVIDER/MODEL; several, "
        "comma-separated, are compared.",
        default="rules",
    ),
    repeats: int = option(
        "Ask each judge this many times, to measure how often its verdict flips.", default=1, min=1
    ),
    save: str | None = option(
        "Also write the labelled verdicts to this file, for --calibration of run, report and "
        "compare; with --fit-questions, the fit."
    ),
    fit_questions: bool = flag(
        "Fit yes/no questions to the labels, for `judge: questions`: asks --judge, a model with "
        "logprobs, and writes the weights to --save.",
        None,
        "--fit-questions",
    ),
) -> None:
    """Compare judges with human scores: agreement, kappa, alpha, Spearman, bias, calibration and
    flips, with intervals.

    memray_eval/report/CALIBRATION.md explains how to map columns, with examples.
    """
    _check_save(save, fit_questions)
    file, settings = options.read(labelled, metric), options.settings or ()
    judges = list(dict.fromkeys(split_names(judge)))
    overrides = options.keys(file) | {"judging.repeats": repeats}
    if fit_questions:
        from memray_eval.cli.fit_questions import fit_to_labels

        fit = fit_to_labels(file, judges, overrides, settings, options.yes, save)
        show(fit.model_dump_json(indent=2) if options.as_json else f"{file.metric}: {fit}")
        return
    if file.scores_of and judge == "rules":
        if save is not None:
            raise ConfigError("--save: say whose scores these are, with --judge PROVIDER/MODEL")
        judges = [file.scores_of]
    manifests: dict[str, Mapping[str, Any]] = {}
    with ScratchFolder("calibrate") as folder:
        runs = make_evaluate(folder, overrides, settings, options.yes, manifests)
        how = file.metric, file.metric_scale, file.scale, judges
        ask = _ask_nobody if file.scores_of else runs
        report, verdicts = compare_judges(labelled.name, file.rows, *how, ask, Path(folder))
    if save is not None:
        _save_verdicts(save, report, verdicts, manifests)
    show(report.model_dump_json(indent=2) if options.as_json else "\n".join(render_lines(report)))


def _ask_nobody(responses: Path, judge: str) -> Iterable[Record]:
    return ()


def find_metric(named: str) -> Metric:
    """The metric that a job calls so."""
    from memray_eval.config.sections import MetricOptions
    from memray_eval.metrics import pick
    from memray_eval.metrics.own import find_own_metrics

    (name, *_), own = find_own_metrics([named])
    (measured,) = pick([name], MetricOptions(own=own))
    return measured


def _save_verdicts(
    path: str,
    report: CalibrationReport,
    verdicts: Mapping[str, list[Unit]],
    manifests: Mapping[str, Mapping[str, Any]],
) -> None:
    from memray_eval.analysis.adjusted.labelled_verdicts import to_calibration, write_calibrations

    how = report.metric, report.scale, report.human_scale, report.labelled
    saved = [to_calibration(units, *how, manifests.get(judge)) for judge, units in verdicts.items()]
    write_calibrations(path, saved)
    say(path)


def _check_save(save: str | None, fit_questions: bool) -> None:
    if fit_questions and save is None:
        raise ConfigError("--fit-questions writes weights: name a file with --save fit.json")
    if save is not None and Path(save).suffix.lower() != ".json":
        raise ConfigError(
            f"--save {save}: name a .json file; --calibration takes others for tables of labels"
        )


def make_evaluate(
    folder: str,
    overrides: dict[str, Any],
    settings: Sequence[str],
    yes: bool,
    manifests: dict[str, Mapping[str, Any]],
) -> Evaluate:
    """Makes an Evaluate that starts a run for each judge, below `folder`, and puts its manifest
    among the `manifests` by the judge. Its messages go to stderr; it raises what `run` raises."""

    def evaluate(responses: Path, judge: str) -> Iterator[Record]:
        from memray_eval.execution.runs import run

        config = load_trial(folder, overrides, settings, responses, judge)
        with without_advice():
            finished = run(config, say, quiet=True, agree=lambda _: yes)
        manifests[judge] = finished.folder.read_manifest()
        return finished.folder.each()

    return evaluate


def load_trial(
    folder: str, overrides: dict[str, Any], settings: Sequence[str], responses: Path, judge: str
) -> RunConfig:
    """The job in which a judge scores a file of responses. Raises ConfigError."""
    keys = {
        "dataset": str(responses),
        "judge": judge,
        "out": f"{folder}/results",
        "candidates": [EXISTING_ONLY],
    }
    return load_config(None, overrides | keys, settings)


def compare_judges(
    name: str,
    rows: Sequence[LabelledResponse],
    metric: str,
    scale: tuple[float, float],
    human_scale: tuple[float, float],
    judges: Sequence[str],
    evaluate: Evaluate,
    folder: Path,
) -> tuple[CalibrationReport, dict[str, list[Unit]]]:
    """Compares judges on the same labelled responses, written to `folder` for `evaluate`; returns
    their verdicts too. `scale` is the metric's. Raises ConfigError if there is no judge."""
    from memray_eval.analysis.calibration import (
        CalibrationReport,
        calibrate_judge,
        people_agreement,
        suggest_judge,
    )

    if not judges:
        raise ConfigError("--judge names none; try rules")
    responses = write_responses(rows, folder)
    verdicts = {
        judge: to_units(rows, evaluate(responses, judge), metric, judge) for judge in judges
    }
    trials = [
        (calibrate_judge(units, judge, scale, human_scale), units)
        for judge, units in verdicts.items()
    ]
    report = CalibrationReport(
        labelled=name,
        metric=metric,
        scale=scale,
        human_scale=human_scale,
        n=len(rows),
        n_clusters=len({row.cluster for row in rows}),
        judges=tuple(calibration for calibration, _ in trials),
        people=people_agreement(trials[0][1], human_scale),
        suggestion=suggest_judge(trials, scale, human_scale) if len(trials) > 1 else None,
    )
    return report, verdicts


def write_responses(rows: Sequence[LabelledResponse], folder: Path) -> Path:
    """Writes labelled responses without their labels; returns the file."""
    responses = folder / "responses.jsonl"
    lines = (json.dumps(row.fields, ensure_ascii=False) + "\n" for row in rows)
    responses.write_text("".join(lines), "utf-8")
    return responses


def to_units(
    rows: Sequence[LabelledResponse], records: Iterable[Record], metric: str, judge: str = ""
) -> list[Unit]:
    """Joins labelled responses with the judge's verdicts; a response without a record has the score
    that exists, of this judge, or none."""
    from memray_eval.analysis.calibration import Unit

    scores = {
        record.sample.id: score
        for record in records
        for score in record.scores
        if score.metric == metric
    }
    units = []
    for row in rows:
        unit = Unit(
            id=row.id,
            people=row.people,
            judge=row.judge,
            cluster=row.cluster,
            weight=row.weight,
            judged_by="" if row.judge is None else judge,
        )
        if (score := scores.get(row.id)) is not None:
            judgment = json.loads(score.judgment or "{}")
            values = [verdict["value"] for verdict in judgment.get("jury", ())]
            verdict = {
                "judge": score.value,
                "confidence": judgment.get("confidence"),
                "repeats": tuple(value for value in values if value is not None),
                "cost_usd": score.cost_usd,
                "unpriced_calls": score.usage.unpriced_calls,
                "judged_by": score.judge,
                "unscored": (score.error or score.status) if score.value is None else "",
            }
            unit = unit.model_copy(update=verdict)
        units.append(unit)
    return units


def render_lines(report: CalibrationReport) -> Iterator[str]:
    """Renders the report as text: a column for each judge, one for people's own agreement, then
    each judge's calibration curve."""
    (low, high), (to_low, to_high) = report.scale, report.human_scale
    yield (
        f"{report.metric} ({low:g}-{high:g}) on {report.labelled}: {report.n} labelled responses, "
        f"{report.n_clusters} clusters"
    )
    yield (
        f"Figures on people's scale, {to_low:g}-{to_high:g}, with 95 % bootstrap intervals over "
        "clusters"
    )
    yield ""
    columns = [
        (
            judge.judge,
            f"{judge.n_scored} of {judge.n} ({judge.coverage:.1%})",
            judge.figures,
            "unknown" if judge.cost_usd is None else f"${judge.cost_usd:.4f}",
        )
        for judge in report.judges
    ]
    if report.people:
        columns.append((PEOPLE, str(report.people.n), report.people.figures, ""))
    names, counts, tables, costs = zip(*columns, strict=True)
    yield _format_row("", names)
    yield _format_row("scored", counts)
    for name, title in TITLES.items():
        yield _format_row(title, [format_figure(figures.get(name)) for figures in tables])
    yield _format_row("cost", costs[: len(report.judges)])
    if any(figures[name].value is None for figures in tables for name in ("kappa", "spearman")):
        yield "-: undefined, for all scores or all labels are the same, or there are none"
    for judge in report.judges:
        curve = (
            f"  {part.low:>5.2f} to {part.high:<5.2f} n={part.n:<6} judge {part.judge:.3f}  people "
            f"{part.people:.3f}"
            for part in judge.curve
        )
        yield from ("", f"Calibration of {judge.judge} by {judge.curve_by}", *curve)
    if report.suggestion:
        yield from (
            "",
            f"Suggested: {report.suggestion.judge or 'none'}, {report.suggestion.reason}.",
        )


def _format_row(title: str, cells: Sequence[str]) -> str:
    return f"{title:<16}" + "".join(f"{cell:>{CELL}}" for cell in cells)


def format_figure(figure: Coefficient | None) -> str:
    if figure is None or figure.value is None:
        return "-"
    span = (
        ""
        if figure.low is None or figure.high is None
        else f" [{figure.low:.3f}, {figure.high:.3f}]"
    )
    return f"{figure.value:.3f}{span}"


def _parse_scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    try:
        scale = float(low), float(high)
    except ValueError:
        scale = (0.0, 0.0)
    if not scale[0] < scale[1]:
        raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
    return scale
