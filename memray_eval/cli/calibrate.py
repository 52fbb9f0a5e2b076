"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from memray_eval.api.calibrating import LabelledFile

LABELLED = "File of responses with human scores: .json, .jsonl, .csv, .tsv or .parquet."
SHEET = 100  # answers of a sheet


@dataclass(frozen=True, kw_only=True)
class LabelOptions(JobOptions):
    """The options by which labels are read."""

    columns: list[str] | None = option(
        "Read a field from a column, FIELD=COLUMN,...: response, query, answers, context, memory, "
        "task, criterion, human, human2, ..., raters, judge (a judge's scores that exist)",
        None,
        "--map",
    )
    human_scale: str | None = option(
        "Range of the human scores: LOW,HIGH.  [default: the metric's own]"
    )
    label: list[str] | None = option("Number for a label that is a word: WORD=NUMBER. Repeatable.")
    answers_separator: str | None = option("Separator between the accepted answers in one column.")
    skip_unlabelled: bool = flag("Skip responses without a label.", None, "--skip-unlabelled")
    limit: int | None = option(
        "Use only the first N rows; of a run, draw N answers for --sheet (100).", min=1
    )
    encoding: str | None = option(
        "Encoding of the file, such as cp1252.  [default: UTF-8, or UTF-16 by its mark]"
    )

    def read(self, path: Path, metric: str | None) -> LabelledFile:
        """Reads labels of a metric, as the options say. Raises ConfigError and DataError."""
        from memray_eval.api.calibrating import read_labels

        return read_labels(
            path,
            metric,
            self.columns or (),
            words=self.words(),
            separator=self.answers_separator,
            scale=_parse_scale(self.human_scale) if self.human_scale else None,
            limit=self.limit,
            skips=self.skip_unlabelled,
            encoding=self.encoding or "",
        )

    def words(self) -> dict[str, float]:
        """The numbers of labels that are words."""
        form = "WORD=NUMBER, such as yes=1"
        return dict(named_number(text, "--label", form) for text in self.label or ())


@app.command(
    rich_help_panel=LOOK,
    epilog="Example: memray-eval calibrate labelled.csv --metric empathy --judge rules",
)
@takes(
    "labelled metric judge columns human_scale label answers_separator skip_unlabelled "
    "limit encoding repeats no_cache budget_usd yes settings sheet out labels as_json"
)
def calibrate(
    options: LabelOptions,
    labelled: Path = argument(f"{LABELLED} With --sheet or --labels: a run's folder, or latest."),
    metric: str | None = option("Metric that people scored."),
    sheet: bool = flag(
        "Write a sheet of the run's answers to label, without the judge's scores.", None, "--sheet"
    ),
    labels: list[Path] | None = option(
        "Hold the run's own judge against this filled sheet, and adjust its mean by it. "
        "Repeatable: a file for each rater.",
        None,
        "--labels",
    ),
    out: str | None = option(
        "File that --sheet writes.  [default: METRIC-labels.csv]", show_default=False
    ),
    judge: str = option(
        "Judge to measure: rules, embedded or PROVIDER/MODEL; several, "
        "comma-separated, are compared.",
        default="rules",
    ),
    repeats: int = option(
        "Ask each judge this many times, to measure how often its verdict flips.", default=1, min=1
    ),
) -> None:
    """Compare judges with human scores: agreement, kappa, alpha, Spearman, bias, calibration and
    flips, with intervals.

    memray_eval/report/CALIBRATION.md explains how to map columns, with examples.
    """
    from memray_eval.api.calibrating import calibrate_run, draw_sheet, measure_judges
    from memray_eval.report.calibration_console import render

    if (out and not sheet) or (sheet and labels):
        raise ConfigError("--sheet writes a sheet to --out; --labels reads one: give one of them")
    if sheet:
        say(draw_sheet(str(labelled), metric, options.limit or SHEET, out))
        return
    if labels:
        scale = _parse_scale(options.human_scale) if options.human_scale else None
        words = options.words()
        report = calibrate_run(str(labelled), labels, metric, words, scale, options.encoding or "")
        show(report.model_dump_json(indent=2) if options.as_json else render(report))
        return
    file, settings = options.read(labelled, metric), options.settings or ()
    judges = list(dict.fromkeys(split_names(judge)))
    overrides = {
        "metrics": [file.named],
        "judging.cache": "off" if options.no_cache else None,
        "judging.repeats": repeats,
        "budget.usd": options.budget_usd,
    }
    if file.scores_of and judge == "rules":
        judges = [file.scores_of]
    report = measure_judges(file, judges, overrides, settings, options.yes, say)
    show(report.model_dump_json(indent=2) if options.as_json else render(report))


def _parse_scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    with suppress(ValueError):
        if float(low) < float(high):
            return float(low), float(high)
    raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
