"""The command that compares runs by pairs of their answers: pairwise."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memray_eval.cli.app import (
    JUDGING,
    LOOK,
    MONEY,
    WHAT,
    BudgetOption,
    JsonOption,
    NoCacheOption,
    OutOption,
    RunIdOption,
    SetOption,
    YesOption,
    app,
    say,
    show,
)
from memray_eval.cli.run import exit_if_failed
from memray_eval.config.loading import load_config
from memray_eval.config.sections import names_a_text_file
from memray_eval.errors import ConfigError

if TYPE_CHECKING:
    from memray_eval.execution.estimate import Estimate
    from memray_eval.execution.prepare.pairwise import PairwiseResult

PREFERENCE = "preference"
_NAMED = re.compile(r"([A-Za-z_][\w-]{0,63})=(.*)", re.DOTALL)
_WORDS_IN_NAME = 4


@app.command(rich_help_panel=LOOK)
def pairwise(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders (or latest, latest~1); RUN:CANDIDATE picks one of several, RUN alone "
            "takes all.",
            show_default=False,
        ),
    ],
    judge: Annotated[
        str | None,
        typer.Option(
            help="Who compares: embedded, PROVIDER/MODEL, or FILE.py:FUNCTION; several with commas "
            "vote.  [default: auto]",
            show_default=False,
            rich_help_panel=JUDGING,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="preference, or what to compare by in your own words: a text, NAME=TEXT, or a .md "
            "or .txt file; may be given again.  [default: preference]",
            show_default=False,
            rich_help_panel=JUDGING,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A job's YAML to take judging and cluster settings from.", rich_help_panel=JUDGING
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="N questions: the same each time, and part of a larger N's.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    judges_all: Annotated[
        bool,
        typer.Option(
            "--all-pairs",
            help="Judge all pairs of more than four candidates, not Swiss rounds of at most half "
            "of them.",
            rich_help_panel=MONEY,
        ),
    ] = False,
    no_cache: NoCacheOption = False,
    budget_usd: BudgetOption = None,
    yes: YesOption = False,
    out: OutOption = None,
    run_id: RunIdOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare candidates by pairs of their answers to the same questions: win rates, strengths,
    ranks, and how far the judge's verdicts hang on order and length.

    A judge sees each pair twice, once in each order, without names; where the two verdicts
    disagree, the pair is a tie. It is a run of its own, with its limits, budget, kept calls and
    resume."""
    from memray_eval.execution.prepare.pairwise import run_pairwise

    judges = [name.strip() for name in (judge or "").split(",") if name.strip()]
    if "rules" in judges:
        raise ConfigError("a preference has no estimate by rules; name a model with --judge")
    overrides: dict[str, Any] = {
        "dataset": "pairs",  # written once the answers are read
        "candidates": [{"name": PREFERENCE, "model": PREFERENCE, "backend": "given"}],
        "suite": "pairs",
        "metrics": [to_criterion(text) for text in metric or (PREFERENCE,)],
        "judge": judges if len(judges) > 1 else judge,
        "judging.cache": "off" if no_cache else None,
        "budget.usd": budget_usd,
        "limit": limit,
        "out": out,
    }
    job = load_config(config, overrides, settings or ())

    def agree(made: Estimate) -> bool:
        from memray_eval.execution.estimate_text import estimate_lines

        if yes or not sys.stdin.isatty():
            return yes
        say("\n".join(estimate_lines(made)))
        return typer.confirm("Spend this without a budget?", err=True)

    done = run_pairwise(
        runs, job, say, judges_all=judges_all, run_id=run_id, quiet=as_json, agree=agree
    )
    show_pairs(done, as_json)


def show_pairs(done: PairwiseResult, as_json: bool) -> None:
    """Prints the figures, and exits as the run calls for."""
    from memray_eval.report.pairs_console import render_pairs

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
