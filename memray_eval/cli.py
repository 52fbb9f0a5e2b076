"""The command line: `memray-eval --help`. Thin: it reads options, calls the rooms below, and turns errors into messages."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from memray_eval import __version__
from memray_eval.config import RunConfig, keys_set, load_config
from memray_eval.errors import EvalError
from memray_eval.types import GIVEN

if TYPE_CHECKING:
    from memray_eval.runtime.run import Finished

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Evaluate language models with a memory of their user, and long-context models, on a laptop or a Ray cluster.\n\n"
    "Start with: memray-eval run jobs/quickstart.yaml (no key, no GPU needed).\n\n"
    "Exit codes: 0 done, 1 finished but too many units failed, 2 wrong usage, config or dataset, 3 nothing could run.",
)
dataset_app = typer.Typer(no_args_is_help=True, help="Check datasets.")
list_app = typer.Typer(no_args_is_help=True, help="What this installation knows.")
app.add_typer(dataset_app, name="dataset")
app.add_typer(list_app, name="list")

ConfigArgument = Annotated[Path, typer.Argument(help="A job's YAML, such as jobs/quickstart.yaml.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override any key: --set engine.replicas=2 --set candidates.0.sampling.temperature=0.7"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        print(__version__)
        raise typer.Exit


LimitOption = Annotated[int | None, typer.Option(min=1, help="Only the first N valid samples.")]
ModelOption = Annotated[
    str | None, typer.Option(help="Another model for the first candidate: `embedded`, a hub name, a folder.")
]
DatasetOption = Annotated[str | None, typer.Option(help="Another dataset: a folder, .json, .jsonl or .parquet.")]
MetricsOption = Annotated[str | None, typer.Option(help="Only these metrics, comma-separated (see `list metrics`).")]
JudgeOption = Annotated[str | None, typer.Option(help="Who scores judged metrics: rules, auto, embedded, or PROVIDER/MODEL.")]
OutOption = Annotated[str | None, typer.Option(help="Where run folders go: a folder or a cloud URL.")]
SkipOption = Annotated[bool, typer.Option("--skip-invalid", help="Take the valid samples; report the others.")]


@app.command("run")
def run_command(
    config: ConfigArgument,
    limit: LimitOption = None,
    dataset: DatasetOption = None,
    model: ModelOption = None,
    metrics: MetricsOption = None,
    judge: JudgeOption = None,
    out: OutOption = None,
    skip_invalid: SkipOption = False,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job: read, generate, judge, embed, write, and print the summary."""
    overrides = _overrides(limit, dataset, metrics, judge, out, skip_invalid) | _model(model)
    job = load_config(config, overrides, settings or ())
    finished = _run(job, quiet=as_json)
    _print_report(finished.folder.path, as_json)
    _end(job, finished)


@app.command()
def generate(
    config: ConfigArgument,
    limit: LimitOption = None,
    dataset: DatasetOption = None,
    model: ModelOption = None,
    out: OutOption = None,
    skip_invalid: SkipOption = False,
    settings: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Also write responses_{model}_{timestamp}.json beside it.")] = False,
) -> None:
    """Only generate: write the responses of a job's candidates to a run folder, to be judged by `evaluate`."""
    overrides = _overrides(limit, dataset, None, "rules", out, skip_invalid) | _model(model)
    job = load_config(config, overrides, settings or ())
    finished = _run(job, generate_only=True)
    print(finished.folder.path)
    if as_json:
        stamp, name = time.strftime("%Y%m%d_%H%M%S", time.gmtime()), job.candidates[0].name
        path = f"{job.out}/responses_{_plain(name)}_{stamp}.json"
        finished.folder.export_responses(path, name, stamp)
        print(path)
    _end(job, finished)


@app.command()
def evaluate(
    responses: Annotated[
        str,
        typer.Argument(
            help="A run folder, a responses_*.json, .jsonl or .parquet with query and response.", show_default=False
        ),
    ],
    config: Annotated[Path | None, typer.Option(help="A job's YAML to take judging and cluster settings from.")] = None,
    limit: LimitOption = None,
    metrics: MetricsOption = None,
    judge: JudgeOption = None,
    out: OutOption = None,
    skip_invalid: SkipOption = False,
    settings: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Also write eval_{input}.json beside it.")] = False,
) -> None:
    """Judge responses that exist already, with any metrics and any judge, and print the summary."""
    overrides = _overrides(limit, responses, metrics, judge, out, skip_invalid)
    overrides["candidates"] = [{"name": GIVEN, "model": GIVEN, "backend": GIVEN}]
    job = load_config(config, overrides, settings or ())
    finished = _run(job)
    _print_report(finished.folder.path, as_json=False)
    if as_json:
        path = f"{job.out}/eval_{_plain(Path(responses.rstrip('/')).stem)}.json"
        finished.folder.export_evaluation(path, finished.summary)
        _say(path)
    _end(job, finished)


