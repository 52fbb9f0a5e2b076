"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import (
    JobOptions,
    argument,
    flag,
    named_number,
    option,
    split_names,
)
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError, without_advice
from memray_eval.storage.scratch import ScratchFolder
from memray_eval.types import EXISTING, Record

if TYPE_CHECKING:
    from memray_eval.analysis.calibration import (
        CalibrationReport,
        Coefficient,
        RaterComparison,
        RaterF1,
        Unit,
    )
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
MOST_PEOPLE = 20  # listed one by one
EXISTING_ONLY = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}


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
        "task, criterion, human, human2, ..., raters, weight (1 / the probability of being "
        "labelled)",
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
    from memray_eval.datasets import labels

    _check_save(save, fit_questions)
    named, measured, labelling = _find_metric(metric, preset)
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
        runs = make_evaluate(folder, overrides, settings or (), yes, manifests)
        report, verdicts = compare_judges(
            labelled.name, rows, measured.name, measured.scale, scale, judges, runs, Path(folder)
        )
    if save is not None:
        _save_verdicts(save, report, verdicts, manifests)
    show(report.model_dump_json(indent=2) if as_json else "\n".join(render_lines(report)))


def _find_metric(metric: str | None, preset: str | None) -> tuple[str, Metric, Labelling]:
    """The metric as a job names it, the metric, and how a preset's file is read."""
    from memray_eval.config.sections import MetricOptions
    from memray_eval.datasets import labels
    from memray_eval.metrics import pick
    from memray_eval.metrics.own import find_own_metrics

    named, labelling = (
        labels.find_preset(preset, metric) if preset else (metric, labels.Labelling(columns={}))
    )
    if named is None:
        raise ConfigError("no metric: name it with --metric, or a known file with --preset")
    (name, *_), own = find_own_metrics([named])
    (measured,) = pick([name], MetricOptions(own=own))
    return named, measured, labelling


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

        keys = {
            "dataset": str(responses),
            "judge": judge,
            "out": f"{folder}/results",
            "candidates": [EXISTING_ONLY],
        }
        config = load_config(None, overrides | keys, settings)
        with without_advice():
            finished = run(config, say, quiet=True, agree=lambda _: yes)
        manifests[judge] = finished.folder.read_manifest()
        return finished.folder.each()

    return evaluate


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
    from memray_eval.analysis.rater_agreement import compare_raters

    if not judges:
        raise ConfigError("--judge names none; try rules")
    responses = write_responses(rows, folder)
    verdicts = {judge: to_units(rows, evaluate(responses, judge), metric) for judge in judges}
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
        raters=compare_raters(verdicts, scale, human_scale),
    )
    return report, verdicts


def write_responses(rows: Sequence[LabelledResponse], folder: Path) -> Path:
    """Writes labelled responses without their labels; returns the file."""
    responses = folder / "responses.jsonl"
    lines = (json.dumps(row.fields, ensure_ascii=False) + "\n" for row in rows)
    responses.write_text("".join(lines), "utf-8")
    return responses


def to_units(
    rows: Sequence[LabelledResponse], records: Iterable[Record], metric: str
) -> list[Unit]:
    """Joins labelled responses with the judge's verdicts; a response without a record has none."""
    from memray_eval.analysis.calibration import Unit

    scores = {
        record.sample.id: score
        for record in records
        for score in record.scores
        if score.metric == metric
    }
    units = []
    for row in rows:
        names = ("id", "people", "cluster", "weight", "raters")
        unit = Unit(judge=None, **{name: getattr(row, name) for name in names})
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
        yield _format_row(title, [_format_figure(figures.get(name)) for figures in tables])
    yield _format_row("cost", costs[: len(report.judges)])
    for judge in report.judges:
        curve = (
            f"  {part.low:>5.2f} to {part.high:<5.2f} n={part.n:<6} judge {part.judge:.3f}  people "
            f"{part.people:.3f}"
            for part in judge.curve
        )
        yield from ("", f"Calibration of {judge.judge} by {judge.curve_by}", *curve)
    if report.raters:
        yield from _rater_lines(report.raters)
    if report.suggestion:
        yield from (
            "",
            f"Suggested: {report.suggestion.judge or 'none'}, {report.suggestion.reason}.",
        )


def _rater_lines(raters: RaterComparison) -> Iterator[str]:
    """Macro F1 of the judges, then of people, the highest first."""
    yield from ("", "Macro F1 against each other rater of the same response")
    people = sorted(raters.people, key=lambda person: -(person.macro_f1.value or 0.0))
    values = [person.macro_f1.value for person in people if person.macro_f1.value is not None]
    for judge in raters.judges:
        below = sum(value < (judge.macro_f1.value or 0.0) for value in values)
        yield f"{_rater_line(judge)}  above {below} of {len(values)} people"
    mean = "-" if raters.people_mean is None else f"{raters.people_mean:.3f}"
    yield f"  {'people, weighted by pairs':<{CELL}} {mean}"
    yield from map(_rater_line, people[:MOST_PEOPLE])
    if (n_more := len(people) - MOST_PEOPLE) > 0:
        yield f"  ... and {n_more} more (--json)"


def _rater_line(rater: RaterF1) -> str:
    return f"  {rater.rater:<{CELL}} {_format_figure(rater.macro_f1)}  ({rater.n:,} pairs)"


def _format_row(title: str, cells: Sequence[str]) -> str:
    return f"{title:<16}" + "".join(f"{cell:>{CELL}}" for cell in cells)


def _format_figure(figure: Coefficient | None) -> str:
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
