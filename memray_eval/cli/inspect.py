"""The commands that inspect: report, doctor, list, dataset validate, cache, schema, config show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml

from memray_eval.cli.app import (
    CLUSTER,
    DATA,
    LOOK,
    app,
    cache_app,
    config_app,
    dataset_app,
    list_app,
    print_report,
    say,
    show,
)
from memray_eval.cli.options import CONFIG, JobOptions, argument, column_overrides, flag, option
from memray_eval.config.environment import calls_file, keys_set
from memray_eval.config.loading import load_config, read_job_keys
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.config.sections import EMBEDDED, ClusterConfig, EngineConfig
from memray_eval.errors import ConfigError, suggest

JOBS_OWN = "job"  # of `doctor --engine`: the job's own models

if TYPE_CHECKING:
    from memray_eval.judges.prices import ModelEntry, Price, PriceBand
    from memray_eval.results.run_folder import RunFolder
    from memray_eval.types import Candidate


@app.command(rich_help_panel=LOOK, epilog="Example: memray-eval report latest --html")
def report(
    run_folder: str = argument(
        "Folder of a finished run: results/<run_id>, latest, or latest~1 for the one before."
    ),
    as_json: bool = JobOptions.as_json,
    full: bool = JobOptions.full,
    benchmark: str | None = option(
        "Also write answers, speed and quality to this file, one object per candidate."
    ),
    as_html: bool = flag(
        "Also write the run as one HTML file, including its samples.", None, "--html"
    ),
    out: str | None = option("File that --html writes.  [default: report.html in the run folder]"),
    evaluation: str | None = option(
        "Also write every answer and its judgments to this file, in the format of eval_*.json."
    ),
    csv: str | None = option(
        "Also write the answers, scores and reasons to this CSV, a row per metric."
    ),
    parquet: str | None = option("Also write these rows to this file as Parquet."),
) -> None:
    """Print a finished run's summary again, and export the run. Files may be local paths or cloud
    URLs."""
    if out is not None and not as_html:
        raise ConfigError("--out says where --html writes: give both")
    from memray_eval.results.lookup import find_run
    from memray_eval.results.run_folder import RunFolder

    run = RunFolder(find_run(run_folder))
    print_report(run, as_json, full)
    page = (out or f"{run.path}/report.html") if as_html else None
    if page or benchmark or evaluation or csv or parquet:
        _export(run, page, benchmark, evaluation, csv, parquet)


def _export(run: RunFolder, *paths: str | None) -> None:
    """Writes a page, the benchmark, the evaluation, a CSV and Parquet where a path is given."""
    from memray_eval.report import exports
    from memray_eval.report.html.page import write_html
    from memray_eval.storage.paths import readable

    summary = run.read_summary()
    writers: list[Callable[[str], None]] = [
        lambda path: write_html(run, path),
        lambda path: exports.export_benchmark(path, run.each(), summary),
        lambda path: exports.export_evaluation(path, run.each(), summary),
        lambda path: exports.write_csv(path, run.records()),
        lambda path: exports.write_parquet(path, run.records()),
    ]
    for path, write in zip(paths, writers, strict=True):
        if path:
            problem = f"the records of {run.path} cannot be read, or {path} not written"
            with readable(run.path, problem):
                write(path)
            say(path)


@app.command(rich_help_panel=CLUSTER, epilog="Example: memray-eval doctor job.yaml")
def doctor(
    config: Path | None = argument("Also check that this job can run.", None),
    settings: list[str] | None = JobOptions.settings,
    engine: str | None = option(
        "Also start one vLLM engine of this model (`embedded`, a Hugging Face name, a folder; "
        "`job`: of each of the job's own, and look at nothing else of the job) with the job's "
        "settings of it, and generate 8 tokens.",
        show_default=False,
    ),
) -> None:
    """Check this machine for what would hang or fail, and say how to fix it: platform, packages,
    models, keys, resources."""
    job: RunConfig | None = load_config(config, {}, settings or ()) if config else None
    from memray_eval.execution.doctor import examine, examine_engine

    checks = examine(None if engine == JOBS_OWN else job)
    engines = [own for own in (_engines_of(job) if job else ()) if engine in (JOBS_OWN, own[0])]
    if engine == JOBS_OWN and not engines:
        raise ConfigError(f"--engine {JOBS_OWN}: name a job with engines of vLLM first")
    if engine is not None and not engines:
        engines = [(engine, job.engine_of(engine) if job else EngineConfig(), ())]
    for model, own, sharing in engines:
        on = job.cluster if job else ClusterConfig()
        checks = chain(checks, examine_engine(model, own, on, sharing))
    has_failed = False
    for check in checks:
        mend = f"\n       -> {check.mend}" if check.mend else ""
        show(f"[{check.state:>4}] {check.what}{mend}")
        has_failed |= check.state == "fail"
    if has_failed:
        raise typer.Exit(3)


def _engines_of(job: RunConfig) -> Iterator[tuple[str, EngineConfig, Sequence[Candidate]]]:
    """Yields a job's models on engines, an embedded judge's last: settings, and who shares them."""
    from memray_eval.judges.accounts import is_embedded

    candidates = [candidate for candidate in job.candidates if candidate.backend == "vllm"]
    for model in dict.fromkeys(candidate.model for candidate in candidates):
        yield model, job.engine_of(model), [of for of in candidates if of.model == model]
    juries = job.judge.values() if isinstance(job.judge, dict) else [job.judge]
    judges = {name for jury in juries for name in ([jury] if isinstance(jury, str) else jury)}
    for model in (name.partition(":")[2] or EMBEDDED for name in judges if is_embedded(name)):
        yield model, job.judge_engine(model), ()


@dataset_app.command("validate", epilog="Example: memray-eval dataset validate chats.jsonl")
def validate(
    path: str = argument("A folder of samples, or a .csv, .json, .jsonl or .parquet file."),
    suite: str = option(
        "Suite that the samples are for; FILE.py:NAME for your own.", default="memory"
    ),
    mapped: list[str] | None = JobOptions.mapped,
    encoding: str | None = JobOptions.encoding,
) -> None:
    """Check every sample of a dataset, and print each problem with its file, sample and field. Exit
    code 2 if there are problems."""
    from memray_eval.datasets.scan import scan
    from memray_eval.execution.prepare.resolve import resolve_reading

    keys = {"dataset": path, "suite": suite, "encoding": encoding} | column_overrides(mapped)
    anybody = {"name": "anybody", "model": "anybody"}
    read = resolve_reading(load_config(None, {**keys, "candidates": [anybody]}))
    read = replace(read, dataset=path).with_columns(say)  # named as the user did
    scanned = scan(path, read.reader, on_problem=print)
    is_valid = scanned.n_samples and not scanned.n_invalid
    invalid = "" if is_valid else f", {scanned.n_invalid} invalid"
    for warning in scanned.warnings():
        say(warning)
    show(f"{path}: {scanned.n_samples} valid samples{invalid}")
    if not is_valid:
        raise typer.Exit(2)


@list_app.command("metrics", epilog="Example: memray-eval list metrics empathy")
def list_metrics(
    name: str | None = argument("Print this metric's rubric and formulas.", None),
    include: list[str] | None = option("Also list the metrics of this file."),
    as_markdown: bool = flag("Print a table in Markdown.", None, "--markdown"),
) -> None:
    """List metrics: what each measures, its scale, its judge, and how good its estimate by rules
    is. With a name, print everything about that metric."""
    from memray_eval.metrics import all_metrics
    from memray_eval.metrics.catalogue import list_lines, markdown_table, page_lines
    from memray_eval.metrics.own import find_own_metrics, load_own_metric

    _, brought = find_own_metrics((), include or ())
    metrics = {metric.name: metric for metric in map(load_own_metric, brought)} | all_metrics()
    if name is None:
        listed = metrics.values()
        show(markdown_table(listed).rstrip() if as_markdown else "\n".join(list_lines(listed)))
    elif name in metrics:
        show("\n".join(page_lines(metrics[name])))
    else:
        raise ConfigError(f"no metric {name!r}; {suggest(name, metrics)}")


@list_app.command("suites", epilog="Example: memray-eval list suites memory")
def list_suites(name: str | None = argument("Print this suite alone.", None)) -> None:
    """List suites, with the metrics that each computes by default."""
    from memray_eval.benchmarks import all_suites, get_suite

    for suite in all_suites().values() if name is None else (get_suite(name),):
        show(f"{suite.name:<16} {suite.description}\n{'':<16} metrics: {', '.join(suite.metrics)}")
        if suite.baselines:
            show(f"{'':<16} baselines: {', '.join(suite.baselines)}")


@list_app.command("providers", epilog="Example: memray-eval list providers")
def list_providers() -> None:
    """List who can judge and answer: what each needs, where it is, and how a model is named."""
    from memray_eval.config.environment import LOCAL_SERVERS, PROVIDERS
    from memray_eval.report.sections import Table

    rows = [("provider", "needs", "address", "a model")]
    for name, facts in PROVIDERS.items():
        extra = f", memray-eval[{name}]" if facts.extra else ""
        other = f"{facts.address} or ${facts.url_variable}"
        rows.append((name, f"${facts.key_variable}{extra}", other, f"--judge {name}/MODEL"))
    for server, url in LOCAL_SERVERS.items():
        rows.append((server, "a running server", url, f"--judge or --model {server}/MODEL"))
    form = "--judge or --model MODEL@URL, or URL of one model"
    rows.append(("any other", "OpenAI's protocol", "URL", form))
    rows.append(("embedded", "nothing", "this machine", "--judge or --model embedded"))
    for line in Table(rows, left=range(4)).lines():
        show(line)
    show("With a key, limits or a price: servers: {NAME: {url: URL, api_key_env: VARIABLE}}")


@list_app.command("judges", epilog="Example: memray-eval list judges")
def list_judges(
    models: str | None = option("Use this table of judges instead of the built-in one."),
) -> None:
    """List judge models: price per million tokens, preferred metrics, and if the key is set."""
    from memray_eval.config.environment import PROVIDERS
    from memray_eval.judges.prices import load_table
    from memray_eval.metric import JudgedMetric
    from memray_eval.metrics import all_metrics

    table, keys, today = load_table(models), keys_set(), date.today()
    variables: dict[str, str] = {name: facts.key_variable for name, facts in PROVIDERS.items()}
    judged = [metric for metric in all_metrics().values() if isinstance(metric, JudgedMetric)]
    show(
        "US dollars per million tokens in and out, with the date of the price, and a beginner's "
        "limits per minute"
    )
    for name, entry in table.models.items():
        if entry.kind != "judge":
            continue
        state = "key set" if keys.get(variables.get(name.partition("/")[0], "")) else "no key"
        limits = ", ".join(
            f"{lane.removesuffix('_per_min')} {limit:,.0f}" for lane, limit in entry.limits if limit
        )
        cost = _format_price(entry.price_on(today))
        show(f"{name:<30} {cost}  {entry.price_date:<10}  {state:<8} {limits}".rstrip())
        for line in _note_changes(entry, today):
            show(f"{'':<30} {line}")
        if preferred := [metric.name for metric in judged if metric.preferred_judge == name]:
            show(f"{'':<30} preferred for {', '.join(preferred)}")
    show(
        "rules: the offline estimates, no model; embedded: a small local model on an engine of "
        "the run's own, embedded:MODEL another"
    )


def _note_changes(entry: ModelEntry, today: date) -> Iterator[str]:
    """Lines of the prices for long prompts and of days to come, and of the model's end."""
    price = entry.price_on(today)
    for length, longer in price.above if price else ():
        yield f"{_format_price(longer)}  for prompts above {length:,} tokens"
    for band in entry.bands:
        if band.since is not None and band.since > today and band.input_usd is not None:
            yield f"{_format_price(band)}  from {band.since} on"
    if entry.retires is not None or entry.successor is not None:
        day = f"off from {entry.retires} on" if entry.retires else "no retirement date known"
        yield f"{day}; successor: {entry.successor or 'unknown'}"


