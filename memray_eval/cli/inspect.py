"""The commands that inspect: report, doctor, list, dataset validate, cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memray_eval.cli.app import (
    CLUSTER,
    LOOK,
    CalibrationOption,
    FullOption,
    JsonOption,
    MapOption,
    SetOption,
    app,
    cache_app,
    column_overrides,
    dataset_app,
    list_app,
    open_adjusted,
    print_report,
    say,
    show,
)
from memray_eval.config.environment import calls_file, keys_set
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ConfigError

if TYPE_CHECKING:
    from memray_eval.results.run_folder import RunFolder


@app.command(rich_help_panel=LOOK)
def report(
    run_folder: Annotated[
        str,
        typer.Argument(
            help="The folder of a finished run: results/<run_id>, latest, or latest~1 for the one "
            "before.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
    full: FullOption = False,
    benchmark: Annotated[
        str | None,
        typer.Option(
            help="Also write the answers with speed and quality to this file, an object a "
            "candidate."
        ),
    ] = None,
    as_html: Annotated[
        bool, typer.Option("--html", help="Also write the run as one HTML file, samples and all.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(help="Where --html writes.  [default: report.html in the run folder]"),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="Also write every answer with its judgments to this file, in the form of "
            "eval_*.json."
        ),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(help="Also write the scores to this file, a row a unit and metric."),
    ] = None,
    parquet: Annotated[str | None, typer.Option(help="The same, as Parquet.")] = None,
    calibration: CalibrationOption = None,
) -> None:
    """Print a finished run's summary again, from its summary.json. Files go to local paths or cloud
    URLs. With --calibration, figures adjusted to people's labels stand beside the run's own, there
    and in the files."""
    if out is not None and not as_html:
        raise ConfigError("--out says where --html writes: give both")
    from memray_eval.results.latest import find_run

    run_folder = find_run(run_folder)
    adjusted = open_adjusted(run_folder, calibration) if calibration else None
    print_report(run_folder, as_json, full, adjusted)
    page = (out or f"{run_folder.rstrip('/')}/report.html") if as_html else None
    wanted = {
        "html": page,
        "benchmark": benchmark,
        "evaluation": evaluation,
        "csv": csv,
        "parquet": parquet,
    }
    if any(wanted.values()):
        given = {form: path for form, path in wanted.items() if path is not None}
        _export(run_folder, given, adjusted)


def _export(run_folder: str, wanted: Mapping[str, str], adjusted: RunFolder | None) -> None:
    """Exports the run in each form to its path; `adjusted` has its summary, where people's labels
    adjust it."""
    from memray_eval.analysis.adjusted.summaries import adjusted_columns
    from memray_eval.report.exports import export_benchmark, export_evaluation
    from memray_eval.report.html import write_html
    from memray_eval.report.long_table import write_csv, write_parquet
    from memray_eval.results.run_folder import RunFolder
    from memray_eval.storage.paths import readable

    folder = adjusted or RunFolder(run_folder)
    figures = adjusted_columns(folder.read_summary())
    writers: dict[str, Callable[[str], None]] = {
        "html": lambda path: write_html(folder, path),
        "benchmark": lambda path: export_benchmark(path, folder.each(), folder.read_summary()),
        "evaluation": lambda path: export_evaluation(path, folder.each(), folder.read_summary()),
        "csv": lambda path: write_csv(path, folder.records(), figures),
        "parquet": lambda path: write_parquet(path, folder.records(), figures),
    }
    for form, path in wanted.items():
        with readable(
            run_folder, f"the records of {run_folder} cannot be read, or {path} not written"
        ):
            writers[form](path)
        say(path)


@app.command(rich_help_panel=CLUSTER)
def doctor(
    config: Annotated[
        Path | None, typer.Argument(help="Also check that this job could run.", show_default=False)
    ] = None,
    settings: SetOption = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Also start one vLLM engine of this model (`embedded`, a hub name, a folder) by "
            "the job's `engine` section, and generate 8 tokens.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Say what would hang or fail here, and how to mend it: platform, packages, models, keys,
    resources."""
    job: RunConfig | None = load_config(config, {}, settings or ()) if config else None
    from memray_eval.execution.doctor import examine, examine_engine
    from memray_eval.execution.prepare import needs_of

    checks = examine(None if job is None else needs_of(job))
    if engine is not None:
        checks = chain(checks, examine_engine(engine, job.engine if job else EngineConfig()))
    failed = False
    for check in checks:
        show(
            f"[{check.state:>4}] {check.what}" + (f"\n       -> {check.mend}" if check.mend else "")
        )
        failed = failed or check.state == "fail"
    if failed:
        raise typer.Exit(3)


