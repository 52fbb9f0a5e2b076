"""Measures how each candidate answered questions on conversations: failures by where they come
from, recall of the evidence, tokens and seconds, figures by category, errata."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow.dataset as pads

from memray_eval.analysis.disagreements import CORRECT_FROM, agreement
from memray_eval.analysis.score_table import ScoreTable, is_fallback, read_score_tables
from memray_eval.analysis.statistics import mean_interval
from memray_eval.benchmarks import Answered, Suite, mean_of
from memray_eval.benchmarks.conversations.errata import Erratum
from memray_eval.benchmarks.rules import rule_name, score_by_rule
from memray_eval.metrics.long_context.evidence_recall import found_evidence
from memray_eval.text_processing.abstaining import says_unknown
from memray_eval.types import (
    FAILURES,
    RULE_METRIC,
    VERDICT_METRIC,
    Agreement,
    ArmSummary,
    Candidate,
    CategoryFigure,
    ErrataFigure,
    Response,
    Sample,
    is_estimate,
)
from memray_eval.types.json_text import candidate_from_json

_COLUMNS = (
    "unit_id",
    "sample_id",
    "candidate",
    "candidate_config",
    "suite",
    "task",
    "answers",
    "metadata",
    "response",
    "error",
    "prompt_tokens",
    "output_tokens",
    "duration_s",
)


class Answer(NamedTuple):
    """One answer. Of `n_evidence` pieces of evidence `n_found` were retrieved or shown (None:
    it was not noted); `declines`: it says that it does not know. The values of
    `estimated` metrics are offline estimates."""

    sample: Sample
    candidate: Candidate
    scored: Answered
    estimated: tuple[str, ...]
    conversation: str
    n_evidence: int
    n_found: int | None
    declines: bool
    has_error: bool
    prompt_tokens: int | None
    output_tokens: int | None
    seconds: float | None
    sessions_left_out: int
    turns_left_out: int


def read_answers(records: pads.Dataset) -> Iterator[Answer]:
    """The answers in Parquet files with RECORD_SCHEMA; one that was written twice comes once."""
    seen: set[str] = set()
    for table in read_score_tables(records, _COLUMNS, ("metric", "value", "judge", "parts")):
        scores = _judged_scores(table)
        for number, row in enumerate(table.units.to_pylist()):
            if row["unit_id"] not in seen:
                seen.add(row["unit_id"])
                yield _to_answer(row, scores[number])


def _judged_scores(table: ScoreTable) -> defaultdict[int, list[dict[str, Any]]]:
    """The scores of each unit that have a value, and not one in place of a judge that failed."""
    table = table.only(~np.isnan(table.values) & ~table.is_judge(is_fallback))
    by_unit = defaultdict(list)
    scores = table.scores.to_pylist(maps_as_pydicts="lossy")
    for unit, score in zip(table.unit.tolist(), scores, strict=True):
        by_unit[unit].append(score)
    return by_unit


def _to_answer(row: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> Answer:
    metadata = json.loads(row["metadata"] or "{}")
    sample = Sample.model_construct(
        id=row["sample_id"],
        suite=row["suite"] or "",
        task=row["task"] or "",
        query="-",
        answers=tuple(row["answers"] or ()),
        metadata=metadata,
    )
    evidence = metadata.get("evidence") or []
    try:
        retrieved = found_evidence(sample) if evidence else None
    except ValueError:  # evidence_recall says it of the answer
        retrieved = None
    return Answer(
        sample=sample,
        candidate=candidate_from_json(row["candidate_config"]),
        scored=Answered(
            sample.task,
            metadata.get("unanswerable") is True,
            {score["metric"]: score["value"] for score in scores},
            {score["metric"]: score["parts"] or {} for score in scores},
        ),
        estimated=tuple(score["metric"] for score in scores if is_estimate(score["judge"] or "")),
        conversation=str(metadata.get("conversation") or row["sample_id"]),
        n_evidence=len(evidence),
        n_found=None if retrieved is None else len(retrieved),
        declines=says_unknown(row["response"] or ""),
        has_error=row["error"] is not None,
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        seconds=row["duration_s"],
        sessions_left_out=int(metadata.get("sessions_left_out") or 0),
        turns_left_out=int(metadata.get("turns_left_out") or 0),
    )


def summarise_arms(
    records: pads.Dataset, suite: Suite, metrics: Sequence[str], errata: Mapping[str, Erratum]
) -> tuple[ArmSummary, ...]:
    """One row a candidate, in the order of their names, over the run's `metrics`."""
    by_candidate: dict[str, list[Answer]] = {}
    for one in read_answers(records):
        by_candidate.setdefault(one.candidate.name, []).append(one)
    return tuple(
        _summarise(each, suite, metrics, errata) for _, each in sorted(by_candidate.items())
    )