def _format_price(price: Price | PriceBand | None) -> str:
    return f"{price.input_usd:>6g} {price.output_usd:>6g}" if price else f"{'unknown':>13}"


CACHE = option(
    "Use this cache file instead of this machine's (see judging.cache).", None, "--cache"
)


@cache_app.command("stats", epilog="Example: memray-eval cache stats")
def cache_stats(cache: str | None = CACHE, as_json: bool = JobOptions.as_json) -> None:
    """Show the cached calls of each judge, and their original cost."""
    from memray_eval.judges.call_cache import CallCache
    from memray_eval.judges.prices import cost_text

    stats = CallCache(_find_calls_file(cache)).stats()
    if as_json:
        show(stats.model_dump_json(indent=2))
        return
    show(
        f"{stats.path}: {stats.entries} calls, {stats.size_bytes / 1e6:.1f} MB; they had cost "
        f"{cost_text(stats.saved, stats.unpriced_calls, ',.2f')}"
    )
    for judge, entries in stats.by_judge.items():
        show(f"  {judge}: {entries}")


@cache_app.command("clear", epilog="Example: memray-eval cache clear")
def cache_clear(
    cache: str | None = CACHE,
    older_than_days: float | None = option("Delete only calls older than this many days.", min=0),
) -> None:
    """Delete cached judge calls; the next run pays for them again."""
    from memray_eval.judges.call_cache import CallCache, discard

    path = _find_calls_file(cache)
    older_than_s = None if older_than_days is None else older_than_days * 86400.0
    try:
        deleted = CallCache(path).clear(older_than_s)
    except ConfigError:
        if older_than_days is not None:
            raise
        discard(path)
        show(f"{path}: deleted; it could not be read")
        return
    show(f"{path}: {deleted} calls forgotten")


