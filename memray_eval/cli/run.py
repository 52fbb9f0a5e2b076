"""The commands that run: run, generate, evaluate, resume, estimate, pairwise; and score, of one
response, and send, of a run's scores."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from memray_eval.cli.app import BEGAN, LOOK, RUN, app, print_report, prints_on_stderr, say, show
from memray_eval.cli.options import (
    BASE_CONFIG,
    CONFIG,
    JUDGING,
    OUTPUT,
    WHAT,
    JobOptions,
    argument,
    flag,
    named_number,
    option,
    split_names,
    takes,
)
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import SINK_KEYS, SinkConfig, names_a_text_file
from memray_eval.errors import ConfigError, DataError, cut, may_pass_again

if TYPE_CHECKING:
    from memray_eval.datasets.scan import Scan
    from memray_eval.execution.estimate import Estimate
    from memray_eval.execution.pairwise import PairwiseResult
    from memray_eval.execution.session import RunResult


TEXT = "text"  # of `score --type`
PREFERENCE = "preference"
_NAMED = re.compile(r"([A-Za-z_][\w-]{0,63})=(.*)", re.DOTALL)
_WORDS_IN_NAME = 4
_AFFECT = "affect speech_weight text_weight disable_openai_tts"
_JUDGING = "metrics include judge no_cache budget_usd yes"


@app.command("run", rich_help_panel=RUN, epilog="Example: memray-eval run quickstart --limit 5")
@takes(
    f"config limit epochs dataset encoding mapped model {_JUDGING} detach out run_id name "
    f"skip_invalid {_AFFECT} settings as_json full"
)
def run_command(options: JobOptions, config: Path = CONFIG) -> None:
    """Run a job: read samples, generate, judge, embed, write records, and print the summary."""
    with prints_on_stderr(options.as_json):
        finished = _run(options.load_job(config), options, quiet=options.as_json)
    print_report(finished.folder, options.as_json, options.full)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval generate quickstart --limit 5")
@takes(
    f"config limit epochs dataset encoding mapped model out name skip_invalid {_AFFECT} settings "
    "as_json"
)
def generate(
    options: JobOptions,
    config: Path = CONFIG,
    as_json: bool = flag(
        "Also write responses_{model}_{timestamp}.json beside it, one per candidate.",
        OUTPUT,
        "--json",
    ),
) -> None:
    """Only generate: write the candidates' responses to a run folder, for `evaluate` to judge."""
    from memray_eval.report.exports import export_responses

    job = options.load_job(config, {"judge": "rules"})
    finished = _run(job, options, generate_only=True)
    show(finished.folder.path)
    if as_json:
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
        for candidate in job.candidates:
            path = f"{job.out}/responses_{_to_file_name(candidate.name)}_{stamp}.json"
            export_responses(path, finished.folder.each(), candidate.name, stamp)
            show(path)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval evaluate chats.jsonl --judge auto")
@takes(
    f"responses results config dataset encoding suite mapped limit {_JUDGING} recipes out "
    "run_id name skip_invalid settings as_json full"
)
def evaluate(
    options: JobOptions,
    responses: str | None = argument(
        "A run folder, latest, or a .csv, .json, .jsonl or .parquet file with queries "
        "and responses.",
        None,
    ),
    results: str | None = option("The same.", WHAT, hidden=True),
    config: Path | None = BASE_CONFIG,
    dataset: str | None = option(
        "The dataset whose samples they answer, where rows have a sample's id and no query.", WHAT
    ),
    recipes: str | None = option(
        "Judge the answers by several recipes, and print how far the figure depends on them: "
        "strict, lenient, own (the benchmark's judge) or a rubric's file, comma-separated.",
        JUDGING,
    ),
    as_json: bool = flag("Also write eval_{input}.json beside it.", OUTPUT, "--json"),
) -> None:
    """Judge existing responses with any metrics and any judge, and print the summary.

    Responses of a run are judged by its suite, metrics and rubrics, those of a file by the suite
    that its rows name. If the job of --config says otherwise, you are asked before anything is
    paid for; --yes, --suite and --metrics decide without asking."""
    from memray_eval.execution.prepare.origins import name_answers
    from memray_eval.report.exports import export_evaluation
    from memray_eval.results.lookup import find_run

    if (named := responses or results) is None or (responses and results):
        raise ConfigError("name one file or run folder: `memray-eval evaluate RESPONSES`")
    responses = find_run(named)
    answered = {
        "dataset": responses,
        "samples": dataset,
        "candidates": [name_answers(responses)],
        "epochs": 1,
    }
    job = options.load_job(config, answered)
    job, check_found = _follow_origin(job, options)
    path = f"{job.out}/eval_{_to_file_name(Path(responses.rstrip('/')).stem)}.json"
    if recipes is not None:
        if options.run_id is not None:
            raise ConfigError("--recipes starts a run for each recipe; leave out --run-id")
        to_path = path if as_json else None
        _judge_by_recipes(job, split_names(recipes), options, check_found, to_path)
        return
    finished = _run(job, options, check_found=check_found)
    print_report(finished.folder, False, options.full)
    if as_json:
        export_evaluation(path, finished.folder.each(), finished.summary)
        say(path)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval resume latest")
