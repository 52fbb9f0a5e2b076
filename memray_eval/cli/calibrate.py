"""The command that measures judges against people's labels: calibrate."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from memray_eval.cli.app import (
    LOOK,
    BudgetOption,
    JsonOption,
    NoCacheOption,
    SetOption,
    YesOption,
    app,
    named_number,
    say,
    show,
)
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError
from memray_eval.types import EXISTING, Record

if TYPE_CHECKING:
    from memray_eval.analysis.adjusted.labelled_verdicts import JudgeCalibration
    from memray_eval.analysis.calibration import CalibrationReport, Figure, Unit
    from memray_eval.datasets.labels import LabelledResponse

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


@app.command(rich_help_panel=LOOK)
def calibrate(
    labelled: Annotated[
        Path,
        typer.Argument(
            help="Responses with people's scores: .json, .jsonl, .csv, .tsv, .parquet.",
            show_default=False,
        ),
    ],
    metric: Annotated[
        str | None, typer.Option(help="The metric that people scored (a preset has its own).")
    ] = None,
    judge: Annotated[
        str, typer.Option(help="rules, embedded or PROVIDER/MODEL; several with commas, compared.")
    ] = "rules",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="FIELD=COLUMN,...: response, query, answers, context, memory, task, human, "
            "human2, ..., weight (1 / the chance to be labelled)",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A known file's mapping: evouna, topical_chat, begin.")
    ] = None,
    human_scale: Annotated[
        str | None, typer.Option(help="LOW,HIGH of people's scores; the metric's own unless set.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="WORD=NUMBER: a label that is a word. Again for others."),
    ] = None,
    answers_separator: Annotated[
        str | None, typer.Option(help="What parts several right answers in one column.")
    ] = None,
    skip_unlabelled: Annotated[
        bool, typer.Option("--skip-unlabelled", help="Leave out what nobody labelled.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Ask each judge so often, for its flip rate.")
    ] = 1,
    no_cache: NoCacheOption = False,
    budget_usd: BudgetOption = None,
    yes: YesOption = False,
    settings: SetOption = None,
    save: Annotated[
        str | None,
        typer.Option(
            help="Also keep the labelled verdicts in this file, for --calibration of run, report "
            "and compare."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Hold judges against people's scores: agreement, kappa, alpha, Spearman, bias, calibration,
    flips, with intervals.

    How columns are mapped, with examples, stands in memray_eval/report/CALIBRATION.md.
    """
    from memray_eval.config.sections import MetricOptions
    from memray_eval.datasets import labels
    from memray_eval.metrics import pick
    from memray_eval.metrics.own import find_own_metrics

    if save is not None and Path(save).suffix.lower() != ".json":
        raise ConfigError(
            f"--save {save}: name a .json file; --calibration takes others for tables of labels"
        )
    named, labelling = (
        labels.find_preset(preset, metric) if preset else (metric, labels.Labelling(columns={}))
    )
    if named is None:
        raise ConfigError("no metric: name it with --metric, or a known file with --preset")
    (name, *_), brought = find_own_metrics([named])
    (measured,) = pick([name], MetricOptions(own=brought))
    words = [named_number(one, "--label", "WORD=NUMBER, such as yes=1") for one in label or ()]
    own: dict[str, Any] = {"words": {**labelling.words, **dict(words)}}
    own |= {"separator": answers_separator} if answers_separator else {}
    own |= {"scale": _parse_scale(human_scale)} if human_scale else {}
    labelling = labels.map_columns(columns or (), labelling.model_copy(update=own))
    scale = labelling.scale or measured.scale
    rows = labels.read_labelled(labelled, labelling, scale, limit, skip_unlabelled)
    judges = list(dict.fromkeys(name.strip() for name in judge.split(",") if name.strip()))
    overrides = {
        "metrics": [named],
        # what rules are worth is what is to be measured
        "estimates": {measured.name: True},
        "judging.repeats": repeats,
        "judging.cache": "off" if no_cache else None,
        "budget.usd": budget_usd,
    }
    saved: list[JudgeCalibration] = []
    manifests: dict[str, Mapping[str, Any]] = {}

    def keep(judge: str, units: Sequence[Unit]) -> None:
        from memray_eval.analysis.adjusted.labelled_verdicts import to_calibration

        how = measured.name, measured.scale, scale, labelled.name, manifests[judge]
        saved.append(to_calibration(units, *how))

    with tempfile.TemporaryDirectory(prefix="memray_eval_calibrate_") as folder:
        runs = make_evaluate(folder, overrides, settings or (), yes, manifests)
        found = compare_judges(
            labelled.name, rows, measured.name, measured.scale, scale, judges, runs, Path(folder),
            keep,
        )  # fmt: skip
    if save is not None:
        from memray_eval.analysis.adjusted.labelled_verdicts import write_calibrations

        write_calibrations(save, saved)
        say(save)
    show(found.model_dump_json(indent=2) if as_json else "\n".join(render_lines(found)))


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
        from memray_eval.execution.prepare import run

        given = {"dataset": str(responses), "judge": judge, "out": f"{folder}/results"}
        given_by = {"candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}]}
        finished = run(
            load_config(None, overrides | given | given_by, settings),
            say,
            quiet=True,
            agree=lambda _: yes,
        )
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
    keep: Callable[[str, Sequence[Unit]], None] = lambda judge, units: None,
) -> CalibrationReport:
    """Compares judges on the same labelled responses, written to `folder` for `evaluate`. `scale`
    is the metric's; `keep` gets each judge's verdicts. Raises ConfigError if there is no judge."""
    from memray_eval.analysis.calibration import (
        CalibrationReport,
        calibrate_judge,
        people_agreement,
        suggest_judge,
    )

    if not judges:
        raise ConfigError("--judge names none; try rules")
    responses = folder / "responses.jsonl"
    responses.write_text(
        "".join(json.dumps(row.fields, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    trials = []
    for judge in judges:
        units = to_units(rows, evaluate(responses, judge), metric)
        keep(judge, units)
        trials.append((calibrate_judge(units, judge, scale, human_scale), units))
    return CalibrationReport(
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
        unit = Unit(
            id=row.id, people=row.people, judge=None, cluster=row.cluster, weight=row.weight
        )
        if (score := scores.get(row.id)) is not None:
            judgment = json.loads(score.judgment or "{}")
            heard = tuple(
                each["value"] for each in judgment.get("jury", ()) if each["value"] is not None
            )
            said = {
                "confidence": judgment.get("confidence"),
                "repeats": heard,
                "cost_usd": score.cost_usd,
                "unpriced_calls": score.usage.unpriced_calls,
                "judged_by": score.judge,
            }
            unit = unit.model_copy(update={"judge": score.value, **said})
        units.append(unit)
    return units


def render_lines(found: CalibrationReport) -> Iterator[str]:
    """Renders the report as text: a column for each judge, one for people's own agreement, then
    each judge's calibration curve."""
    (low, high), (to_low, to_high) = found.scale, found.human_scale
    yield (
        f"{found.metric} ({low:g}-{high:g}) on {found.labelled}: {found.n} labelled responses, "
        f"{found.n_clusters} clusters"
    )
    yield (
        f"Figures on people's scale, {to_low:g}-{to_high:g}, with 95 % bootstrap intervals over "
        "clusters"
    )
    yield ""
    names = [one.judge for one in found.judges] + ([PEOPLE] if found.people else [])
    yield f"{'':<16}" + "".join(f"{name:>{CELL}}" for name in names)
    tables = [one.figures for one in found.judges] + (
        [found.people.figures] if found.people else []
    )
    counts = [f"{one.n_scored} of {one.n} ({one.coverage:.1%})" for one in found.judges]
    yield f"{'scored':<16}" + "".join(
        f"{count:>{CELL}}" for count in counts + ([str(found.people.n)] if found.people else [])
    )
    for name, title in TITLES.items():
        yield f"{title:<16}" + "".join(
            f"{_format_figure(figures.get(name)):>{CELL}}" for figures in tables
        )
    costs = [
        f"${one.cost_usd:.4f}" if one.cost_usd is not None else "unknown" for one in found.judges
    ]
    yield f"{'cost':<16}" + "".join(f"{cost:>{CELL}}" for cost in costs)
    for one in found.judges:
        curve = (
            f"  {part.low:>5.2f} to {part.high:<5.2f} n={part.n:<6} judge {part.judge:.3f}  people "
            f"{part.people:.3f}"
            for part in one.curve
        )
        yield from ("", f"Calibration of {one.judge} by {one.curve_by}", *curve)
    if found.suggestion:
        yield from (
            "",
            f"Suggested: {found.suggestion.judge or 'none'}, {found.suggestion.reason}.",
        )


def _format_figure(figure: Figure | None) -> str:
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
        found = float(low), float(high)
    except ValueError:
        found = (0.0, 0.0)
    if not found[0] < found[1]:
        raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
    return found