def _overrides(
    limit: int | None, dataset: str | None, metrics: str | None, judge: str | None, out: str | None, skip_invalid: bool
) -> dict[str, Any]:
    """Options as config keys; None leaves what the job says."""
    names = [name.strip() for name in metrics.split(",") if name.strip()] if metrics else None
    skip = True if skip_invalid else None
    return {"limit": limit, "dataset": dataset, "metrics": names, "judge": judge, "out": out, "skip_invalid": skip}


def _model(model: str | None) -> dict[str, Any]:
    return {} if model is None else {"candidates.0.model": model, "candidates.0.name": Path(model).name}


def _plain(name: str) -> str:
    """A name as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


def _run(job: RunConfig, quiet: bool = False, generate_only: bool = False) -> Finished:
    from memray_eval.runtime.run import run  # Ray takes a second to import: only where it is used

    return run(job, _say, quiet=quiet, generate_only=generate_only)


def _end(job: RunConfig, finished: Finished) -> None:
    """Says and exits with what too many failures call for."""
    if finished.exit_code:
        failed, units = finished.summary.n_failed_units, finished.summary.n_units
        _say(f"{failed} of {units} units failed, more than tolerance {job.tolerance:g} allows.")
        raise typer.Exit(finished.exit_code)


@app.command()
def report(
    run_folder: Annotated[str, typer.Argument(help="The folder of a finished run: results/<run_id>.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Print a finished run's summary again, from its summary.json."""
    _print_report(run_folder, as_json)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Argument(help="Also check that this job could run.", show_default=False)] = None,
    settings: SetOption = None,
) -> None:
    """Say what would hang or fail here, and how to mend it: platform, packages, models, keys, resources."""
    job: RunConfig | None = load_config(config, {}, settings or ()) if config else None
    from memray_eval.runtime.doctor import examine

    failed = False
    for check in examine(job):
        print(f"[{check.state:>4}] {check.what}" + (f"\n       -> {check.mend}" if check.mend else ""))
        failed = failed or check.state == "fail"
    if failed:
        raise typer.Exit(3)


@dataset_app.command("validate")
def validate(
    path: Annotated[str, typer.Argument(help="A folder of samples, a .json, .jsonl or .parquet file.", show_default=False)],
    suite: Annotated[str, typer.Option(help="The suite that the samples are for.")] = "memory",
) -> None:
    """Check every sample of a dataset; print each problem with its file, sample and field. Exit code 2 if there is any."""
    from memray_eval.datasets.scan import scan
    from memray_eval.suites import get_suite

    get_suite(suite)
    found = scan(path, suite, on_problem=print)
    if found.n_invalid or not found.n_samples:
        print(f"{path}: {found.n_samples} valid samples, {found.n_invalid} invalid")
        raise typer.Exit(2)
    print(f"{path}: {found.n_samples} valid samples")


@list_app.command("metrics")
def list_metrics() -> None:
    """Every metric: its kind, family, scale and preferred judge."""
    from memray_eval.metric import JudgedMetric
    from memray_eval.metrics import all_metrics

    for metric in all_metrics().values():
        judge = f"prefers {metric.preferred_judge}" if isinstance(metric, JudgedMetric) else ""
        low, high = metric.scale
        print(f"{metric.name:<26} {metric.kind:<9} {metric.family:<12} {low:g}-{high:g}  {judge}".rstrip())


@list_app.command("suites")
def list_suites() -> None:
    """Every suite, with the metrics that it computes unless told otherwise."""
    from memray_eval.suites import all_suites

    for suite in all_suites().values():
        print(f"{suite.name:<16} {suite.description}\n{'':<16} metrics: {', '.join(suite.metrics)}")


@list_app.command("judges")
def list_judges(
    models: Annotated[str | None, typer.Option(help="A judge table of your own instead of the package's.")] = None,
) -> None:
    """Every judge model of the table: its price per million tokens, its metrics, and whether its key is set."""
    from memray_eval.clients.routing import KEYS, load_table
    from memray_eval.metric import JudgedMetric
    from memray_eval.metrics import all_metrics

    table, keys = load_table(models), keys_set()
    print(f"Prices in US dollars per million tokens in and out, as of {table.price_date}")
    for name, entry in table.models.items():
        preferred = [m.name for m in all_metrics().values() if isinstance(m, JudgedMetric) and m.preferred_judge == name]
        variable = next((key for provider, key in KEYS.items() if name.startswith(f"{provider}/")), "")
        state = "key set" if keys.get(variable) else "no key"
        print(f"{name:<28} {entry.input_usd:>6g} {entry.output_usd:>6g}  {state:<8} {', '.join(preferred)}".rstrip())
    print("rules: the offline estimates, no model; embedded: a small local model on a server of the run's own")


def _print_report(folder: str, as_json: bool) -> None:
    from memray_eval.report.console import render
    from memray_eval.results import RunFolder

    summary = RunFolder(folder).read_summary()
    print(summary.model_dump_json(indent=2) if as_json else render(summary), end="\n" if as_json else "")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> NoReturn:
    """The entry point: an error of ours is a message and its exit code; Ctrl-C is 130; anything else is a bug and shows."""
    try:
        app()
    except EvalError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    sys.exit(0)
