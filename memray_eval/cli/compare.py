"""The command that compares runs: compare."""

from __future__ import annotations

import typer

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import JobOptions, argument, flag, option, split_names

FLIPS_IN_HTML = 20  # units a metric


@app.command(rich_help_panel=LOOK)
def compare(
    runs: list[str] = argument(
        "Run folders (or latest, latest~1); the first is the baseline. RUN:CANDIDATE picks one of "
        "several candidates."
    ),
    metrics: str | None = JobOptions.metrics,
    cluster: str | None = option(
        "Field that clusters units for standard errors: a key of the samples' metadata, "
        "scenario, task, ...; `none` treats units as independent.  [default: the user or context "
        "that samples name]",
        show_default=False,
    ),
    by: str | None = option(
        "Also split the differences by this field: task, scenario, language, prompt_type, or a key "
        "of the samples' metadata; `none` for no split.  [default: the first of these that varies]",
        show_default=False,
    ),
    bootstrap: bool = flag("Use bootstrap intervals instead of Student's t.", None, "--bootstrap"),
    flips: int | None = option(
        "List N changed units per metric, such as those that went from 0 to 1.  [default: 0; 20 "
        "with both texts in --html]",
        min=0,
        show_default=False,
    ),
    fail_if: list[str] | None = option(
        'Exit with code 1 if this holds of a difference from the baseline: --fail-if "empathy < '
        '-0.1". Repeatable.'
    ),
    html: str | None = option("Also write the comparison to this file as one HTML page."),
    as_json: bool = JobOptions.as_json,
) -> None:
    """Compare candidates on the units that they share: differences, intervals, tests, flips, and
    warnings about what makes them hard to compare. Exit code 1 if a --fail-if holds."""
    from memray_eval.analysis.comparing import open_runs
    from memray_eval.analysis.comparing.thresholds import failures, parse_gate
    from memray_eval.report.comparison_console import render

    gates = [parse_gate(text) for text in fail_if or ()]
    opened = open_runs.pick_candidates(runs)
    listed = flips if flips is not None else FLIPS_IN_HTML if html else 0
    names = list(dict.fromkeys(split_names(metrics)))
    comparison, _ = open_runs.compare_runs(opened, names, cluster, by, bootstrap, listed)
    failed_gates = tuple(failures(comparison, gates))
    comparison = comparison.model_copy(update={"failed_gates": failed_gates})
    text = render(comparison, flips or 0, is_split=by is not None)
    show(comparison.model_dump_json(indent=2) if as_json else text, end="\n" if as_json else "")
    if html is not None:
        from memray_eval.report.html.comparison import write_comparison

        write_comparison(comparison, open_runs.read_changed_units(comparison, opened), html)
        say(html)
    for failed in failed_gates:
        say(f"failed: {failed}")
    if failed_gates:
        raise typer.Exit(1)