def _find_calls_file(cache: str | None) -> str:
    if cache is not None and "://" in cache:
        raise ConfigError(
            f"--cache {cache}: calls kept in the cloud belong to their run; delete that folder "
            "instead"
        )
    return cache or str(calls_file())


@app.command(rich_help_panel=DATA, epilog="Example: memray-eval schema")
def schema(
    as_markdown: bool = flag("Print the page of all keys in Markdown instead.", None, "--markdown"),
) -> None:
    """Print the JSON schema of a job: every key with its description and default."""
    from memray_eval.config.loading import job_reference, job_schema

    if as_markdown:
        show(job_reference(), end="")
    else:
        show(json.dumps(job_schema(), indent=2, ensure_ascii=False))


@config_app.command("show", epilog="Example: memray-eval config show job.yaml")
def show_config(config: Path = CONFIG, settings: list[str] | None = JobOptions.settings) -> None:
    """Print a job as it would run, as YAML. A comment names the source of each value that is not
    the default."""
    job = load_config(config, {}, settings or ())
    refuse_keys(job, {})  # they are printed
    sources = dict.fromkeys(read_job_keys(config), config.name)
    sources |= {setting.partition("=")[0].strip(): "--set" for setting in settings or ()}
    for line in _to_lines(job.model_dump(mode="json"), "", sources):
        show(line)


def _to_lines(section: Mapping[str, Any], path: str, sources: Mapping[str, str]) -> Iterator[str]:
    """A section as YAML, a key a line."""
    margin = "  " * path.count(".")
    for name, value in section.items():
        key = f"{path}{name}"
        if isinstance(value, dict) and value:
            yield f"{margin}{_to_yaml(name)}:"
            yield from _to_lines(value, f"{key}.", sources)
            continue
        # The setting is of the key itself, of its parent, or of a part of a list
        origins = [
            source
            for set_key, source in sources.items()
            if f"{key}.".startswith(f"{set_key}.") or set_key.startswith(f"{key}.")
        ]
        source = f"    # {origins[-1]}" if origins else ""
        yield f"{margin}{_to_yaml(name)}: {_to_yaml(value)}{source}"


def _to_yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
