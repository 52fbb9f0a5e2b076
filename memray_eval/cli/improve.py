"""The command that makes a judge learn from labels: improve."""

from __future__ import annotations

from pathlib import Path

from memray_eval.cli.app import LOOK, app, show
from memray_eval.cli.calibrate import LABELLED, LabelOptions
from memray_eval.cli.options import argument, option, takes
from memray_eval.config.sections import read_rubric
from memray_eval.errors import ConfigError
from memray_eval.storage.scratch import ScratchFolder


@app.command(rich_help_panel=LOOK)
@takes(
    "metric labels judge rubric proposer examples columns preset human_scale label "
    "answers_separator skip_unlabelled limit encoding seed save no_cache budget_usd yes settings "
    "as_json"
)
def improve(
    options: LabelOptions,
    metric: str = argument("Judged metric that people scored."),
    labels: Path = option(LABELLED, default=...),
    judge: str = option(
        "Judge to improve: embedded, PROVIDER/MODEL or FILE.py:FUNCTION.", default=...
    ),
    rubric: Path | None = option("Test your own revised rubric: a text file."),
    proposer: str | None = option("Have this model revise the rubric by the disagreements."),
    examples: int = option("Add N labelled responses to the rubric.", default=0, min=0),
    seed: int = option("Seed of the split into halves.", default=0, min=0),
    save: Path | None = option(
        "Write the rubric to this folder if its gain is shown, as METRIC.vN-DIGEST.md."
    ),
) -> None:
    """Improve a judge by labels: where it disagrees with people, and what a revised rubric gains.

    Half of the labels are held back. Disagreements on the others are grouped by cause; a rubric of
    yours, of a model's, or with examples is tested on the held-back half. It is written with --save
    only, and only if a gain is shown. memray_eval/report/CALIBRATION.md has examples.
    """
    from memray_eval.api.calibrating import find_metric
    from memray_eval.cli.improving import Trial, improve_judge, result_lines, save_rubric
    from memray_eval.metric import RULES, JudgedMetric

    if rubric is not None and proposer is not None:
        raise ConfigError("--rubric has your revision and --proposer asks for one: choose one")
    if save is not None and save.exists() and not save.is_dir():
        raise ConfigError(f"--save {save}: this is a file; name a folder")
    mine = "" if rubric is None else read_rubric(rubric)
    file = options.read(labels, metric)
    measured = find_metric(file.named)
    if not isinstance(measured, JudgedMetric) or measured.prompt_with is None:
        raise ConfigError(f"{file.metric} has no rubric that can be changed: see list metrics")
    if judge == RULES or file.scores_of:
        raise ConfigError("rules, and scores that exist, go by no rubric: name a model to ask")
    with ScratchFolder("improve") as folder:
        trial = Trial(options, file, measured, judge, Path(folder))
        done = improve_judge(trial, mine, proposer or "", examples, seed)
    if save is not None and done.is_shown:
        done = done.model_copy(update={"saved": str(save_rubric(done, save))})
    show(done.model_dump_json(indent=2) if options.as_json else "\n".join(result_lines(done)))
