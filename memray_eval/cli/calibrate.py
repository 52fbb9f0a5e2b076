"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import (
    JobOptions,
    argument,
    flag,
    named_number,
    option,
    split_names,
)
from memray_eval.errors import ConfigError
from memray_eval.storage.scratch import ScratchFolder

if TYPE_CHECKING:
    from memray_eval.analysis.calibration import CalibrationReport, Unit
    from memray_eval.datasets.labels import Labelling


@app.command(rich_help_panel=LOOK)
def calibrate(
    labelled: Path = argument(
        "File of responses with human scores: .json, .jsonl, .csv, .tsv or .parquet."
    ),
    metric: str | None = option("Metric that people scored (a preset has its own)."),
    judge: str = option(
        "Judge to measure: rules, embedded or PROVIDER/MODEL; several, "
        "comma-separated, are compared.",
        default="rules",
    ),
    columns: list[str] | None = option(
        "Read a field from a column, FIELD=COLUMN,...: response, query, answers, context, memory, "
        "task, criterion, human, human2, ..., raters, weight (1 / the chance of being labelled)",
        None,
        "--map",
    ),
    preset: str | None = option(
        "Use the columns of a published file: evouna, topical_chat, begin or healthbench."
    ),
    human_scale: str | None = option(
        "Range of the human scores: LOW,HIGH.  [default: the metric's own]"
    ),
    label: list[str] | None = option("Number for a label that is a word: WORD=NUMBER. Repeatable."),
    answers_separator: str | None = option("Separator between the accepted answers in one column."),
    skip_unlabelled: bool = flag("Skip responses without a label.", None, "--skip-unlabelled"),
    limit: int | None = option("Use only the first N rows.", min=1),
    repeats: int = option(
        "Ask each judge this many times, to measure how often its verdict flips.", default=1, min=1
    ),
    no_cache: bool = JobOptions.no_cache,
    budget_usd: float | None = JobOptions.budget_usd,
    yes: bool = JobOptions.yes,
    settings: list[str] | None = JobOptions.settings,
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
    as_json: bool = JobOptions.as_json,
) -> None:
    """Compare judges with human scores: agreement, kappa, alpha, Spearman, bias, calibration and
    flips, with intervals.

    memray_eval/report/CALIBRATION.md explains how to map columns, with examples.
    """
    from memray_eval.api.calibrating import compare_judges, find_metric, make_evaluate
    from memray_eval.datasets import labels
    from memray_eval.report.calibration_console import render

    _check_save(save, fit_questions)
    named, measured, labelling = find_metric(metric, preset)
    labelling = _with_options(labelling, label or (), answers_separator, human_scale)
    labelling = labels.map_columns(columns or (), labelling)
    scale = labelling.scale or measured.scale
    rows = labels.read_labelled(labelled, labelling, scale, limit, skip_unlabelled)
    judges = list(dict.fromkeys(split_names(judge)))
    overrides = {
        "metrics": [named],
        "judging.repeats": repeats,
        "judging.cache": "off" if no_cache else None,
        "budget.usd": budget_usd,
    }
    if fit_questions:
        from memray_eval.cli.fit_questions import LabelledFile, fit_to_labels

        file = LabelledFile(labelled, rows, scale)
        fit = fit_to_labels(measured.name, file, judges, overrides, settings or (), yes, save)
        show(fit.model_dump_json(indent=2) if as_json else f"{measured.name}: {fit}")
        return
    manifests: dict[str, Mapping[str, Any]] = {}
    with ScratchFolder("calibrate") as folder:
        runs = make_evaluate(folder, overrides, settings or (), yes, manifests, say)
        report, verdicts = compare_judges(
            labelled.name, rows, measured.name, measured.scale, scale, judges, runs, Path(folder)
        )
    if save is not None:
        _save_verdicts(save, report, verdicts, manifests)
    show(report.model_dump_json(indent=2) if as_json else render(report))


def _save_verdicts(
    path: str,
    report: CalibrationReport,
    verdicts: Mapping[str, list[Unit]],
    manifests: Mapping[str, Mapping[str, Any]],
) -> None:
    from memray_eval.analysis.adjusted.labelled_verdicts import to_calibration, write_calibrations

    how = report.metric, report.scale, report.human_scale, report.labelled
    saved = [to_calibration(units, *how, manifests[judge]) for judge, units in verdicts.items()]
    write_calibrations(path, saved)
    say(path)


def _check_save(save: str | None, fit_questions: bool) -> None:
    if fit_questions and save is None:
        raise ConfigError("--fit-questions writes weights: name a file with --save fit.json")
    if save is not None and Path(save).suffix.lower() != ".json":
        raise ConfigError(
            f"--save {save}: name a .json file; --calibration takes others for tables of labels"
        )


def _with_options(
    labelling: Labelling, label: Sequence[str], separator: str | None, human_scale: str | None
) -> Labelling:
    """How labels are read, with what the options say of their words, answers and scale."""
    words = dict(named_number(text, "--label", "WORD=NUMBER, such as yes=1") for text in label)
    own: dict[str, Any] = {"words": {**labelling.words, **words}}
    own |= {"separator": separator} if separator else {}
    own |= {"scale": _parse_scale(human_scale)} if human_scale else {}
    return labelling.model_copy(update=own)


def _parse_scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    try:
        scale = float(low), float(high)
    except ValueError:
        scale = (0.0, 0.0)
    if not scale[0] < scale[1]:
        raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
    return scale
