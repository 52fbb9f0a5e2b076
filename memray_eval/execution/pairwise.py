"""Pairwise runs: ordinary runs over rows that are pairs of answers, each in both orders; or a run
for each Swiss round, with the pairs that the verdicts before it call for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from memray_eval.analysis.pairs.answers import (
    Answers,
    name_sides,
    open_pair_sides,
    pair_rows,
    questions_of,
    read_answers,
    sample_of,
)
from memray_eval.analysis.pairs.figures import draw_strengths
from memray_eval.analysis.pairs.models import PairwiseReport
from memray_eval.analysis.pairs.report import report_pairs
from memray_eval.analysis.pairs.swiss import Two, all_pairs, pair_round, rounds_for
from memray_eval.analysis.pairs.verdicts import read_meetings, read_verdicts
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import PairsConfig, RubricMetric
from memray_eval.datasets.own_rows import write_rows
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.prepare.stored_config import (
    apply_resume_settings,
    check_same_run,
    read_config,
)
from memray_eval.execution.runs import check_run_id, resume, run
from memray_eval.execution.session import RunResult
from memray_eval.metrics import all_metrics
from memray_eval.metrics._shared.pairs import FIRST
from memray_eval.ports import FloatArray
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder, new_run_id
from memray_eval.types import EXISTING, PAIRS, Candidate, Record

Say = Callable[[str], None]
Agree = Callable[[Estimate], bool]


class PairwiseResult(NamedTuple):
    """The last run of a pairwise run, and the figures of all its rounds so far."""

    run: RunResult
    report: PairwiseReport


class _Rounds(NamedTuple):
    """The state of a pairwise run's rounds: its settings and name, and who is told and asked."""

    job: RunConfig
    name: str
    pairs: PairsConfig
    limit: int | None
    say: Say
    quiet: bool
    agree: Agree

    @property
    def number(self) -> int:
        """The round that is played, from 1."""
        return len(self.pairs.earlier) + 1

    @property
    def folder(self) -> RunFolder:
        """The folder of that round."""
        name = self.name if self.pairs.rounds == 1 else f"{self.name}-round{self.number}"
        return RunFolder(f"{self.job.out.rstrip('/')}/{name}")


def run_pairwise(
    runs: Sequence[str],
    job: RunConfig,
    say: Say,
    *,
    judges_all: bool = False,
    run_id: str | None = None,
    quiet: bool = False,
    agree: Agree = lambda _: True,
) -> PairwiseResult:
    """Compares the answers of runs (RUN, or RUN:CANDIDATE) pair by pair, by a job's judge and
    metrics; `job.limit` counts questions. Of more than four candidates it plays Swiss rounds unless
    it `judges_all`. A begun run of that `run_id` goes on. Raises what `run` raises, ConfigError for
    a metric that compares nothing, and DataError if the runs share no question."""
    for name in job.metrics:
        metric = all_metrics().get(name) if isinstance(name, str) else None
        scores_one = isinstance(name, RubricMetric) and not name.compares
        if scores_one or (metric is not None and FIRST not in metric.parts):
            shown = name.name if isinstance(name, RubricMetric) else name
            raise ConfigError(
                f"{shown} scores one answer and compares no two; take preference, or a rubric of "
                "your own: --metric warmth.md"
            )
    opened = open_pair_sides(name_sides(runs))
    rounds = 1 if judges_all else rounds_for(len(opened))
    if run_id is None:
        run_id = new_run_id(PAIRS, "-".join(side.candidate for side, _ in opened))
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
    folders = [answers.folder.path for _, answers in opened]
    folders = [path if "://" in path else os.path.abspath(path) for path in folders]
    sides = zip(folders, opened, strict=True)
    runs = [f"{path}:{answers.candidate}" for path, (_, answers) in sides]
    pairs = PairsConfig(runs=tuple(runs), rounds=rounds)
    plays = _Rounds(
        job.model_copy(update=settings), check_run_id(run_id), pairs, job.limit, say, quiet, agree
    )
    return _play(plays, None)


def resume_pairwise(
    path: str, say: Say, *, quiet: bool = False, settings: Sequence[str] = ()
) -> PairwiseResult:
    """Goes on with a pairwise run, and then with the rounds after it. Raises what `resume` raises,
    and DataError if the run is of another kind."""
    folder = RunFolder(path)
    folder.read_manifest()
    config = read_config(folder)
    if config.pairs is None:
        raise DataError(f"{folder.path} is no pairwise run")
    pairs, config = config.pairs, apply_resume_settings(config, settings)
    done = resume(path, say, quiet, settings)
    name = folder.run_id.removesuffix(f"-round{len(pairs.earlier) + 1}")
    where = folder.path.rpartition("/")[0] or "."
    job = config.model_copy(update={"out": where})
    return _play(_Rounds(job, name, pairs, None, say, quiet, lambda _: True), done)


