"""The runs that are compared: their folders, and a candidate of each."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.comparing import Compared, Flip, Side, compare, reads_other_samples
from memray_eval.analysis.pairs import PairSide, find_report
from memray_eval.analysis.scores import (
    MOST_GROUPS,
    candidates_of,
    find_cluster,
    first_of_each,
    other_splits,
    read_scores,
    read_units,
    unit_keys,
)
from memray_eval.analysis.statistics import CompareOptions
from memray_eval.analysis.where import LENGTH, common_rows, read_groups
from memray_eval.errors import ConfigError, DataError, cut
from memray_eval.metrics import all_metrics
from memray_eval.results.lookup import find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import (
    PAIR,
    SESSION,
    USER_MODEL,
    Pair,
    Record,
    Response,
    Sample,
    Unanswered,
    session_turn,
)
from memray_eval.types.samples import SAMPLE_JSON, SAMPLE_LISTS, SAMPLE_TEXT

# What a unit asks; a long context is not in the records
_ASKED = ("task", "query", "memory", "history")
_SAMPLE = (*SAMPLE_TEXT, *SAMPLE_JSON, *SAMPLE_LISTS)


class ComparedRun(NamedTuple):
    """One candidate of a run, under the name it has in the comparison."""

    name: str
    folder: RunFolder
    candidate: str

    def side(self, cluster: str | None, by: str | None = None) -> Side:
        with readable(self.folder.path):
            scores = read_scores(self.folder.records(), self.candidate, cluster, by)
        scales = {name: metric.scale for name, metric in all_metrics().items()}
        leads = ""
        with suppress(DataError):  # a run without a summary has only our metrics' scales
            summary = self.folder.read_summary()
            leads = summary.leads
            scales |= {row.metric: row.scale for row in summary.metrics}
        manifest = self.folder.read_manifest()
        return Side(self.name, self.candidate, manifest, scores, scales=scales, leads=leads)


def compare_runs(
    opened: Sequence[ComparedRun],
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
    bootstrap: bool = False,
    flips: int = 0,
) -> tuple[Compared, list[Side]]:
    """Compares runs, clustered and split by the fields named, else by those that the baseline's
    samples have; with the verdicts on their pairs."""
    baseline, more = opened[0], None
    with readable(baseline.folder.path):
        records = baseline.folder.records()
        if cluster is None:
            cluster = find_cluster(records)
        if by is None:
            more = read_groups(records)
            by = next((field for field in more.of if field != LENGTH), None)
        elif by != "none":
            _check_split(by, read_scores(records, baseline.candidate, by=by).units["group"])
    cluster, by = (None if field == "none" else field for field in (cluster, by))
    sides = open_sides(opened, cluster, by)
    comparison = compare(
        sides, metrics=metrics, cluster=cluster, by=by, more=more, flips=flips,
        settings=CompareOptions(bootstrap=bootstrap),
    )  # fmt: skip
    pairs = find_report([(run.folder, run.candidate) for run in opened])
    return comparison.model_copy(update={"pairs": pairs}), sides


def open_sides(
    opened: Sequence[ComparedRun], cluster: str | None, by: str | None = None
) -> list[Side]:
    """The sides of a comparison. Units of runs that read different samples are matched by what
    they ask, since ids may be no more than row numbers."""
    sides = [run.side(cluster, by) for run in opened]
    base, *others = sides
    samples = base.manifest.get("dataset") or {}
    for at, (side, run) in enumerate(zip(others, opened[1:], strict=True)):
        if reads_other_samples(samples, side.manifest.get("dataset") or {}):
            others[at] = match_units(base, opened[0].folder, side, run.folder)
    return [base, *others]


def _check_split(by: str, groups: pa.ChunkedArray) -> None:
    """Raises ConfigError for a field with too many groups, or that no unit names."""
    n_groups = len(groups.unique())
    if n_groups > MOST_GROUPS:
        raise ConfigError(
            f"--by {by}: {n_groups} groups, more than the {MOST_GROUPS} that it may be"
        )
    if n_groups == 1 and not groups[0].as_py():
        raise ConfigError(f"--by {by}: no answer names it; {other_splits(by)}")


def pick_candidates(runs: Sequence[str]) -> list[ComparedRun]:
    """Opens the runs and picks a candidate of each. Raises ConfigError for fewer than two, and for
    a candidate that is not there or not chosen; DataError for a folder that is not a run's."""
    if len(runs) < 2:
        raise ConfigError("compare takes two or more run folders: memray-eval compare A B [C...]")
    picked = []
    for run in runs:
        folder, candidate = _open_run(run)
        with readable(folder.path):
            candidates = candidates_of(folder.records())
        picked.append((folder, _choose_candidate(run, candidate, candidates), len(candidates) > 1))
    short = [f"{folder.run_id}:{candidate}" if is_one_of_several else folder.run_id
             for folder, candidate, is_one_of_several in picked]  # fmt: skip
    counts = Counter(short)
    named = [name if counts[name] == 1 else run for name, run in zip(short, runs, strict=True)]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        raise ConfigError(f"{twice[0]} is given twice; compare it with another run or candidate")
    return [
        ComparedRun(name, folder, candidate)
        for name, (folder, candidate, _) in zip(named, picked, strict=True)
    ]


