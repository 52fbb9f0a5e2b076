"""The answers that a pairwise run compares, out of the runs that gave them, as rows of pairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from memray_eval.analysis.comparing.open_runs import ComparedRun, open_sides, pick_candidates
from memray_eval.analysis.pairs.figures import PairSide
from memray_eval.analysis.scores import candidates_of
from memray_eval.errors import ConfigError, DataError, cut
from memray_eval.results.lookup import find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import PAIR, Pair, Record, Response, Sample, Unanswered

MOST_SIDES = 26
_LONGEST_WHY = 200  # characters of an answer's error


@dataclass(frozen=True)
class Answers:
    """One candidate's answers, by the key of their question, which is the same for all sides.
    `excludes` says that its run leaves empty ones out."""

    side: PairSide
    model: str
    records: Mapping[str, Record]
    excludes: bool = False


def name_sides(runs: Sequence[str]) -> list[str]:
    """The runs as RUN or RUN:CANDIDATE, all candidates of a run. Raises ConfigError for fewer than
    two candidates or too many, and DataError for a folder without records."""
    named: list[str] = []
    for run in runs:
        folder = RunFolder(find_run(run))
        if not folder.has_manifest():  # RUN:CANDIDATE, or no run: `read_answers` says so
            named.append(run)
            continue
        with readable(folder.path):
            candidates = candidates_of(folder.records())
        named += (
            [f"{run}:{candidate}" for candidate in candidates] if len(candidates) > 1 else [run]
        )
    named = list(dict.fromkeys(named))
    if not 2 <= len(named) <= MOST_SIDES:
        raise ConfigError(
            f"pairwise compares 2 to {MOST_SIDES} candidates, and these are {len(named)}: "
            "memray-eval pairwise RUN_A RUN_B [RUN_C...]"
        )
    return named


def open_pair_sides(runs: Sequence[str]) -> list[tuple[PairSide, ComparedRun]]:
    """A pairwise run's sides, named by candidate if that suffices. Raises as `pick_candidates`."""
    opened = pick_candidates(runs)
    counts = Counter(run.candidate for run in opened)
    return [
        (
            PairSide(
                name=run.candidate if counts[run.candidate] == 1 else run.name,
                run=run.folder.run_id,
                candidate=run.candidate,
            ),
            run,
        )
        for run in opened
    ]


def read_answers(runs: Sequence[str], excludes: bool = False) -> list[Answers]:
    """The answers of every side; `excludes` leaves empty ones out of every run. Questions of runs
    that read other samples are matched by what they ask, as `compare` does. Raises DataError where
    no question is in two of them."""
    sides = open_pair_sides(runs)
    keyed = open_sides([run for _, run in sides], cluster=None)
    answers = []
    for (side, run), scored_side in zip(sides, keyed, strict=True):
        units = scored_side.scores.units.select(["key", "sample_id", "task"]).to_pylist()
        keys = {(unit["sample_id"], unit["task"]): unit["key"] for unit in units}
        records: dict[str, Record] = {}
        with readable(run.folder.path):
            for record in run.folder.each():
                if record.candidate.name == run.candidate and record.epoch == 1:
                    key = keys.get((record.sample.id, record.sample.task))
                    if key is not None:
                        records.setdefault(key, record)
        model = next((record.candidate.model for record in records.values()), side.candidate)
        settings = run.folder.read_config() if run.folder.has_file("run.yaml") else {}
        excludes_own = excludes or settings.get("on_no_answer") == "exclude"
        answers.append(Answers(side, model, records, excludes_own))
    if not any(present for _, present in questions_of(answers)):
        raise DataError("no question is in two of the runs: no sample id with the same task")
    return answers


def questions_of(
    answers: Sequence[Answers], limit: int | None = None
) -> list[tuple[str, list[int]]]:
    """The questions that two sides or more were asked, and which sides by number. With a `limit`
    so many, always the same ones and part of a larger limit's."""
    sides_of: dict[str, list[int]] = {}
    for number, side in enumerate(answers):
        for key in side.records:
            sides_of.setdefault(key, []).append(number)
    questions = [(key, present) for key, present in sides_of.items() if len(present) > 1]
    if limit is None or limit >= len(questions):
        return questions
    drawn = sorted(
        questions,
        key=lambda question: hashlib.blake2b(question[0].encode("utf-8", "replace")).digest(),
    )
    kept = {key for key, _ in drawn[:limit]}
    return [question for question in questions if question[0] in kept]


def pair_rows(
    answers: Sequence[Answers], questions: Iterable[tuple[str, Sequence[int]]]
) -> Iterator[dict[str, Any]]:
    """A row of a dataset for each order of every two answers to a question, as `evaluate` takes
    rows. A question is that of the first side that was asked it: others may call it otherwise."""
    for key, present in questions:
        sample = answers[present[0]].records[key].sample
        for i, j in combinations(present, 2):
            yield _row(sample, answers[i], answers[j], key)
            yield _row(sample, answers[j], answers[i], key)


def _row(sample: Sample, first: Answers, second: Answers, key: str) -> dict[str, Any]:
    shown, other = first.records[key], second.records[key]
    unanswered = []
    for side, record in ((first, shown), (second, other)):
        response, candidate = record.response or Response(error="no response"), side.side.name
        if response.error is not None:
            why = cut(response.error, _LONGEST_WHY)
            unanswered.append(Unanswered(candidate=candidate, kind="error", why=why))
        elif response.is_empty:
            kind: Literal["excluded", "empty"] = "excluded" if side.excludes else "empty"
            unanswered.append(Unanswered(candidate=candidate, kind=kind))
    pair = Pair(
        sample_id=sample.id,
        task=sample.task,
        first=first.side.name,
        second=second.side.name,
        other=(other.response or Response()).text,
        unanswered=tuple(unanswered),
    )
    question = " | ".join(filter(None, (sample.id, sample.task)))  # both make a unit
    fields = sample.model_dump(mode="json", exclude={"id", "suite", "context", "metadata"})
    return {
        **{name: value for name, value in fields.items() if value},
        "id": f"{question} | {first.side.name} : {second.side.name}",
        "response": (shown.response or Response()).text,
        "candidate": first.side.name,
        "model": first.model,
        "metadata": {**sample.metadata, PAIR: pair.model_dump(mode="json")},
    }