def _play(plays: _Rounds, done: RunResult | None) -> PairwiseResult:
    """Plays the rounds after `done`, and keeps their figures in the folder of the last."""
    answers: list[Answers] | None = None
    while True:
        if done is None:
            answers = answers or read_answers(plays.pairs.runs)
            done = _play_round(plays, answers)
        pairs, is_last = plays.pairs, plays.number == plays.pairs.rounds
        played = [*map(RunFolder, pairs.earlier), done.folder]
        sides = [side for side, _ in open_pair_sides(pairs.runs)]
        report = report_pairs(played, sides, pairs.rounds)
        figures = json.loads(report.model_dump_json())  # NaN is null in it
        done.folder.write_json(FIGURES_OF_PAIRS, figures, indent=2)
        budget = plays.job.budget
        if budget.usd is not None:
            spent = float(done.folder.read_spending().get("usd", 0.0))
            budget = budget.model_copy(update={"usd": max(0.0, budget.usd - spent)})
        if is_last or done.stopped or budget.usd == 0:
            if not is_last:
                plays.say(
                    f"Round {plays.number} of {pairs.rounds} is the last that was played; "
                    f"`memray-eval resume {done.folder.path}` goes on with the others."
                )
            return PairwiseResult(done, report)
        earlier = (*pairs.earlier, done.folder.path)
        plays = plays._replace(
            job=plays.job.model_copy(update={"budget": budget}),
            pairs=pairs.model_copy(update={"earlier": earlier}),
        )
        done = None


def _play_round(plays: _Rounds, answers: Sequence[Answers]) -> RunResult:
    """Judges the pairs of one round, or goes on with it where it has begun."""
    folder = plays.folder
    if folder.has_manifest():
        before = read_config(folder)
        check_same_run(before, plays.job.model_copy(update={"dataset": before.dataset}))
        if before.pairs is None or before.pairs.runs != plays.pairs.runs:
            raise ConfigError(f"{folder.path} compares other runs; give another --run-id")
        return resume(folder.path, plays.say, plays.quiet)
    if plays.pairs.earlier:
        plays.say(f"Round {plays.number} of {plays.pairs.rounds}.")
    else:
        n_pairs = "all pairs" if plays.pairs.rounds == 1 else f"{plays.pairs.rounds} Swiss rounds"
        names = ", ".join(answer.side.name for answer in answers)
        plays.say(f"Comparing {names}: {n_pairs}, both orders.")
    chosen = _choose_pairs(plays, answers)
    dataset = write_rows(pair_rows(answers, chosen), plays.job.out)
    job = plays.job.model_copy(update={"dataset": dataset, "pairs": plays.pairs})
    return run(job, plays.say, plays.quiet, agree=plays.agree, run_id=folder.run_id)


def _choose_pairs(plays: _Rounds, answers: Sequence[Answers]) -> list[tuple[str, Two]]:
    """The pairs of a round, by question. Further rounds keep to the questions of the first, and
    pair by the first metric's verdicts."""
    questions = questions_of(answers, plays.limit)
    if plays.pairs.rounds == 1:
        return [(key, two) for key, present in questions for two in all_pairs(present)]
    names = [answer.side.name for answer in answers]
    earlier = [RunFolder(path) for path in plays.pairs.earlier]
    met = read_meetings(_records(earlier), names)
    samples = {key: sample_of(key, answers) for key, _ in questions}
    strengths: FloatArray | None = None
    if earlier:
        questions = [
            (key, present)
            for key, present in questions
            if (samples[key].id, samples[key].task) in met
        ]
        for pairs in read_verdicts(_records(earlier), names)[:1]:
            if pairs.points.size:
                _, strengths = draw_strengths(pairs, len(names))
    before = [met.get((samples[key].id, samples[key].task), {}) for key, _ in questions]
    rounds = pair_round([present for _, present in questions], before, strengths, plays.number)
    return [(key, two) for (key, _), twos in zip(questions, rounds, strict=True) for two in twos]


def _records(folders: Sequence[RunFolder]) -> Iterator[Record]:
    return chain.from_iterable(folder.each() for folder in folders)
