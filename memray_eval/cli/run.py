"""The commands that run: run, generate, evaluate, resume, estimate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memray_eval.cli.app import (
    JUDGING,
    MONEY,
    OUTPUT,
    RUN,
    WHAT,
    AffectOption,
    BudgetOption,
    CalibrationOption,
    ConfigArgument,
    DatasetOption,
    DetachOption,
    FullOption,
    IncludeOption,
    JsonOption,
    JudgeOption,
    LimitOption,
    MapOption,
    MetricsOption,
    ModelOption,
    NoCacheOption,
    NoTtsOption,
    OutOption,
    RunIdOption,
    SetOption,
    SkipOption,
    SpeechWeightOption,
    StopAtOption,
    SuiteOption,
    TextWeightOption,
    YesOption,
    app,
    column_overrides,
    print_report,
    say,
    show,
)
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.report.exports import export_evaluation, export_responses
from memray_eval.types import EXISTING

if TYPE_CHECKING:
    from memray_eval.datasets.scan import Scan
    from memray_eval.execution.estimate import Estimate
    from memray_eval.execution.session import RunResult


@app.command("run", rich_help_panel=RUN)
def run_command(
    config: ConfigArgument,
    limit: LimitOption = None,
    dataset: DatasetOption = None,
    mapped: MapOption = None,
    model: ModelOption = None,
    metrics: MetricsOption = None,
    include: IncludeOption = None,
    judge: JudgeOption = None,
    no_cache: NoCacheOption = False,
    budget_usd: BudgetOption = None,
    stop_at: StopAtOption = None,
    calibration: CalibrationOption = None,
    yes: YesOption = False,
    detach: DetachOption = False,
    out: OutOption = None,
    run_id: RunIdOption = None,
    skip_invalid: SkipOption = False,
    affect: AffectOption = None,
    speech_weight: SpeechWeightOption = None,
    text_weight: TextWeightOption = None,
    disable_openai_tts: NoTtsOption = False,
    settings: SetOption = None,
    as_json: JsonOption = False,
    full: FullOption = False,
) -> None:
    """Run a job: read, generate, judge, embed, write, and print the summary."""
    overrides = (
        _overrides(limit, dataset, metrics, judge, out, skip_invalid)
        | _model_overrides(model)
        | _payment_overrides(no_cache, budget_usd)
        | column_overrides(mapped)
        | {"include": include, "stop_at": stop_at, "calibration": calibration or None}
    )
    overrides |= _affect_overrides(affect, speech_weight, text_weight, disable_openai_tts)
    job = load_config(config, overrides, settings or ())
    finished = _run(job, quiet=as_json, yes=yes, run_id=run_id, detach=detach)
    print_report(finished.folder.path, as_json, full)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN)
def generate(
    config: ConfigArgument,
    limit: LimitOption = None,
    dataset: DatasetOption = None,
    mapped: MapOption = None,
    model: ModelOption = None,
    out: OutOption = None,
    skip_invalid: SkipOption = False,
    affect: AffectOption = None,
    speech_weight: SpeechWeightOption = None,
    text_weight: TextWeightOption = None,
    disable_openai_tts: NoTtsOption = False,
    settings: SetOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Also write responses_{model}_{timestamp}.json beside it, one a candidate.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Only generate: write the responses of a job's candidates to a run folder, to be judged by
    `evaluate`."""
    overrides = (
        _overrides(limit, dataset, None, "rules", out, skip_invalid)
        | _model_overrides(model)
        | column_overrides(mapped)
    )
    overrides |= _affect_overrides(affect, speech_weight, text_weight, disable_openai_tts)
    job = load_config(config, overrides, settings or ())
    finished = _run(job, generate_only=True)
    show(finished.folder.path)
    if as_json:
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
        for name in (candidate.name for candidate in job.candidates):
            path = f"{job.out}/responses_{_to_file_name(name)}_{stamp}.json"
            export_responses(path, finished.folder.each(), name, stamp)
            show(path)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN)
