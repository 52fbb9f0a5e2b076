"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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
    takes,
)
from memray_eval.errors import ConfigError
from memray_eval.storage.scratch import ScratchFolder

if TYPE_CHECKING:
    from memray_eval.analysis.calibration import CalibrationReport, Unit
    from memray_eval.api.calibrating import LabelledFile

LABELLED = "File of responses with human scores: .json, .jsonl, .csv, .tsv or .parquet."


@dataclass(frozen=True, kw_only=True)
class LabelOptions(JobOptions):
    """The options by which labels are read."""

    columns: list[str] | None = option(
        "Read a field from a column, FIELD=COLUMN,...: response, query, answers, context, memory, "
        "task, criterion, human, human2, ..., raters, weight (1 / the chance of being labelled), "
        "judge (a judge's scores that exist)",
        None,
        "--map",
    )
    preset: str | None = option(
        "Use the columns of a published file: evouna, topical_chat, begin, mentalalign or "
        "healthbench."
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
        """Reads labels of a metric, as the options say. Raises ConfigError and DataError."""
        from memray_eval.api.calibrating import read_labels

        form = "WORD=NUMBER, such as yes=1"
        return read_labels(
            path,
            metric,
            self.preset,
            self.columns or (),
            words=dict(named_number(text, "--label", form) for text in self.label or ()),
            separator=self.answers_separator,
            scale=_parse_scale(self.human_scale) if self.human_scale else None,
            limit=self.limit,
            skips=self.skip_unlabelled,
            encoding=self.encoding or "",
        )


@app.command(rich_help_panel=LOOK)
@takes(
    "labelled metric judge columns preset human_scale label answers_separator skip_unlabelled "
    "limit encoding repeats no_cache budget_usd yes settings save as_json"
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
        "compare."
    ),
) -> None:
    """Compare judges with human scores: agreement, kappa, alpha, Spearman, bias, calibration and
    flips, with intervals.

    memray_eval/report/CALIBRATION.md explains how to map columns, with examples.
    """
    from memray_eval.api.calibrating import compare_judges, make_evaluate
    from memray_eval.report.calibration_console import render

    _check_save(save)
    file, settings = options.read(labelled, metric), options.settings or ()
    judges = list(dict.fromkeys(split_names(judge)))
    overrides = {
        "metrics": [file.named],
        "judging.cache": "off" if options.no_cache else None,
        "judging.repeats": repeats,
        "budget.usd": options.budget_usd,
    }
    if file.scores_of and judge == "rules":
        if save is not None:
            raise ConfigError("--save: say whose scores these are, with --judge PROVIDER/MODEL")
        judges = [file.scores_of]
    manifests: dict[str, Mapping[str, Any]] = {}
    with ScratchFolder("calibrate") as folder:
        evaluate = make_evaluate(folder, overrides, settings, options.yes, manifests, say)
        report, verdicts = compare_judges(file, judges, evaluate, Path(folder))
    if save is not None:
        _save_verdicts(save, report, verdicts, manifests)
    show(report.model_dump_json(indent=2) if options.as_json else render(report))


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


def _check_save(save: str | None) -> None:
    if save is not None and Path(save).suffix.lower() != ".json":
        raise ConfigError(
            f"--save {save}: name a .json file; --calibration takes others for tables of labels"
        )


def _parse_scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    with suppress(ValueError):
        if float(low) < float(high):
            return float(low), float(high)
    raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