def split_run(name: str) -> Iterator[tuple[str, str]]:
    """The ways to read RUN or RUN:CANDIDATE, of which either may hold colons: RUN alone first."""
    ends = (at for at in range(len(name) - 1, 0, -1) if name[at] == ":")
    for end in (len(name), *(at for at in ends if name[at + 1 : at + 3] != "//")):
        yield name[:end], name[end + 1 :]


def _open_run(run: str) -> tuple[RunFolder, str | None]:
    """Opens the folder of RUN or RUN:CANDIDATE and returns it with the candidate."""
    for path, candidate in split_run(run):
        folder = RunFolder(find_run(path))
        if folder.has_manifest():
            folder.read_manifest()
            return folder, candidate or None
    give = "give the folder of a run (results/<run_id>), or RUN:CANDIDATE"
    raise DataError(f"{run} has no manifest.json; {RunFolder(run).what_instead(give)}")


def _choose_candidate(run: str, wanted: str | None, candidates: Sequence[str]) -> str:
    names = ", ".join(candidates)
    if not candidates:
        raise DataError(f"{run} holds no records")
    if wanted is None:
        if len(candidates) > 1:
            raise ConfigError(
                f"{run} has several candidates: {names}; pick one with {run}:{candidates[0]}"
            )
        return candidates[0]
    if wanted not in candidates:
        raise ConfigError(f"{run}: no candidate {wanted!r}; there are: {names}")
    return wanted


def read_flipped(
    flips: Sequence[Flip], opened: Sequence[ComparedRun]
) -> dict[str, dict[tuple[str, str], list[Record]]]:
    """The records of these units, by side and then by sample id and task, one an epoch."""
    units = {
        (sample_id, flip.task)
        for flip in flips
        for sample_id in (flip.sample_id, flip.other_id or flip.sample_id)
    }
    if not units:
        return {}
    changed: dict[str, dict[tuple[str, str], list[Record]]] = {}
    for run in opened:
        with readable(run.folder.path):
            read = read_units(run.folder.records(), [run.candidate], units)
        changed[run.name] = {(sample_id, task): of for (_, sample_id, task), of in read.items()}
    return changed


def match_units(base: Side, base_run: RunFolder, other: Side, other_run: RunFolder) -> Side:
    """Gives the units of `other` the keys of the baseline's units that ask the same, if more units
    agree in that than in id and question. Otherwise units are matched by id, and those that ask
    something else under the same id have no partner."""
    asked_a, asked_b = _questions(base, base_run), _questions(other, other_run)
    rows_a, rows_b = common_rows(base.scores, other.scores)
    is_same = pc.equal(asked_a.take(rows_a), asked_b.take(rows_b)).to_numpy(zero_copy_only=False)
    places = pc.index_in(asked_b, value_set=_unique(asked_a))
    is_alone = pc.is_in(asked_b, value_set=_unique(asked_b))
    by_question = pc.and_(places.is_valid(), is_alone).to_numpy(zero_copy_only=False)
    if by_question.sum() > is_same.sum():
        first = pc.index_in(asked_b, value_set=asked_a)  # unique, so the first is the one
        keys = base.scores.units["key"].combine_chunks().take(first)
        matching = (
            f"{by_question.sum():,} answers to the same question are compared, whatever their ids"
        )
        return _with_keys(other, pc.if_else(by_question, keys, None), matching)
    if not is_same.any():
        matching = "no two questions are the same: they are compared by their ids"
        return replace(other, matching=matching)
    if is_same.all():
        is_like_baseline = _reads_same_samples(base, base_run, other, other_run)
        return replace(other, is_like_baseline=is_like_baseline)
    keep = np.ones(other.scores.units.num_rows, np.bool_)
    keep[rows_b[~is_same]] = False
    matching = (
        f"{(~is_same).sum():,} answers are to another question under the same id and are left out"
    )
    keys = other.scores.units["key"].combine_chunks()
    return _with_keys(other, pc.if_else(keep, keys, None), matching)


def _reads_same_samples(base: Side, base_run: RunFolder, other: Side, other_run: RunFolder) -> bool:
    """True if the units that both sides have are the same samples, of contexts of one length: other
    rows of one dataset, or other answers to it."""
    lengths = [(side.manifest.get("dataset") or {}).get("context_chars") for side in (base, other)]
    if None in lengths or lengths[0] != lengths[1]:
        return False
    rows = common_rows(base.scores, other.scores)
    sides = zip((base, other), (base_run, other_run), rows, strict=True)
    first, second = (_questions(side, run, _SAMPLE).take(of) for side, run, of in sides)
    return bool(first.equals(second))