def _summarise(
    answers: Sequence[Answer], suite: Suite, metrics: Sequence[str], errata: Mapping[str, Erratum]
) -> ArmSummary:
    judge, rule = VERDICT_METRIC, suite.own_metric
    given = [one for one in answers if not one.has_error]
    failures = Counter[str]()
    for one in given:
        if (where := classify(one, judge, rule)) is not None:
            failures[where] += 1
    n_unexplained = failures.pop("", 0)
    recalls = [
        one.n_found / one.n_evidence for one in given if one.n_evidence and one.n_found is not None
    ]
    headline = suite.quality_metric(list(metrics))
    unanswerable = [one for one in given if one.scored.is_unanswerable]
    answerable = [one for one in given if not one.scored.is_unanswerable]
    cut = [one for one in given if one.turns_left_out]
    known = [one for one in given if one.sample.id in errata]
    return ArmSummary(
        candidate=answers[0].candidate.name,
        arm="given" if answers[0].candidate.backend == "given" else answers[0].candidate.arm,
        n=len(answers),
        n_wrong=failures.total(),
        failures={name: failures[name] for name in FAILURES},
        n_unexplained=n_unexplained,
        judge_metric=judge if judge in metrics else "",
        rule_metric=rule if rule in metrics else "",
        recall=mean_of(recalls),
        n_recall=len(recalls),
        prompt_tokens_mean=mean_of(one.prompt_tokens for one in given),
        output_tokens_mean=mean_of(one.output_tokens for one in given),
        seconds_mean=mean_of(one.seconds for one in given),
        accuracy=mean_of(one.scored.values.get(headline) for one in given),
        headline=headline,
        estimated=tuple(sorted({name for one in given for name in one.estimated})),
        n_cut=len(cut),
        sessions_left_out=sum(one.sessions_left_out for one in cut),
        turns_left_out=sum(one.turns_left_out for one in cut),
        overall=suite.overall([one.scored for one in given]),
        n_abstention=len(unanswerable),
        abstention=_means(unanswerable, metrics),
        answerable=_means(answerable, metrics),
        categories=tuple(_categories(given, suite.tasks, metrics)),
        agreement=_agreement(given, judge, rule),
        errata=tuple(_errata(given, metrics, errata)) if known else (),
        n_errata=len(known),
    )


def classify(one: Answer, judge: str, rule: str) -> str | None:
    """Where an answer failed, by FAILURES; "" for a wrong one whose question names no evidence, and
    None for a right one or one that nobody scored.

    Where the judge and the rule disagree, that is what there is to say. Both find the others wrong,
    or the one that there is. An answerable question whose evidence was not all found failed there,
    whatever was then answered."""
    right = [
        value >= CORRECT_FROM
        for name in (judge, rule)
        if (value := one.scored.values.get(name)) is not None
    ]
    if not right or all(right):
        return None
    if any(right):
        return "disputed"
    if one.scored.is_unanswerable:
        return "answered"
    if not one.n_evidence or one.n_found is None:
        return ""
    if one.n_found < one.n_evidence:
        return "not_retrieved"
    return "abstained" if one.declines else "not_used"


def _means(answers: Sequence[Answer], metrics: Sequence[str]) -> dict[str, float]:
    means = {name: mean_of(one.scored.values.get(name) for one in answers) for name in metrics}
    return {name: value for name, value in means.items() if value is not None}


def _categories(
    answers: Sequence[Answer], tasks: Sequence[str], metrics: Sequence[str]
) -> Iterator[CategoryFigure]:
    """The figure of every metric over all answers, then by category in the suite's order."""
    there = {one.sample.task for one in answers}
    ordered = [task for task in tasks if task in there]
    for category in (None, *ordered, *sorted(there - {*ordered, ""})):
        mine = [one for one in answers if category in (None, one.sample.task)]
        for metric in metrics:
            scored = [one for one in mine if metric in one.scored.values]
            if not scored:
                continue
            values = np.array([one.scored.values[metric] for one in scored])
            names = {one.conversation for one in scored}
            clusters = None
            if 1 < len(names) < len(scored):
                numbers = {name: number for number, name in enumerate(sorted(names))}
                clusters = np.array([numbers[one.conversation] for one in scored], dtype=np.intp)
            found = mean_interval(values, clusters)
            ends = {"low": max(0.0, found.low), "high": min(1.0, found.high)} if found else {}
            yield CategoryFigure(
                category=category, metric=metric, n=len(scored), mean=float(values.mean()), **ends
            )


def _agreement(answers: Iterable[Answer], judge: str, rule: str) -> Agreement | None:
    counts = Counter(
        (one.scored.values[judge] >= CORRECT_FROM, one.scored.values[rule] >= CORRECT_FROM)
        for one in answers
        if judge in one.scored.values and rule in one.scored.values
    )
    if not counts:
        return None
    kinds = ((True, True), (False, False), (True, False), (False, True))
    return agreement(*(counts[kind] for kind in kinds))


def _errata(
    answers: Sequence[Answer], metrics: Sequence[str], errata: Mapping[str, Erratum]
) -> Iterator[ErrataFigure]:
    for metric in metrics:
        scored = [one for one in answers if metric in one.scored.values]
        wrong = {id(one) for one in scored if is_answer_wrong(one, errata)}
        if not scored or metric in ("evidence_recall", "abstention"):
            continue
        others = [one.scored.values[metric] for one in scored if id(one) not in wrong]
        best = [
            1.0 if id(one) not in wrong else _mended_score(one, metric, errata) for one in scored
        ]
        yield ErrataFigure(
            metric=metric,
            n=len(scored),
            mean=fmean(one.scored.values[metric] for one in scored),
            n_without=len(others),
            mean_without=mean_of(others),
            ceiling=fmean(best),
        )


def is_answer_wrong(one: Answer, errata: Mapping[str, Erratum]) -> bool:
    """Whether an erratum says so of the answer that the sample has: of another answer, as in a
    mended dataset, it says nothing."""
    found = errata.get(one.sample.id)
    if found is None or not found.is_answer_wrong:
        return False
    return not found.golden or found.golden.strip() in one.sample.answers


def _mended_score(one: Answer, metric: str, errata: Mapping[str, Erratum]) -> float:
    """What the mended answer scores against the wrong one: nothing, but under a rule."""
    name = rule_name(one.sample) if metric == RULE_METRIC else None
    if name is None:
        return 0.0
    try:
        mended = Response(text=errata[one.sample.id].correct)
        return score_by_rule(name, one.sample, mended).value
    except ValueError:
        return 0.0