@takes("run_folder settings detach as_json full")
def resume(
    options: JobOptions,
    run_folder: str = argument("A run folder: results/<run_id>, or latest."),
    settings: list[str] | None = option(
        "Change how the run continues: --set judging.actors=2 --set budget.usd=50", WHAT, "--set"
    ),
) -> None:
    """Continue a run that was killed, interrupted or stopped, and retry its failed units."""
    from memray_eval.execution import runs
    from memray_eval.execution.pairwise import resume_pairwise
    from memray_eval.execution.prepare.origins import is_pairwise
    from memray_eval.results.lookup import find_run
    from memray_eval.results.run_folder import RunFolder

    folder = find_run(run_folder)
    changed, quiet = [*(settings or ())], options.as_json
    RunFolder(folder).read_manifest()  # raises if there is no run
    if is_pairwise(RunFolder(folder)):
        with prints_on_stderr(options.as_json):
            done = resume_pairwise(folder, say, quiet=quiet, settings=changed)
        show_pairs(done, options.as_json)
        return
    with prints_on_stderr(options.as_json):
        finished = runs.resume(
            folder,
            say,
            quiet=quiet,
            settings=changed,
            detach=options.detach,
            started=next(iter(BEGAN), None),
        )
    print_report(finished.folder, options.as_json, options.full)
    exit_if_failed(finished)


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval estimate job.yaml --judge auto")
@takes(
    "config limit epochs dataset encoding mapped model metrics include judge skip_invalid samples "
    "settings as_json"
)
def estimate(
    options: JobOptions,
    config: Path = CONFIG,
    samples: str | None = option(
        "Estimate for this many samples (1e6) like those of the dataset.", WHAT, show_default=False
    ),
) -> None:
    """Estimate a job's calls, tokens, cost, time and bottleneck. Makes no model calls."""
    from memray_eval.execution.estimate import estimate_lines
    from memray_eval.execution.runs import estimate_of
    from memray_eval.execution.waiting import no_waiting, show_waiting

    n_samples = None if samples is None else _sample_count(samples)
    estimated = estimate_of(
        options.load_job(config),
        samples=n_samples,
        say=say,
        waiting=no_waiting if options.as_json else show_waiting,
    )
    as_text = "\n".join(estimate_lines(estimated))
    show(estimated.model_dump_json(indent=2) if options.as_json else as_text)


def _sample_count(text: str) -> int:
    """A number of samples, such as 1e6 or 1_000_000. Raises ConfigError for others, or below 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number >= 1 and number < math.inf and number == int(number)):
        raise ConfigError(
            f"--samples {text}: write a whole number from 1 on, such as 50000, 1_000_000 or 1e6"
        )
    return int(number)


def _judge_by_recipes(
    job: RunConfig,
    recipes: list[str],
    options: JobOptions,
    check_found: Callable[[Scan], None],
    path: str | None,
) -> None:
    """Prints the recipes' figures of the answers, and writes them to a path if there is one."""
    from memray_eval.api.recipes import judge_by_recipes
    from memray_eval.report.console import recipe_parts
    from memray_eval.report.sections import lines_of
    from memray_eval.storage.paths import write_atomically

    span, finished = judge_by_recipes(
        job, recipes, lambda job: _run(job, options, check_found=check_found)
    )
    show("\n".join(lines_of(recipe_parts(span))))
    for done in finished:
        say(done.folder.path)
    if path is not None:
        with write_atomically(path) as stream:
            stream.write(span.model_dump_json(indent=2).encode())
        say(path)
    for done in finished:
        exit_if_failed(done)