def _questions(side: Side, run: RunFolder, columns: Sequence[str] = _ASKED) -> pa.Array:
    """What each unit of a side asks, in the order of its scores, as one text."""
    with readable(run.path):
        table = run.records().to_table(
            columns=list(dict.fromkeys(("sample_id", "task", "candidate", "metadata", *columns))),
            filter=pc.field("candidate") == side.candidate,
        )
    table = _without_own_answers(table)
    texts = {name: table[name] for name in columns}
    texts |= {of: pc.binary_join(texts[of], "\x1e") for of in columns if of in SAMPLE_LISTS}
    filled = (pc.fill_null(text, "") for text in texts.values())
    questions = pc.binary_join_element_wise(*filled, "\x1f")
    keys = unit_keys(table)
    kept = first_of_each(keys)
    rows = pc.index_in(side.scores.units["key"], value_set=keys.take(kept).combine_chunks())
    return questions.take(kept).combine_chunks().take(rows.combine_chunks())


def _without_own_answers(table: pa.Table) -> pa.Table:
    """The units, with histories of the turns of sessions that leave out the candidate's own answers
    and what a simulated user made of them: such a turn is asked by its number and the opening."""
    is_later = pc.fill_null(pc.match_substring(table["metadata"], f'"{SESSION}"'), False)
    rows = np.flatnonzero(is_later.to_numpy())
    texts = {name: table[name].to_pylist() for name in ("query", "history") if rows.size}
    for row in rows:
        notes = json.loads(table["metadata"][row].as_py())
        place = session_turn(notes)
        if place is None or place.turn == 1:
            continue
        history = json.loads(texts["history"][row])
        said = [turn["content"] for turn in history if turn["role"] == "user"]
        if USER_MODEL in notes:
            said, texts["query"][row] = said[: len(said) + 2 - place.turn], ""
        texts["history"][row] = json.dumps([place.turn, *said])
    for name, column in texts.items():
        values = pa.array(column, pa.string())
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _unique(texts: pa.Array) -> pa.Array:
    counted = texts.value_counts()
    return counted.field("values").filter(pc.equal(counted.field("counts"), 1))


def _with_keys(side: Side, keys: pa.Array, matching: str) -> Side:
    """The side with other keys. A null is replaced by a key that no other unit has."""
    alone = pa.array([f"\x1e{number}" for number in range(len(keys))], pa.string())
    units = side.scores.units
    column = units.column_names.index("key")
    changed = units.set_column(column, "key", pa.chunked_array([pc.coalesce(keys, alone)]))
    return replace(side, scores=replace(side.scores, units=changed), matching=matching)


MOST_SIDES = 26
_LONGEST_WHY = 200  # characters of an answer's error


@dataclass(frozen=True)
class SideAnswers:
    """One candidate's answers, by the key of their question, which is the same for all sides.
    `excludes` says that its run leaves empty ones out."""

    side: PairSide
    model: str
    records: Mapping[str, Record]
    excludes: bool = False


def open_pair_sides(runs: Sequence[str]) -> list[tuple[PairSide, ComparedRun]]:
    """A pairwise run's sides, of RUN all candidates or that of RUN:CANDIDATE, named by candidate if
    that suffices. Raises ConfigError for fewer than two or too many, else as `pick_candidates`."""
    named: list[str] = []
    for typed in runs:
        folder, several = RunFolder(find_run(typed)), list[str]()
        if folder.has_manifest():  # else RUN:CANDIDATE, or no run: `pick_candidates` says so
            with readable(folder.path):
                several = candidates_of(folder.records())
        named += [f"{typed}:{candidate}" for candidate in several] if several[1:] else [typed]
    named = list(dict.fromkeys(named))
    if not 2 <= len(named) <= MOST_SIDES:
        raise ConfigError(
            f"pairwise compares 2 to {MOST_SIDES} candidates, and these are {len(named)}: "
            "memray-eval pairwise RUN_A RUN_B [RUN_C...]"
        )
    opened = pick_candidates(named)
    counts = Counter(run.candidate for run in opened)
    sides = []
    for of in opened:
        name = of.candidate if counts[of.candidate] == 1 else of.name
        side = PairSide(name=name, run=of.folder.run_id, candidate=of.candidate)
        sides.append((side, of))
    return sides


def read_answers(runs: Sequence[str], excludes: bool = False) -> list[SideAnswers]:
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
        answers.append(SideAnswers(side, model, records, excludes_own))
    if not any(present for _, present in questions_of(answers)):
        raise DataError("no question is in two of the runs: no sample id with the same task")
    return answers


def questions_of(
    answers: Sequence[SideAnswers], limit: int | None = None
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
    digest = {key: hashlib.blake2b(key.encode("utf-8", "replace")).digest() for key, _ in questions}
    kept = set(sorted(digest, key=lambda key: digest[key])[:limit])
    return [question for question in questions if question[0] in kept]


def pair_rows(
    answers: Sequence[SideAnswers], questions: Iterable[tuple[str, Sequence[int]]]
) -> Iterator[dict[str, Any]]:
    """A row of a dataset for each order of every two answers to a question, as `evaluate` takes
    rows. A question is that of the first side that was asked it: others may call it otherwise."""
    for key, present in questions:
        sample = answers[present[0]].records[key].sample
        for i, j in combinations(present, 2):
            yield _row(sample, answers[i], answers[j], key)
            yield _row(sample, answers[j], answers[i], key)


def _row(sample: Sample, first: SideAnswers, second: SideAnswers, key: str) -> dict[str, Any]:
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
