"""The command that compares runs: compare."""

from pathlib import Path

import typer

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.options import JobOptions, argument, flag, option, split_names
from memray_eval.errors import ConfigError

INCONCLUSIVE = 5  # the exit code
FLIPS_IN_HTML = 20  # units a metric


@app.command(
    rich_help_panel=LOOK, epilog="Example: memray-eval compare latest~1 latest --html compare.html"
)
def compare(
    runs: list[str] = argument(
        "Run folders (or latest, latest~1); the first is the baseline. RUN:CANDIDATE picks one of "
        "several candidates."
    ),
    metrics: str | None = JobOptions.metrics,
    cluster: str | None = option(
        "Field that clusters answers for standard errors: a key of the samples' metadata, "
        "scenario, task, ...; `none` treats answers as independent.  [default: the user or context "
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
        "List N changed answers per metric, such as those that went from 0 to 1, with how question "
        "and answers begin.  [default: 0; 20 with whole texts in --html]",
        min=0,
        show_default=False,
    ),
    fail_if: list[str] | None = option(
        "Exit with code 1 if this holds of a difference from the baseline, and with 5 if the data "
        'do not tell: "empathy drops" (it is shown to), "empathy.high < 0" and "empathy.low < '
        '-0.3" (ends of its interval). "empathy < -0.1" is that of the end that makes sure of it. '
        "Repeatable."
    ),
    policy: Path | None = option(
        "Gates from a YAML file: metric, margin, tier (must or may), least_n, and whether a judge "
        "that was not calibrated gates.",
        show_default=False,
    ),
    allow_uncalibrated: bool = flag(
        "Let a judge gate that was not calibrated on this rubric's version.",
        None,
        "--allow-uncalibrated",
    ),
    aa: bool = flag(
        "Take the runs as two of one candidate: how often a gate fails by chance, and which margin "
        "this number of answers supports.",
        None,
        "--aa",
    ),
    html: str | None = option("Also write the comparison to this file as one HTML page."),
    md: str | None = option(
        "Also write it to this file as Markdown: the head, the tables, the three worst answers."
    ),
    junit: str | None = option("Also write the gates to this file as JUnit XML."),
    as_json: bool = JobOptions.as_json,
) -> None:
    """Compare candidates on the units that they share: differences, intervals, tests, flips, and
    warnings about what makes them hard to compare. Exit code 1 if a gate fails, 5 if one is
    INCONCLUSIVE and none fails."""
    from memray_eval.analysis import open_runs
    from memray_eval.analysis.calibration import read_calibrated
    from memray_eval.analysis.comparing import measure_noise, worst_answers
    from memray_eval.analysis.thresholds import find_unfit, gates_of, judge_gates, parse_gate
    from memray_eval.config.problems import read_policy
    from memray_eval.report.comparison_console import WORST, render, to_junit, to_markdown
    from memray_eval.report.html.comparison import render_comparison
    from memray_eval.report.html.page import write_page

    rules = read_policy(policy) if policy is not None else None
    gates = [*map(parse_gate, fail_if or ()), *(gates_of(rules) if rules is not None else ())]
    if junit is not None and not gates:
        raise ConfigError("--junit writes gates: name them with --fail-if or --policy")
    if aa and len(runs) != 2:
        raise ConfigError("--aa takes two runs of one candidate: memray-eval compare --aa A B")
    opened = open_runs.pick_candidates(runs)
    listed = flips if flips is not None else FLIPS_IN_HTML if html else 0
    names = list(dict.fromkeys(split_names(metrics)))
    comparison, sides = open_runs.compare_runs(opened, names, cluster, by, bootstrap, listed)
    unfit: dict[tuple[str, str], str] = {}
    if not (allow_uncalibrated or (rules is not None and rules.allow_uncalibrated)):
        files = [policy.parent / name for name in rules.calibrations] if policy and rules else []
        calibrated = {key for file in files for key in read_calibrated(file)}
        unfit = dict(find_unfit(sides, [gate.metric for gate in gates], calibrated))
    results = judge_gates(comparison, gates, unfit)
    failed = [of.text for of in results if (of.tier, of.outcome) == ("must", "FAIL")]
    update = {
        "gates": tuple(results),
        "failed_gates": tuple(failed),
        "noise": tuple(measure_noise(sides[0], sides[1], comparison)) if aa else (),
    }
    comparison = comparison.model_copy(update=update)
    changed = [flip for row in comparison.metrics for flip in row.flips]
    texts = open_runs.read_flipped(changed, opened)
    text = render(comparison, texts if flips else None, by is not None)
    show(comparison.model_dump_json(indent=2) if as_json else text, end="\n" if as_json else "")
    if html is not None:
        write_page(render_comparison(comparison, texts), html, "--html")
    if md is not None:
        worst = {
            of.name: worst_answers(sides[0], of, row.metric, WORST)
            for of in sides[1:]
            for row in comparison.rows_of(of.name)[:1]
        }
        lowest = open_runs.read_flipped([flip for of in worst.values() for flip in of], opened)
        write_page(to_markdown(comparison, worst, lowest), md, "--md")
    if junit is not None:
        write_page(to_junit(comparison), junit, "--junit")
    for path in filter(None, (html, md, junit)):
        say(path)
    for result in results:
        say(str(result))
    if failed:
        raise typer.Exit(1)
    if any((of.tier, of.outcome) == ("must", "INCONCLUSIVE") for of in results):
        raise typer.Exit(INCONCLUSIVE)
