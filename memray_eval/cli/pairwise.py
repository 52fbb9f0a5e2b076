"""The command that compares runs by pairs of their answers: pairwise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memray_eval.cli.app import LOOK, app, prints_on_stderr, say, show
from memray_eval.cli.options import (
    BASE_CONFIG,
    JUDGING,
    WHAT,
    JobOptions,
    argument,
    option,
    split_names,
    takes,
)
from memray_eval.cli.run import confirm_cost, exit_if_failed
from memray_eval.config.sections import names_a_text_file
from memray_eval.errors import ConfigError

if TYPE_CHECKING:
    from memray_eval.execution.pairwise import PairwiseResult

PREFERENCE = "preference"
_NAMED = re.compile(r"([A-Za-z_][\w-]{0,63})=(.*)", re.DOTALL)
_WORDS_IN_NAME = 4


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
    """Prints the figures, and exits as the run calls for."""
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