def evaluate(
    responses: Annotated[
        str,
        typer.Argument(
            help="A run folder or latest, or a .csv, .json, .jsonl or .parquet with query and "
            "response.",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="A job's YAML to take judging and cluster settings from.", rich_help_panel=JUDGING
        ),
    ] = None,
    suite: SuiteOption = None,
    mapped: MapOption = None,
    limit: LimitOption = None,
    metrics: MetricsOption = None,
    include: IncludeOption = None,
    judge: JudgeOption = None,
    no_cache: NoCacheOption = False,
    budget_usd: BudgetOption = None,
    stop_at: StopAtOption = None,
    calibration: CalibrationOption = None,
    yes: YesOption = False,
    out: OutOption = None,
    skip_invalid: SkipOption = False,
    settings: SetOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Also write eval_{input}.json beside it.", rich_help_panel=OUTPUT
        ),
    ] = False,
    full: FullOption = False,
) -> None:
    """Judge responses that exist already, with any metrics and any judge, and print the summary.

    A run's responses are judged by its suite, metrics and rubrics, those of a file by the suite
    that its rows name. Where the job of --config says otherwise it asks before anything is paid;
    --yes, --suite and --metrics decide without a question."""
    from memray_eval.results.latest import find_run

    responses = find_run(responses)
    overrides = (
        _overrides(limit, responses, metrics, judge, out, skip_invalid)
        | _payment_overrides(no_cache, budget_usd)
        | column_overrides(mapped)
    )
    overrides |= {
        "suite": suite,
        "include": include,
        "stop_at": stop_at,
        "calibration": calibration or None,
        "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
    }
    job = load_config(config, overrides, settings or ())
    job, check_found = _follow_origin(job, suite, metrics, settings or (), yes)
    finished = _run(job, yes=yes, check_found=check_found)
    print_report(finished.folder.path, full=full)
    if as_json:
        path = f"{job.out}/eval_{_to_file_name(Path(responses.rstrip('/')).stem)}.json"
        export_evaluation(path, finished.folder.each(), finished.summary)
        say(path)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN)
def resume(
    run_folder: Annotated[
        str,
        typer.Argument(
            help="The folder of a run: results/<run_id>, or latest.", show_default=False
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change how it runs: --set judging.actors=2 --set budget.usd=50",
            rich_help_panel=WHAT,
        ),
    ] = None,
    complete: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All units, also where the run stopped since its `stop_at` was decided.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    detach: DetachOption = False,
    as_json: JsonOption = False,
    full: FullOption = False,
) -> None:
    """Go on with a run that was killed, interrupted or stopped, and try its failed units again."""
    from memray_eval.cli.pairwise import show_pairs
    from memray_eval.execution.prepare import resume as go_on
    from memray_eval.execution.prepare.pairwise import resume_pairwise
    from memray_eval.results.latest import find_run

    folder = find_run(run_folder)
    changed = [*(settings or ()), *(["stop_at=null"] if complete else [])]
    pairs = resume_pairwise(folder, say, quiet=as_json, settings=changed)
    if pairs is not None:
        show_pairs(pairs, as_json)
        return
    finished = go_on(folder, say, quiet=as_json, settings=changed, detach=detach)
    print_report(finished.folder.path, as_json, full)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN)