def _follow_origin(job: RunConfig, options: JobOptions) -> tuple[RunConfig, Callable[[Scan], None]]:
    """Follows the run or rows that responses come from: returns the job with their suite, metrics
    and rubrics, and a check that all of them are of that suite. Prints which suite it is, and asks
    if the job and its responses differ. Raises ConfigError if nobody agrees."""
    from memray_eval.benchmarks.own import suite_name
    from memray_eval.execution.prepare.origins import count_other_suites, find_origin, follow_origin

    explicit = {key for key in ("suite", "metrics") if getattr(options, key) is not None}
    explicit |= {
        setting.partition("=")[0].partition(".")[0].strip() for setting in options.settings or ()
    }
    origin = find_origin(job.dataset, job.columns)
    followed, differences = follow_origin(job, origin, explicit)
    name = suite_name(followed.suite)
    if differences:
        question = f"Judge by the job's all the same (suite {name})?"
        _confirm_difference("; ".join(differences), question, options.yes)
    elif followed.suite == origin.suite:
        say(f"Suite {name}, that of {origin.what}; override with --suite.")
    elif "suite" not in job.model_fields_set:
        say(f"Using suite {name} ({origin.what} does not name one); override with --suite.")

    def check_found(scan: Scan) -> None:
        difference = count_other_suites(scan, name)
        if difference and not differences and not explicit & {"suite", "metrics"}:
            _confirm_difference(difference, "Judge them all the same?", options.yes)

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


def _to_file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


def _run(
    job: RunConfig,
    options: JobOptions,
    quiet: bool = False,
    generate_only: bool = False,
    check_found: Callable[[Scan], None] = lambda _: None,
) -> RunResult:
    # Ray takes a second to import: only if it is used
    from memray_eval.execution.runs import run
    from memray_eval.results.lookup import remember_out

    remember_out(job.out)
    return run(
        job,
        say,
        quiet=quiet,
        generate_only=generate_only,
        agree=confirm_cost(options.yes),
        run_id=options.run_id,
        check_found=check_found,
        detach=options.detach,
        started=next(iter(BEGAN), None),
    )


def confirm_cost(yes: bool) -> Callable[[Estimate], bool]:
    """Makes a function that asks on a terminal whether to spend what a run without a budget is
    estimated to cost. `yes` agrees, and elsewhere nobody does."""

    def agree(estimated: Estimate) -> bool:
        from memray_eval.execution.estimate import estimate_lines

        if yes or not sys.stdin.isatty():
            return yes
        say("\n".join(estimate_lines(estimated)))
        return typer.confirm("Spend this without a budget?", err=True)

    return agree


def exit_if_failed(finished: RunResult) -> None:
    """Exits with the run's code if too many units failed or it stopped early, and says so."""
    if finished.exit_code:
        summary, go_on = finished.summary, f"`{finished.resume_command}`"
        for warning in finished.warnings:
            say(f"warning: {warning}")
        if finished.stopped:
            cost = finished.resume_cost
            say(f"Stopped early: {finished.stopped}. Go on with {go_on}.{cost}")
        elif finished.has_failed:
            missing = f" and {finished.n_missing} are missing" if finished.n_missing else ""
            may_pass = any(may_pass_again(cause.cause) for cause in summary.causes)
            way_on = "Fix the code and start a new run: `resume` takes only the code of its start"
            way_on = f"Try them again with {go_on}" if may_pass or missing else way_on
            failed = f"{summary.n_failed_units} of {summary.n_units + finished.n_missing}"
            say(f"{failed} answers failed{missing}, more than the tolerance allows. {way_on}.")
        raise typer.Exit(finished.exit_code)


