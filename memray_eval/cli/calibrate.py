"""The command that measures judges against people's labels: calibrate."""

from contextlib import suppress
from pathlib import Path

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import JobOptions, argument, flag, named_number, option, split_names
from memray_eval.errors import ConfigError

SHEET = 100  # answers of a sheet


@app.command(
    rich_help_panel=LOOK,
    epilog="Example: memray-eval calibrate labelled.csv --metric empathy --judge rules",
)
def calibrate(
    labelled: Path = argument(
        "File of responses with human scores: .json, .jsonl, .csv, .tsv or .parquet. With --sheet "
        "or --labels: a run's folder, or latest."
    ),
    metric: str | None = option("Metric that people scored."),
    judge: str = option(
        "Judge to measure: rules, embedded or PROVIDER/MODEL; several, "
        "comma-separated, are compared.",
        default="rules",
    ),
    columns: list[str] | None = option(
        "Read a field from a column, FIELD=COLUMN,...: response, query, answers, context, memory, "
        "task, criterion, human, human2, ..., raters, judge (a judge's scores that exist)",
        None,
        "--map",
    ),
    human_scale: str | None = option(
        "Range of the human scores: LOW,HIGH.  [default: the metric's own]"
    ),
    label: list[str] | None = option("Number for a label that is a word: WORD=NUMBER. Repeatable."),
    answers_separator: str | None = option("Separator between the accepted answers in one column."),
    skip_unlabelled: bool = flag("Skip responses without a label.", None, "--skip-unlabelled"),
    limit: int | None = option(
        "Use only the first N rows; of a run, draw N answers for --sheet (100).", min=1
    ),
    encoding: str | None = option(
        "Encoding of the file, such as cp1252.  [default: UTF-8, or UTF-16 by its mark]"
    ),
    repeats: int = option(
        "Ask each judge this many times, to measure how often its verdict flips.", default=1, min=1
    ),
    no_cache: bool = JobOptions.no_cache,
    budget_usd: float | None = JobOptions.budget_usd,
    yes: bool = JobOptions.yes,
    settings: list[str] | None = JobOptions.settings,
    sheet: bool = flag(
        "Write a sheet of the run's answers to label, without the judge's scores.", None, "--sheet"
    ),
    out: str | None = option(
        "File that --sheet writes.  [default: METRIC-labels.csv]", show_default=False
    ),
    labels: list[Path] | None = option(
        "Hold the run's own judge against this filled sheet, and adjust its mean by it. "
        "Repeatable: a file for each rater.",
        None,
        "--labels",
    ),
    as_json: bool = JobOptions.as_json,
) -> None:
    """Compare judges with human scores: agreement, kappa, alpha, Spearman, bias, calibration and
    flips, with intervals.

    memray_eval/report/CALIBRATION.md explains how to map columns, with examples.
    """
    from memray_eval.api.calibrating import calibrate_run, draw_sheet, measure_judges, read_labels
    from memray_eval.report.calibration_console import render

    if (out and not sheet) or (sheet and labels):
        raise ConfigError("--sheet writes a sheet to --out; --labels reads one: give one of them")
    if sheet:
        path = draw_sheet(str(labelled), metric, limit or SHEET, out)
        say(path)
        say("Fill in the column label (a second rater: label_2). Then hold the judge against it:")
        of = f" --metric {metric}" if metric else ""
        say(f"  memray-eval calibrate {labelled} --labels {path}{of}")
        return
    form = "WORD=NUMBER, such as yes=1"
    words = dict(named_number(text, "--label", form) for text in label or ())
    scale = _parse_scale(human_scale) if human_scale else None
    encoding = encoding or ""
    if labels:
        report = calibrate_run(str(labelled), labels, metric, words, scale, encoding)
    else:
        file = read_labels(
            labelled,
            metric,
            columns or (),
            words=words,
            separator=answers_separator,
            scale=scale,
            limit=limit,
            skips=skip_unlabelled,
            encoding=encoding,
        )
        overrides = {
            "judging.cache": "off" if no_cache else None,
            "judging.repeats": repeats,
            "budget.usd": budget_usd,
        }
        is_theirs = file.scores_of and judge == "rules"
        judges = [file.scores_of] if is_theirs else split_names(judge)
        report = measure_judges(file, judges, overrides, settings or (), yes, say)
    show(report.model_dump_json(indent=2) if as_json else render(report))


def _parse_scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    with suppress(ValueError):
        if float(low) < float(high):
            return float(low), float(high)
    raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
