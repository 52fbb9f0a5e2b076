"""The command that holds judges against people: calibrate."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from memray_eval.cli.app import (
    BudgetOption,
    JsonOption,
    NoCacheOption,
    SetOption,
    YesOption,
    app,
    say,
    show,
)
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError
from memray_eval.types import EXISTING, Record

if TYPE_CHECKING:
    from memray_eval.datasets.labels import LabelledResponse
    from memray_eval.report.calibration import Bin, CalibrationReport, Figure, Unit

Evaluate: TypeAlias = Callable[
    [Path, str], Iterable[Record]
]  # a file of responses, by this judge -> what came of each
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


@app.command()
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
            "human2, ...",
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
    as_json: JsonOption = False,
) -> None:
    """Hold judges against people's scores: agreement, kappa, alpha, Spearman, bias, calibration,
    flips, with intervals.

    How columns are mapped, with examples, stands in memray_eval/report/CALIBRATION.md.
    """
    from memray_eval.datasets import labels
    from memray_eval.metrics import pick

    named, labelling = (
        labels.find_preset(preset, metric) if preset else (metric, labels.Labelling(columns={}))
    )
    if named is None:
        raise ConfigError("no metric: name it with --metric, or a known file with --preset")
    (measured,) = pick([named])
    own: dict[str, Any] = {"words": {**labelling.words, **dict(map(_word, label or ()))}}
    own |= {"separator": answers_separator} if answers_separator else {}
    own |= {"scale": _scale(human_scale)} if human_scale else {}
    labelling = labels.map_columns(columns or (), labelling.model_copy(update=own))
    scale = labelling.scale or measured.scale
    rows = labels.read_labelled(labelled, labelling, scale, limit, skip_unlabelled)
    judges = list(dict.fromkeys(name.strip() for name in judge.split(",") if name.strip()))
    overrides = {
        "metrics": [named],
        "estimates": {named: True},  # what rules are worth is what is to be measured
        "judging.repeats": repeats,
        "judging.cache": "off" if no_cache else None,
        "budget.usd": budget_usd,
    }
    with tempfile.TemporaryDirectory(prefix="memray_eval_calibrate_") as folder:
        runs = evaluation(folder, overrides, settings or (), yes)
        found = compared(
            labelled.name, rows, named, measured.scale, scale, judges, runs, Path(folder)
        )
    show(found.model_dump_json(indent=2) if as_json else "\n".join(lines(found)))


def evaluation(
    folder: str, overrides: dict[str, Any], settings: Sequence[str], yes: bool
) -> Evaluate:
    """An Evaluate that is a run each, below `folder`; what it says goes to stderr. Raises what
    `run` raises."""

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
        return finished.folder.each()

    return evaluate


def compared(
    name: str,
    rows: Sequence[LabelledResponse],
    metric: str,
    scale: tuple[float, float],
    human_scale: tuple[float, float],
    judges: Sequence[str],
    evaluate: Evaluate,
    folder: Path,
) -> CalibrationReport:
    """Every judge on the same labelled responses, written to `folder` for `evaluate`. `scale` is
    the metric's. Raises ConfigError for no judge."""
    from memray_eval.report.calibration import (
        CalibrationReport,
        calibrate_judges,
        people_agreement,
        suggest_threshold,
    )

    if not judges:
        raise ConfigError("--judge names none; try rules")
    responses = folder / "responses.jsonl"
    responses.write_text(
        "".join(json.dumps(row.fields, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    trials = []
    for judge in judges:
        units = units_of(rows, evaluate(responses, judge), metric)
        trials.append((calibrate_judges(units, judge, scale, human_scale), units))
    return CalibrationReport(
        labelled=name,
        metric=metric,
        scale=scale,
        human_scale=human_scale,
        n=len(rows),
        n_clusters=len({row.cluster for row in rows}),
        judges=tuple(calibration for calibration, _ in trials),
        people=people_agreement(trials[0][1], human_scale),
        suggestion=suggest_threshold(trials, scale, human_scale) if len(trials) > 1 else None,
    )


def units_of(
    rows: Sequence[LabelledResponse], records: Iterable[Record], metric: str
) -> list[Unit]:
    """The labelled responses with what the judge said of them; nothing where there is no record."""
    from memray_eval.report.calibration import Unit

    scores = {
        record.sample.id: score
        for record in records
        for score in record.scores
        if score.metric == metric
    }
    units = []
    for row in rows:
        unit = Unit(id=row.id, people=row.people, judge=None, cluster=row.cluster)
        if (score := scores.get(row.id)) is not None:
            judgment = json.loads(score.judgment or "{}")
            heard = tuple(
                each["value"] for each in judgment.get("jury", ()) if each["value"] is not None
            )
            said = {
                "confidence": judgment.get("confidence"),
                "repeats": heard,
                "cost_usd": score.cost_usd,
            }
            unit = unit.model_copy(update={"judge": score.value, **said})
        units.append(unit)
    return units


def lines(found: CalibrationReport) -> Iterator[str]:
    """The report as text: a column a judge, people's own agreement beside, then each judge's
    curve."""
    (low, high), (to_low, to_high) = found.scale, found.human_scale
    yield (
        f"{found.metric} ({low:g}-{high:g}) on {found.labelled}: {found.n} labelled responses, "
        f"{found.n_clusters} clusters"
    )
    yield (
        f"Figures on people's scale, {to_low:g}-{to_high:g}, with 95 % bootstrap intervals over "
        f"clusters"
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
        yield f"{title:<16}" + "".join(f"{_cell(figures.get(name)):>{CELL}}" for figures in tables)
    costs = [f"${one.cost_usd:.4f}" for one in found.judges]
    yield f"{'cost':<16}" + "".join(f"{cost:>{CELL}}" for cost in costs)
    for one in found.judges:
        yield from ("", f"Calibration of {one.judge} by {one.curve_by}", *map(_bin, one.curve))
    if found.suggestion:
        yield from (
            "",
            f"Suggested: {found.suggestion.judge or 'none'}, {found.suggestion.reason}.",
        )


def _cell(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return "-"
    span = (
        ""
        if figure.low is None or figure.high is None
        else f" [{figure.low:.3f}, {figure.high:.3f}]"
    )
    return f"{figure.value:.3f}{span}"


def _bin(one: Bin) -> str:
    return (
        f"  {one.low:>5.2f} to {one.high:<5.2f} n={one.n:<6} judge {one.judge:.3f}  people "
        f"{one.people:.3f}"
    )


def _scale(option: str) -> tuple[float, float]:
    low, _, high = option.partition(",")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (0.0, 0.0)
    if not found[0] < found[1]:
        raise ConfigError(f"--human-scale {option}: write LOW,HIGH, such as 1,5")
    return found


def _word(option: str) -> tuple[str, float]:
    word, _, number = option.rpartition("=")
    try:
        return word, float(number)
    except ValueError:
        raise ConfigError(f"--label {option}: write WORD=NUMBER, such as yes=1") from None