@app.command(
    rich_help_panel=RUN,
    epilog="Example: memray-eval score simple 'Name two colours.' 'Red and blue.'",
)
def score(
    words: list[str] | None = argument(
        "TYPE PROMPT RESPONSE, in place of --type, --prompt and --response.", None
    ),
    prompt_type: str | None = option(
        "Type of prompt: simple, navigation, reasoning, or text.", None, "--type"
    ),
    response: str | None = option("The response to score."),
    prompt: str | None = option("The prompt that it answers; optional for text."),
    expected: list[str] | None = option("A correct answer to compare with. Repeatable."),
    weight: list[str] | None = option(
        "Weight of a check: CHECK=SHARE. Together they replace the type's weights. Repeatable."
    ),
) -> None:
    """Score one response by rules, and print JSON: the overall score, subscores, issues and passed
    checks for instruction following (0-100), or text quality scores (0-1). Makes no model calls."""
    from memray_eval.benchmarks.instruction.checks import PROMPT_TYPES, score_response

    rest = iter(words or ())
    prompt_type = prompt_type or next(rest, None)
    prompt = prompt if prompt is not None else next(rest, None)
    response = response if response is not None else next(rest, None)
    if (extra := next(rest, None)) is not None:
        raise ConfigError(
            f"{cut(extra, 40)!r} is too much: write TYPE PROMPT RESPONSE, each in quotes"
        )
    if prompt_type not in (*PROMPT_TYPES, TEXT):
        problem = "no --type" if prompt_type is None else f"no prompt type {prompt_type!r}"
        raise ConfigError(f"{problem}; there are: {', '.join((*PROMPT_TYPES, TEXT))}")
    if response is None:
        raise ConfigError("no response: give --response")
    form = "CHECK=SHARE, such as word_count=0.5"
    weights = dict(named_number(share, "--weight", form) for share in weight) if weight else None
    if prompt_type == TEXT:
        if expected:
            raise ConfigError("--type text compares with no answer; leave out --expected")
        show(json.dumps(_score_text(prompt or "-", response, weights or {}), indent=2))
        return
    if prompt is None:
        raise ConfigError("no prompt: give --prompt")
    scored = score_response(prompt_type, prompt, response, expected, weights=weights)
    show(scored.model_dump_json(indent=2))


def _score_text(prompt: str, text: str, weights: dict[str, float]) -> dict[str, float | str | None]:
    """Scores one response by every metric of the text family; None if not measured, and why. Raises
    ConfigError for bad weights, DataError with the reason if a metric fails."""
    from memray_eval.config.sections import MetricOptions
    from memray_eval.metric import ComputedMetric, score_by_code
    from memray_eval.metrics import all_metrics, pick
    from memray_eval.metrics._text_features import reading_level
    from memray_eval.types import Response, Sample

    sample, response = Sample(id="-", query=prompt), Response(text=text)
    values: dict[str, float | str | None] = {}
    names = [metric.name for metric in all_metrics().values() if metric.family == TEXT]
    for metric in pick(names, MetricOptions(text_weights=weights)):
        if isinstance(metric, ComputedMetric):
            score = score_by_code(metric, sample, response)
            if score.status == "not_applicable":
                values["not_measured"] = score.error
            elif score.value is None:
                raise DataError(f"{score.metric}: {score.error}")
            values[metric.name] = None if score.value is None else round(score.value, 4)
    readability = values.get("readability_score")
    if isinstance(readability, float) and text.strip():
        values["reading_level"] = reading_level(readability)
    return values


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval send latest --sink mlflow")
def send(
    run_folder: str = argument("Folder of a finished run: results/<run_id>, or latest."),
    kinds: list[str] | None = option(
        "Send to this sink only, one of the job's or another: otlp, mlflow, inspect. Repeatable.",
        None,
        "--sink",
    ),
    settings: list[str] | None = option(
        "Change the job's sinks: --set 'sinks=[{kind: mlflow, uri: http://HOST:5000}]'",
        None,
        "--set",
    ),
) -> None:
    """Send a run's scores to OpenTelemetry, MLflow or Inspect's logs, leaving out what was sent
    before. A run does this when it ends. Exit code 1 if a sink fails."""
    from memray_eval.execution.prepare.origins import apply_resume_settings, read_config
    from memray_eval.results.lookup import find_run
    from memray_eval.results.run_folder import RunFolder
    from memray_eval.sinks.sending import check_sinks, send_run

    folder = RunFolder(find_run(run_folder))
    folder.read_summary()  # raises if the run is not finished
    config = apply_resume_settings(read_config(folder), settings or ())
    sinks = _choose_sinks(config.sinks, kinds or ())
    if not sinks:
        raise ConfigError(
            f"the job of {folder.path} names no sink; name one with --sink: {', '.join(SINK_KEYS)}"
        )
    check_sinks(sinks)
    with folder.held():
        deliveries = send_run(folder, sinks)
    for delivery in deliveries:
        if delivery.line is not None:
            show(delivery.line)
        else:
            say(f"error: {delivery.note}")
    if any(delivery.error for delivery in deliveries):
        raise typer.Exit(1)