@dataset_app.command("validate")
def validate(
    path: Annotated[
        str,
        typer.Argument(
            help="A folder of samples, a .csv, .json, .jsonl or .parquet file.", show_default=False
        ),
    ],
    suite: Annotated[
        str, typer.Option(help="The suite that the samples are for; your own as FILE.py:NAME.")
    ] = "memory",
    mapped: MapOption = None,
) -> None:
    """Check every sample of a dataset; print each problem with its file, sample and field. Exit
    code 2 if there is any."""
    from memray_eval.benchmarks.own import find_suite
    from memray_eval.config.sections import ColumnSource
    from memray_eval.datasets.reading import SampleReader
    from memray_eval.datasets.scan import scan
    from memray_eval.execution.run_plan import ReadSpec

    given = {
        key.removeprefix("columns."): ColumnSource({"from": column})
        for key, column in column_overrides(mapped).items()
    }
    found_suite = find_suite(suite).load()
    reader = SampleReader(suite=found_suite.name, adapt=found_suite.adapt, files=found_suite.files)
    read = ReadSpec(dataset=path, reader=reader, columns=given, batch_size=1).with_columns(say)
    found = scan(path, read.reader, on_problem=print)
    if found.n_invalid or not found.n_samples:
        show(f"{path}: {found.n_samples} valid samples, {found.n_invalid} invalid")
        raise typer.Exit(2)
    show(f"{path}: {found.n_samples} valid samples")


@list_app.command("metrics")
def list_metrics(
    name: Annotated[
        str | None,
        typer.Argument(help="A metric, to read its rubric and formulas.", show_default=False),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="A file with metrics of your own, listed too.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a table in Markdown.")
    ] = False,
) -> None:
    """What every metric measures, its scale, its judge, and what the estimate of its rules is
    worth; or all of one metric."""
    from memray_eval.metrics import all_metrics
    from memray_eval.metrics.catalogue import list_lines, markdown_table, page_lines
    from memray_eval.metrics.own import find_own_metrics, load_own_metric

    _, brought = find_own_metrics((), include or ())
    known = {one.name: one for one in map(load_own_metric, brought)} | all_metrics()
    if name is None:
        metrics = known.values()
        show(markdown_table(metrics).rstrip() if as_markdown else "\n".join(list_lines(metrics)))
    elif name in known:
        show("\n".join(page_lines(known[name])))
    else:
        near = ", ".join(get_close_matches(name, known)) or ", ".join(known)
        raise ConfigError(f"no metric {name!r}; did you mean: {near}")


@list_app.command("suites")
def list_suites() -> None:
    """Every suite, with the metrics that it computes unless told otherwise."""
    from memray_eval.benchmarks import all_suites

    for suite in all_suites().values():
        show(f"{suite.name:<16} {suite.description}\n{'':<16} metrics: {', '.join(suite.metrics)}")


@list_app.command("judges")
def list_judges(
    models: Annotated[
        str | None, typer.Option(help="A judge table of your own instead of the package's.")
    ] = None,
) -> None:
    """Every judge model of the table: its price per million tokens, its metrics, and whether its
    key is set."""
    from memray_eval.judges.router import KEYS, load_table
    from memray_eval.metric import JudgedMetric
    from memray_eval.metrics import all_metrics

    table, keys = load_table(models), keys_set()
    show(
        "US dollars per million tokens in and out, with the date of the price, and a beginner's "
        "limits per minute"
    )
    judges = {name: entry for name, entry in table.models.items() if entry.kind == "judge"}
    for name, entry in judges.items():
        preferred = [
            m.name
            for m in all_metrics().values()
            if isinstance(m, JudgedMetric) and m.preferred_judge == name
        ]
        variable = next(
            (key for provider, key in KEYS.items() if name.startswith(f"{provider}/")), ""
        )
        state = "key set" if keys.get(variable) else "no key"
        limits = ", ".join(
            f"{lane.removesuffix('_per_min')} {limit:,.0f}" for lane, limit in entry.limits if limit
        )
        price = entry.price_on(date.today())
        cost = f"{price.input_usd:>6g} {price.output_usd:>6g}" if price else f"{'unknown':>13}"
        show(f"{name:<30} {cost}  {entry.price_date:<10}  {state:<8} {limits}".rstrip())
        for most, more in price.above if price else ():
            told = f"{more.input_usd:>6g} {more.output_usd:>6g}" if more else f"{'unknown':>13}"
            show(f"{'':<30} {told}  for prompts above {most:,} tokens")
        for band in entry.bands:
            if band.since is not None and band.since > date.today() and band.input_usd is not None:
                told = f"{band.input_usd:>6g} {band.output_usd:>6g}"
                show(f"{'':<30} {told}  from {band.since} on")
        if entry.retires is not None or entry.successor is not None:
            day = f"off from {entry.retires} on" if entry.retires else "no day of its end is known"
            show(f"{'':<30} {day}; successor: {entry.successor or 'unknown'}")
        if preferred:
            show(f"{'':<30} preferred for {', '.join(preferred)}")
    show(
        "rules: the offline estimates, no model; embedded: a small local model on a server of the "
        "run's own"
    )


CacheOption = Annotated[
    str | None,
    typer.Option("--cache", help="Another file than this machine's, as in judging.cache."),
]


@cache_app.command("stats")
def cache_stats(cache: CacheOption = None, as_json: JsonOption = False) -> None:
    """How many judge calls are kept, of which judges, and what they had cost."""
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


@cache_app.command("clear")
def cache_clear(
    cache: CacheOption = None,
    older_than_days: Annotated[
        float | None, typer.Option(min=0, help="Only calls made longer ago.")
    ] = None,
) -> None:
    """Forget the judge calls that are kept: they will be paid again."""
    from memray_eval.judges.call_cache import CallCache, discard

    path = _find_calls_file(cache)
    try:
        deleted = CallCache(path).clear(
            None if older_than_days is None else older_than_days * 86400.0
        )
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