def estimate(
    config: ConfigArgument,
    limit: LimitOption = None,
    dataset: DatasetOption = None,
    mapped: MapOption = None,
    model: ModelOption = None,
    metrics: MetricsOption = None,
    include: IncludeOption = None,
    judge: JudgeOption = None,
    skip_invalid: SkipOption = False,
    samples: Annotated[
        str | None,
        typer.Option(
            help="For so many samples (1e6) like those of the dataset.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            help="On the nodes of a cluster's file: a KubeRay RayJob or RayCluster, or a Ray "
            "launcher YAML.",
            rich_help_panel=MONEY,
        ),
    ] = None,
    node_usd: Annotated[
        list[str] | None,
        typer.Option(
            "--node-usd",
            help="What an hour of a node costs: --node-usd GROUP=USD, group by group.",
            rich_help_panel=MONEY,
        ),
    ] = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a job would take, without a call: calls, tokens, dollars, time, nodes, and what
    holds it up."""
    from memray_eval.execution.estimate import parse_node_prices, parse_sample_count
    from memray_eval.execution.estimate_text import estimate_lines
    from memray_eval.execution.prepare import estimate_of
    from memray_eval.execution.waiting import no_waiting, show_waiting
    from memray_eval.submission.cluster_files import read_offer

    prices, count = (
        parse_node_prices(node_usd or ()),
        None if samples is None else parse_sample_count(samples),
    )
    if prices and cluster is None:
        raise ConfigError("--node-usd prices a cluster's nodes: name its file with --cluster")
    cluster_spec = None if cluster is None else read_offer(cluster)
    job = load_config(
        config,
        _overrides(limit, dataset, metrics, judge, None, skip_invalid)
        | _model_overrides(model)
        | column_overrides(mapped)
        | {"include": include},
        settings or (),
    )
    made = estimate_of(
        job,
        samples=count,
        cluster_spec=cluster_spec,
        node_usd_per_hour=prices,
        say=say,
        waiting=no_waiting if as_json else show_waiting,
    )
    show(made.model_dump_json(indent=2) if as_json else "\n".join(estimate_lines(made)))


def _follow_origin(
    job: RunConfig, suite: str | None, metrics: str | None, settings: Sequence[str], yes: bool
) -> tuple[RunConfig, Callable[[Scan], None]]:
    """Follows the run or rows that responses come from: returns the job with their suite, metrics
    and rubrics, and a check that all of them are of that suite. Prints which suite it is, and asks
    if the job and its responses differ. Raises ConfigError if nobody agrees."""
    from memray_eval.benchmarks.own import suite_name
    from memray_eval.execution.prepare.origins import count_other_suites, find_origin, follow_origin

    given = {"suite": suite, "metrics": metrics}
    explicit = {key for key, value in given.items() if value is not None}
    explicit |= {setting.partition("=")[0].partition(".")[0].strip() for setting in settings}
    origin = find_origin(job.dataset)
    followed, differences = follow_origin(job, origin, explicit)
    name = suite_name(followed.suite)
    if differences:
        _confirm_difference(
            "; ".join(differences),
            f"Judge by the job's all the same (suite {name})?",
            yes,
        )
    elif followed.suite == origin.suite:
        say(f"Suite {name}, that of {origin.what}.")
    elif "suite" not in job.model_fields_set:
        say(f"Suite {name}: {origin.what} names none; --suite says another.")

    def check_found(found: Scan) -> None:
        difference = count_other_suites(found, name)
        if difference and not differences and not explicit & {"suite", "metrics"}:
            _confirm_difference(difference, "Judge them all the same?", yes)

    return followed, check_found


def _confirm_difference(difference: str, question: str, yes: bool) -> None:
    """Asks whether to judge responses in another way than their own. Raises ConfigError if nobody
    agrees."""
    if yes:
        say(f"{difference}; judged all the same (--yes).")
        return
    if sys.stdin.isatty():
        say(f"{difference}.")
        if typer.confirm(question, err=True):
            return
    raise ConfigError(
        f"{difference}; nothing was judged and nothing paid. Name the --suite or the --metrics "
        "that you mean, or say --yes"
    )


def _affect_overrides(
    affect: str | None, speech_weight: float | None, text_weight: float | None, no_tts: bool
) -> dict[str, Any]:
    if affect not in (None, "on", "off"):
        raise ConfigError(f"--affect {affect}: it is on or off")
    weights = {"affect.speech_weight": speech_weight, "affect.text_weight": text_weight}
    return {
        "affect.enabled": None if affect is None else affect == "on",
        "affect.tts": "off" if no_tts else None,
        **weights,
    }


def _payment_overrides(no_cache: bool, budget_usd: float | None) -> dict[str, Any]:
    return {"judging.cache": "off" if no_cache else None, "budget.usd": budget_usd}


def _overrides(
    limit: int | None,
    dataset: str | None,
    metrics: str | None,
    judge: str | None,
    out: str | None,
    skip_invalid: bool,
) -> dict[str, Any]:
    """Options as config keys; None leaves what the job says."""
    names = [name.strip() for name in metrics.split(",") if name.strip()] if metrics else None
    skip = True if skip_invalid else None
    return {
        "limit": limit,
        "dataset": dataset,
        "metrics": names,
        "judge": judge,
        "out": out,
        "skip_invalid": skip,
    }


def _model_overrides(model: str | None) -> dict[str, Any]:
    return (
        {}
        if model is None
        else {"candidates.0.model": model, "candidates.0.name": Path(model).name}
    )


def _to_file_name(name: str) -> str:
    """Turns a name into part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


def _run(
    job: RunConfig,
    quiet: bool = False,
    generate_only: bool = False,
    yes: bool = False,
    run_id: str | None = None,
    detach: bool = False,
    check_found: Callable[[Scan], None] = lambda _: None,
) -> RunResult:
    from memray_eval.execution.estimate_text import estimate_lines

    # Ray takes a second to import: only where it is used
    from memray_eval.execution.prepare import (
        run,
    )

    def agree(made: Estimate) -> bool:
        if yes or not sys.stdin.isatty():
            return yes
        say("\n".join(estimate_lines(made)))
        return typer.confirm("Spend this without a budget?", err=True)

    return run(
        job,
        say,
        quiet=quiet,
        generate_only=generate_only,
        agree=agree,
        run_id=run_id,
        check_found=check_found,
        detach=detach,
    )


def exit_if_failed(finished: RunResult) -> None:
    """Exits with the run's code if too many units failed or it stopped early, and says so."""
    if finished.is_decided:
        go_on = f"`memray-eval resume --all {finished.folder.path}`"
        say(f"Stopped, {finished.stopped}. The rest comes with {go_on}.")
    if finished.exit_code:
        failed, units = (
            finished.summary.n_failed_units,
            finished.summary.n_units + finished.n_missing,
        )
        go_on = f"`memray-eval resume {finished.folder.path}`"
        for warning in finished.warnings:
            say(f"warning: {warning}")
        if finished.stopped and not finished.is_decided:
            say(f"Stopped early: {finished.stopped}. Go on with {go_on}.")
        elif finished.has_failed:
            missing = f" and {finished.n_missing} are missing" if finished.n_missing else ""
            say(
                f"{failed} of {units} units failed{missing}, more than the tolerance allows. Try "
                f"them again with {go_on}."
            )
        raise typer.Exit(finished.exit_code)