def _choose_sinks(
    sinks: tuple[SinkConfig, ...], kinds: list[str] | tuple[str, ...]
) -> list[SinkConfig]:
    """The job's sinks of these kinds, or one without further keys; all of them without a kind."""
    if not kinds:
        return list(sinks)
    chosen = list[SinkConfig]()
    for kind in kinds:
        if kind not in SINK_KEYS:
            raise ConfigError(f"--sink {kind!r}: there are: {', '.join(SINK_KEYS)}")
        own = [sink for sink in sinks if sink.kind == kind]
        chosen += own or [SinkConfig.model_validate({"kind": kind})]
    return chosen


@app.command(
    rich_help_panel=LOOK,
    epilog="Example: memray-eval pairwise results/before results/after --judge auto",
)
@takes("runs judge metric config limit no_cache budget_usd yes out run_id settings as_json")
def pairwise(
    options: JobOptions,
    runs: list[str] = argument(
        "Run folders (or latest, latest~1). RUN:CANDIDATE picks one candidate, RUN takes all."
    ),
    judge: str | None = option(
        "Judge that compares: embedded, PROVIDER/MODEL, or FILE.py:FUNCTION; several, "
        "comma-separated, vote.  [default: auto]",
        JUDGING,
        show_default=False,
    ),
    metric: list[str] | None = option(
        "preference, or your own criterion: a text, NAME=TEXT, or a .md or .txt file. Repeatable.  "
        "[default: preference]",
        JUDGING,
        show_default=False,
    ),
    config: Path | None = BASE_CONFIG,
    limit: int | None = option(
        "Take N questions. Deterministic; a larger N is a superset.", WHAT, min=1
    ),
) -> None:
    """Compare candidates by pairs of their answers to the same questions: win rates, strengths,
    ranks, and how much the judge's verdicts depend on order and length.

    A judge sees each pair twice, once in each order, without names; if the two verdicts
    disagree, the pair is a tie. This is a run of its own, with limits, a budget, cached calls
    and resume."""
    from memray_eval.execution.pairwise import run_pairwise

    judges = split_names(judge)
    if "rules" in judges:
        raise ConfigError("a preference has no estimate by rules; name a model with --judge")
    changes = {
        "dataset": "pairs",  # written once the answers are read
        "candidates": [{"name": PREFERENCE, "model": PREFERENCE, "backend": "given"}],
        "suite": "pairs",
        "metrics": [to_criterion(text) for text in metric or (PREFERENCE,)],
        "judge": judges if len(judges) > 1 else judge,
        "limit": limit,
    }
    with prints_on_stderr(options.as_json):
        done = run_pairwise(
            runs,
            options.load_job(config, changes),
            say,
            run_id=options.run_id,
            quiet=options.as_json,
            agree=confirm_cost(options.yes),
        )
    show_pairs(done, options.as_json)


def show_pairs(done: PairwiseResult, as_json: bool) -> None:
    """Prints the figures, and exits with the run's code."""
    from memray_eval.report.comparison_console import render_pairs

    if as_json:
        show(done.report.model_dump_json(indent=2))
    else:
        show(render_pairs(done.report), end="")
        show(f"{done.run.folder.path}")
    exit_if_failed(done.run)


def to_criterion(text: str) -> str | dict[str, Any]:
    """A --metric as a job lists it: a name, or a rubric by which a judge compares. Raises
    ConfigError for an empty one."""
    named = _NAMED.fullmatch(text.strip())
    if named is not None:
        return {"name": named[1], "rubric": named[2].strip(), "compares": True}
    if names_a_text_file(text):
        return {"name": _to_name(Path(text).stem), "rubric": text, "compares": True}
    words = text.split()
    if not words:
        raise ConfigError("--metric is empty; write preference, or what to compare by")
    if len(words) == 1:
        return text
    name = _to_name("_".join(words[:_WORDS_IN_NAME]))
    return {"name": name, "rubric": text, "compares": True}


def _to_name(text: str) -> str:
    name = "_".join(re.findall(r"\w+", text.lower()))[:64]
    return name if name and not name[0].isdigit() else f"by_{name}"
