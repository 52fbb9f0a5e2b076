"""The typer apps, and the options that mean the same in every command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memray_eval import __version__
from memray_eval.errors import ConfigError
from memray_eval.text_processing.printable import escape_controls

if TYPE_CHECKING:
    from memray_eval.results.run_folder import RunFolder

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Evaluate language models with a memory of their user, and long-context models, on a "
    "laptop or a Ray cluster.\n\n"
    "Start with: memray-eval run quickstart (no key, no GPU needed).\n\n"
    "Exit codes: 0 done, or its `stop_at` is decided; 1 finished with too many failed units, "
    "stopped early, a metric that was named applied to nothing, or "
    "a gate of compare failed; 2 wrong usage, "
    "config or dataset; 3 nothing could run, or a service that the run needs has died; 4 its "
    "judge calls are under way in batches (--detach); 130 ended by Ctrl-C, 143 by SIGTERM: "
    "what is finished is kept, and `memray-eval resume` goes on.",
)
dataset_app = typer.Typer(no_args_is_help=True, help="Check and make datasets.")
cache_app = typer.Typer(
    no_args_is_help=True, help="The judge calls that were paid, so that none is paid twice."
)
list_app = typer.Typer(no_args_is_help=True, help="What this installation knows.")
# The groups that --help shows: of commands, and of a command's options
GROUPS = RUN, LOOK, DATA, CLUSTER = "Run", "Look", "Data and jobs", "Cluster and machine"
WHAT, JUDGING, MONEY, OUTPUT = "What to run", "Judging", "Limits and money", "Output"
app.add_typer(dataset_app, name="dataset", rich_help_panel=DATA)
app.add_typer(list_app, name="list", rich_help_panel=DATA)
app.add_typer(cache_app, name="cache", rich_help_panel=CLUSTER)

ConfigArgument = Annotated[
    Path,
    typer.Argument(
        help="A job's YAML, or the name of one that comes with memray_eval, such as quickstart.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override any key: --set engine.replicas=2 --set "
        "candidates.0.sampling.temperature=0.7",
        rich_help_panel=WHAT,
    ),
]
FullOption = Annotated[
    bool,
    typer.Option(
        "--full", help="Print every figure of every metric, and all tables.", rich_help_panel=OUTPUT
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on stdout instead of text.", rich_help_panel=OUTPUT),
]


LimitOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="N samples, spread over tasks and scenarios: the same each time, and part of a "
        "larger N's.",
        rich_help_panel=WHAT,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Another model for the first candidate: `embedded`, a hub name, a folder, or "
        "FILE.py:FUNCTION.",
        rich_help_panel=WHAT,
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        help="Another dataset: a folder, .csv, .json, .jsonl or .parquet.", rich_help_panel=WHAT
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="Which column of your data a field is: --map query=question --map answers=reference.",
        rich_help_panel=WHAT,
    ),
]
SuiteOption = Annotated[
    str | None,
    typer.Option(
        help="The suite of the responses, whatever they or the job say (see `list suites`); your "
        "own as FILE.py:NAME.",
        rich_help_panel=WHAT,
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        help="Only these metrics, comma-separated (see `list metrics`); your own as FILE.py:NAME.",
        rich_help_panel=JUDGING,
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A file whose metrics may then be named alone; may be given again.",
        rich_help_panel=JUDGING,
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(
        help="Who scores judged metrics: rules, auto, embedded, PROVIDER/MODEL, or "
        "FILE.py:FUNCTION.",
        rich_help_panel=JUDGING,
    ),
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        help="The run folder's name. If the folder already holds this run, it is resumed.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
OutOption = Annotated[
    str | None,
    typer.Option(help="Where run folders go: a folder or a cloud URL.", rich_help_panel=OUTPUT),
]
NoCacheOption = Annotated[
    bool,
    typer.Option(
        "--no-cache", help="Ask every judge anew; keep no verdict.", rich_help_panel=MONEY
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        min=0, help="Stop before judges have cost more, resumably.", rich_help_panel=MONEY
    ),
]
CalibrationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--calibration",
        help="Labels of people's, by which scores are adjusted: what `calibrate --save` wrote, or "
        "a table of labels of the run's own answers (METRIC=FILE where it names no metric); may be "
        "given again.",
        rich_help_panel=JUDGING,
    ),
]
StopAtOption = Annotated[
    str | None,
    typer.Option(
        help='Stop as soon as it is decided: --stop-at "helpfulness ±0.1" (or +-0.1), or, of two '
        'candidates, "compare empathy". `resume --all` does the rest.',
        show_default=False,
        rich_help_panel=MONEY,
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", help="Start without a budget, whatever the estimate says.", rich_help_panel=MONEY
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="End when judge calls are under way in batches (judging.mode); `resume` goes on.",
        rich_help_panel=MONEY,
    ),
]
AffectOption = Annotated[
    str | None,
    typer.Option(
        help="on or off: find emotion and traits where samples give none.", rich_help_panel=WHAT
    ),
]
SpeechWeightOption = Annotated[
    float | None,
    typer.Option(help="What speech counts in a sample's emotion.", rich_help_panel=WHAT),
]
TextWeightOption = Annotated[
    float | None, typer.Option(help="What its text counts.", rich_help_panel=WHAT)
]
NoTtsOption = Annotated[
    bool,
    typer.Option(
        "--disable-openai-tts",
        help="Have no text spoken by OpenAI; speech is uniform.",
        rich_help_panel=WHAT,
    ),
]
SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-invalid", help="Take the valid samples; report the others.", rich_help_panel=WHAT
    ),
]


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbosity: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Show the log of a run on stderr; -vv for all of it. It is in the run folder's "
            "log.jsonl anyway.",
        ),
    ] = 0,
) -> None:
    if verbosity:
        from memray_eval.execution.run_log import show_log

        show_log(verbosity)
    if show:
        print(__version__)
        raise typer.Exit


def column_overrides(mapped: list[str] | None) -> dict[str, str]:
    """--map options as config keys. Raises ConfigError for one that is no FIELD=COLUMN."""
    overrides = {}
    for option in mapped or ():
        field, separator, column = option.partition("=")
        if not (field.strip() and separator and column.strip()):
            raise ConfigError(f"--map {option!r}: write FIELD=COLUMN, such as query=question")
        overrides[f"columns.{field.strip()}"] = column.strip()
    return overrides


def named_number(text: str, option: str, form: str) -> tuple[str, float]:
    """NAME=NUMBER as a pair. Raises ConfigError that tells the form that an option has."""
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise ConfigError(f"{option} {text}: write {form}") from None


def say(text: str) -> None:
    """Prints a line for a person on stderr, with control characters escaped."""
    print(escape_controls(text), file=sys.stderr, flush=True)


def show(text: str, end: str = "\n") -> None:
    """Prints a result on stdout, with control characters escaped."""
    print(escape_controls(text), end=end, flush=True)


def open_adjusted(folder: str, calibration: Sequence[str]) -> RunFolder:
    """The folder of a run whose summary has figures adjusted by the files of --calibration. Raises
    ConfigError for a file that is none, or of other metrics than the run's."""
    from memray_eval.analysis.adjusted.labelled_verdicts import read_calibrations
    from memray_eval.analysis.adjusted.summaries import AdjustedRunFolder

    return AdjustedRunFolder(folder, read_calibrations(calibration))


def print_report(
    folder: str, as_json: bool = False, full: bool = False, opened: RunFolder | None = None
) -> None:
    """Prints a run's summary: on one screen, in full, or as JSON; of a pairwise run what the pairs
    say. `opened` is the folder, where its summary is another than that of its file."""
    from memray_eval.analysis.pairs.report import read_report
    from memray_eval.report.brief import render_brief
    from memray_eval.report.console import render
    from memray_eval.report.pairs_console import render_pairs
    from memray_eval.results.run_folder import RunFolder

    run = opened or RunFolder(folder)
    summary = run.read_summary()
    # a folder below this one by its path from here
    path = folder.removeprefix(f"{os.getcwd()}{os.sep}").rstrip("/")
    if as_json:
        show(summary.model_dump_json(indent=2))
    elif full:
        show(render(summary), end="")
    elif (pairs := read_report(run)) is not None:
        show(f"{render_pairs(pairs)}The run is in {path}")
    else:
        show(render_brief(summary, path), end="")
