"""Pairwise runs: ordinary runs over rows that are pairs of answers, each in both orders."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from memray_eval.analysis.open_runs import open_pair_sides, pair_rows, questions_of, read_answers
from memray_eval.analysis.pairs import PairwiseReport, report_pairs
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import PairsConfig, RubricMetric
from memray_eval.datasets.reading import write_rows
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.prepare.origins import check_same_run, read_config
from memray_eval.execution.runs import check_run_id, resume, run
from memray_eval.execution.session import RunResult
from memray_eval.metrics import all_metrics
from memray_eval.metrics._evidence import FIRST
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder, new_run_id
from memray_eval.types import EXISTING, PAIRS, Candidate

Say = Callable[[str], None]


class PairwiseResult(NamedTuple):
    """A pairwise run and the figures of its pairs."""

    run: RunResult
    report: PairwiseReport


def run_pairwise(
    runs: Sequence[str],
    job: RunConfig,
    say: Say,
    *,
    run_id: str | None = None,
    quiet: bool = False,
    agree: Callable[[Estimate], bool] = lambda _: True,
) -> PairwiseResult:
    """Compares the answers of runs (RUN, or RUN:CANDIDATE), every two of them on each question, by
    a job's judge and metrics; `job.limit` counts questions. A begun run of that `run_id` goes on.
    Raises what `run` raises, ConfigError for a metric that compares nothing, and DataError if the
    runs share no question."""
    for name in job.metrics:
        metric = all_metrics().get(name) if isinstance(name, str) else None
        scores_one = isinstance(name, RubricMetric) and not name.compares
        if scores_one or (metric is not None and FIRST not in metric.parts):
            shown = name.name if isinstance(name, RubricMetric) else name
            raise ConfigError(
                f"{shown} scores one answer and compares no two; take preference, or a rubric of "
                "your own: --metric warmth.md"
            )
    opened = open_pair_sides(runs)
    if run_id is None:
        run_id = new_run_id(PAIRS, ["-".join(side.candidate for side, _ in opened)])
    settings: dict[str, Any] = {
        "suite": PAIRS,
        "candidates": (Candidate(name=EXISTING, model=EXISTING, backend=EXISTING),),
        # those of a job that judging settings are taken from, which read other rows
        "columns": {},
        "reader": None,
        "tasks": (),
        "ids": None,
        "templates": None,
        "errata": None,
        "limit": None,
    }
    # their places in full: `latest` is soon another run, and a resume may start elsewhere
    named = [(answers.folder.path, answers.candidate) for _, answers in opened]
    named = [(path if "://" in path else os.path.abspath(path), name) for path, name in named]
    pairs, limit = PairsConfig(runs=tuple(f"{path}:{name}" for path, name in named)), job.limit
    job = job.model_copy(update=settings)
    folder = RunFolder(f"{job.out.rstrip('/')}/{check_run_id(run_id)}")
    if folder.has_manifest():
        before = read_config(folder)
        check_same_run(before, job.model_copy(update={"dataset": before.dataset}))
        if before.pairs != pairs:
            raise ConfigError(f"{folder.path} compares other runs; give another --run-id")
        return _with_report(resume(folder.path, say, quiet), pairs)
    answers = read_answers(pairs.runs, excludes=job.on_no_answer == "exclude")
    say(f"Comparing {', '.join(side.side.name for side in answers)}: all pairs, both orders.")
    dataset = write_rows(pair_rows(answers, questions_of(answers, limit)), job.out)
    job = job.model_copy(update={"dataset": dataset, "pairs": pairs})
    return _with_report(run(job, say, quiet, agree=agree, run_id=run_id), pairs)


def resume_pairwise(
    path: str, say: Say, *, quiet: bool = False, settings: Sequence[str] = ()
) -> PairwiseResult:
    """Goes on with a pairwise run. Raises what `resume` raises, and DataError if the run is of
    another kind."""
    folder = RunFolder(path)
    folder.read_manifest()
    pairs = read_config(folder).pairs
    if pairs is None:
        raise DataError(f"{folder.path} is no pairwise run")
    return _with_report(resume(path, say, quiet, settings), pairs)


def _with_report(done: RunResult, pairs: PairsConfig) -> PairwiseResult:
    """A run with its figures, which are kept in its folder."""
    report = report_pairs(done.folder, [side for side, _ in open_pair_sides(pairs.runs)])
    figures = json.loads(report.model_dump_json())  # NaN is null in it
    done.folder.write_json(FIGURES_OF_PAIRS, figures, indent=2)
    return PairwiseResult(done, report)
