"""Measures how each candidate answered questions on conversations: failures by where they come
from, recall of the evidence, tokens and seconds, figures by category, errata."""

import json
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from memray_eval.analysis.breakdown import CORRECT_FROM, agreement
from memray_eval.analysis.score_table import Reader, ScoreTable, is_fallback
from memray_eval.analysis.statistics import code_names, count_units, mean_interval, paired
from memray_eval.benchmarks import Answered, Suite, mean_of
from memray_eval.benchmarks.conversations import Erratum
from memray_eval.benchmarks.rules import rule_name, score_by_rule
from memray_eval.metrics.long_context.evidence_recall import found_evidence
from memray_eval.stores.memories import STORES, is_store_error, writes_to
from memray_eval.stores.port import read_folder
from memray_eval.stores.tools import FORGET, SAVE, SEARCH
from memray_eval.text_processing.denials import says_unknown
from memray_eval.types import (
    FAILURES,
    RULE_METRIC,
    VERDICT_METRIC,
    Agreement,
    ArmDifference,
    ArmSummary,
    Candidate,
    CategoryFigure,
    ErrataFigure,
    Response,
    Sample,
    StoreFigures,
    is_estimate,
)
from memray_eval.types.json_text import candidate_from_json
from memray_eval.types.samples import MEMORY

_COLUMNS = tuple(
    "unit_id sample_id candidate candidate_config suite task answers metadata response error "
    "prompt_tokens output_tokens duration_s epoch".split()
)
_SCORES = ("metric", "value", "judge", "parts")


class Answer(NamedTuple):
    """One answer. Of `n_evidence` pieces of evidence `n_found` were retrieved or shown (None: not
    noted); `declines`: it says that it does not know; `estimated`: metrics with offline
    estimates."""

    unit_id: str
    epoch: int
    sample: Sample
    candidate: Candidate
    scored: Answered
    estimated: tuple[str, ...]
    conversation: str
    n_evidence: int
    n_found: int | None
    declines: bool
    error: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    seconds: float | None


def answers_of(table: ScoreTable) -> list[Answer]:
    """The answers in a block of records."""
    judged = table.select(_COLUMNS, _SCORES)
    # not those in place of a judge that failed
    judged = judged.only(~np.isnan(judged.values) & ~judged.is_judge(is_fallback))
    scores: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    of_units = judged.scores.to_pylist(maps_as_pydicts="lossy")
    for unit, score in zip(judged.unit.tolist(), of_units, strict=True):
        scores[unit].append(score)
    rows = table.units.select(list(_COLUMNS)).to_pylist()
    return [_to_answer(row, scores[number]) for number, row in enumerate(rows)]


ANSWERS = Reader(_COLUMNS, _SCORES, answers_of)


def _summarise_store(
    rows: Sequence[Answer],
    answers: Mapping[str, Sequence[Answer]],
    headline: str,
    files: Mapping[str, Sequence[Mapping[str, Any]]],
) -> StoreFigures:
    """The figures of a candidate's memory store, by its journals and the questions' notes."""
    memory, units = rows[0].candidate.memory, {row.unit_id for row in rows}
    assert memory is not None
    own = {
        posixpath.dirname(path)
        for path, events in files.items()
        for event in events
        if event["event"] == "open" and writes_to(event["memory"], memory)
    }
    events = [e for path, lines in files.items() if posixpath.dirname(path) in own for e in lines]
    calls = [e for e in events if e["event"] in ("search", "answer", "tool") and e["unit"] in units]
    writes = [e for e in events if e["event"] == "ingest" and "s" in e]
    spent = [*writes, *calls]
    prices = [memory.write_usd] * len(writes) + [memory.search_usd] * len(calls)
    dollars = [e.get("usd", usd) for e, usd in zip(spent, prices, strict=True)]
    notes = [row.sample.metadata.get(MEMORY) or {} for row in rows if row.error is None]
    complete = [note["complete"] for note in notes if note.get("complete") is not None]
    return StoreFigures(
        complete=mean_of(complete),
        n_complete=len(complete),
        returned=mean_of(note.get("returned") for note in notes),
        n_writes=len(writes),
        write_p50_s=_percentile(writes, 50),
        write_p95_s=_percentile(writes, 95),
        n_searches=len(calls),
        search_p50_s=_percentile(calls, 50),
        search_p95_s=_percentile(calls, 95),
        tokens=round(sum(e.get("tokens", e.get("estimated", 0)) for e in spent)),
        is_estimated=any("estimated" in e and "tokens" not in e for e in writes),
        usd=None if None in dollars or not dollars else sum(map(float, dollars)),
        n_failed=sum(is_store_error(row.error) for row in rows),
        tools=_count_tools(rows, calls) if memory.tools else {},
        differences=tuple(_differences(rows, answers, headline)),
    )


def _count_tools(rows: Sequence[Answer], events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The answers by what their model made of its tools: a search that returned evidence, none that
    did, no search though the question names evidence, or one where none was needed; and how many
    saved or forgot something."""
    calls = defaultdict(list)
    for event in events:
        if event["event"] == "tool":
            calls[event["unit"]].append(event)
    counts = dict.fromkeys(("found", "in vain", "not called", "needless", "saved", "forgot"), 0)
    for row in (row for row in rows if row.error is None):
        searches = [call for call in calls[row.unit_id] if call["tool"] == SEARCH]
        needs = bool(row.n_evidence) and not row.scored.is_unanswerable
        if searches and needs:
            counts["found" if any(call["found"] for call in searches) else "in vain"] += 1
        elif searches or needs:
            counts["not called" if needs else "needless"] += 1
        tools = {call["tool"] for call in calls[row.unit_id]}
        counts["saved"] += SAVE in tools
        counts["forgot"] += FORGET in tools
    return counts


def _percentile(events: Sequence[Mapping[str, Any]], share: float) -> float | None:
    seconds = [event["s"] for event in events]
    return float(np.percentile(seconds, share)) if seconds else None


def _differences(
    rows: Sequence[Answer], answers: Mapping[str, Sequence[Answer]], headline: str
) -> Iterator[ArmDifference]:
    """Against each candidate of the same model that has no memory, question by question."""

    def values(of: Sequence[Answer]) -> dict[tuple[str, int], tuple[float, str]]:
        return {
            (row.sample.id, row.epoch): (row.scored.values[headline], row.conversation)
            for row in of
            if row.error is None and headline in row.scored.values
        }

    own = values(rows)
    for name, of_other in answers.items():
        candidate = of_other[0].candidate
        if candidate.memory is not None or candidate.model != rows[0].candidate.model:
            continue
        other = values(of_other)
        if both := sorted(own.keys() & other.keys()):
            a = np.array([other[key][0] for key in both])
            b = np.array([own[key][0] for key in both])
            clusters = code_names([own[key][1] for key in both])
            is_clustered = 1 < count_units(a, clusters) < len(both)
            between = paired(a, b, clusters if is_clustered else None, scale=(0.0, 1.0))
            ends, gain = {"low": between.low, "high": between.high}, float((b - a).mean())
            yield ArmDifference(other=name, n=between.n, difference=gain, **ends)


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
        unit_id=row["unit_id"],
        epoch=row["epoch"] or 1,
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
        error=row["error"],
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        seconds=row["duration_s"],
    )


def summarise_arms(
    answers: Iterable[Answer],
    suite: Suite,
    metrics: Sequence[str],
    errata: Mapping[str, Erratum],
    folder: str = "",
) -> tuple[ArmSummary, ...]:
    """One row a candidate, by name, with what the stores in the run's `folder` did."""
    by_candidate: dict[str, list[Answer]] = {}
    for answer in answers:
        by_candidate.setdefault(answer.candidate.name, []).append(answer)
    arms = tuple(
        _summarise(of_candidate, suite, metrics, errata)
        for _, of_candidate in sorted(by_candidate.items())
    )
    remembering = [of for of in by_candidate.values() if of[0].candidate.memory is not None]
    events = read_folder(f"{folder}/{STORES}") if remembering else {}
    headline = suite.quality_metric(list(metrics))
    stores = {
        rows[0].candidate.name: _summarise_store(rows, by_candidate, headline, events)
        for rows in remembering
    }
    return tuple(arm.model_copy(update={"store": stores.get(arm.candidate)}) for arm in arms)


def _summarise(
    answers: Sequence[Answer], suite: Suite, metrics: Sequence[str], errata: Mapping[str, Erratum]
) -> ArmSummary:
    judge, rule = VERDICT_METRIC, suite.own_metric
    answered = [answer for answer in answers if answer.error is None]
    causes = (classify(answer, judge, rule) for answer in answered)
    failures = Counter(cause for cause in causes if cause is not None)
    n_unexplained = failures.pop("", 0)
    recalls = [
        answer.n_found / answer.n_evidence
        for answer in answered
        if answer.n_evidence and answer.n_found is not None
    ]
    headline = suite.quality_metric(list(metrics))
    unanswerable = [answer for answer in answered if answer.scored.is_unanswerable]
    answerable = [answer for answer in answered if not answer.scored.is_unanswerable]
    notes = (answer.sample.metadata for answer in answered)
    cut = [note for note in notes if int(note.get("turns_left_out") or 0)]
    with_errata = [answer for answer in answered if answer.sample.id in errata]
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
        prompt_tokens_mean=mean_of(answer.prompt_tokens for answer in answered),
        output_tokens_mean=mean_of(answer.output_tokens for answer in answered),
        seconds_mean=mean_of(answer.seconds for answer in answered),
        accuracy=mean_of(answer.scored.values.get(headline) for answer in answered),
        headline=headline,
        estimated=tuple(sorted({name for answer in answered for name in answer.estimated})),
        n_cut=len(cut),
        sessions_left_out=sum(int(note.get("sessions_left_out") or 0) for note in cut),
        turns_left_out=sum(int(note["turns_left_out"]) for note in cut),
        overall=suite.overall([answer.scored for answer in answered]),
        n_abstention=len(unanswerable),
        abstention=_means(unanswerable, metrics),
        answerable=_means(answerable, metrics),
        categories=tuple(_categories(answered, suite.tasks, metrics)),
        agreement=_agreement(answered, judge, rule),
        errata=tuple(_errata(answered, metrics, errata)) if with_errata else (),
        n_errata=len(with_errata),
    )


def classify(answer: Answer, judge: str, rule: str) -> str | None:
    """Returns the cause of a failure, by FAILURES: a disagreement of judge and rule; else missing
    evidence of an answerable question; else the answer. "" if the question of a wrong answer names
    no evidence, None for a right answer or one without a score."""
    right = [
        value >= CORRECT_FROM
        for name in (judge, rule)
        if (value := answer.scored.values.get(name)) is not None
    ]
    if not right or all(right):
        return None
    if any(right):
        return "disputed"
    if answer.scored.is_unanswerable:
        return "answered"
    if not answer.n_evidence or answer.n_found is None:
        return ""
    if answer.n_found < answer.n_evidence:
        return "not_retrieved"
    return "abstained" if answer.declines else "not_used"


def _means(answers: Sequence[Answer], metrics: Sequence[str]) -> dict[str, float]:
    means = {name: mean_of(of.scored.values.get(name) for of in answers) for name in metrics}
    return {name: value for name, value in means.items() if value is not None}


def _categories(
    answers: Sequence[Answer], tasks: Sequence[str], metrics: Sequence[str]
) -> Iterator[CategoryFigure]:
    """The figure of every metric over all answers, then by category in the suite's order."""
    present = {answer.sample.task for answer in answers}
    ordered = [task for task in tasks if task in present]
    for category in (None, *ordered, *sorted(present - {*ordered, ""})):
        of_category = [answer for answer in answers if category in (None, answer.sample.task)]
        for metric in metrics:
            scored = [answer for answer in of_category if metric in answer.scored.values]
            if not scored:
                continue
            values = np.array([answer.scored.values[metric] for answer in scored])
            clusters = code_names([answer.conversation for answer in scored])
            is_clustered = 1 < count_units(values, clusters) < len(scored)
            interval = mean_interval(values, clusters if is_clustered else None, scale=(0.0, 1.0))
            ends = interval._asdict() if interval else {}
            yield CategoryFigure(
                category=category, metric=metric, n=len(scored), mean=float(values.mean()), **ends
            )


def _agreement(answers: Iterable[Answer], judge: str, rule: str) -> Agreement | None:
    counts = Counter(
        (answer.scored.values[judge] >= CORRECT_FROM, answer.scored.values[rule] >= CORRECT_FROM)
        for answer in answers
        if judge in answer.scored.values and rule in answer.scored.values
    )
    if not counts:
        return None
    kinds = ((True, True), (False, False), (True, False), (False, True))
    return agreement(*(counts[kind] for kind in kinds))


def _errata(
    answers: Sequence[Answer], metrics: Sequence[str], errata: Mapping[str, Erratum]
) -> Iterator[ErrataFigure]:
    for metric in metrics:
        scored = [answer for answer in answers if metric in answer.scored.values]
        wrong = {id(answer) for answer in scored if is_answer_wrong(answer, errata)}
        if not scored or metric in ("evidence_recall", "abstention"):
            continue
        others = [answer.scored.values[metric] for answer in scored if id(answer) not in wrong]
        mended = (_mended_score(of, metric, errata) for of in scored if id(of) in wrong)
        best = [*([1.0] * len(others)), *mended]
        yield ErrataFigure(
            metric=metric,
            n=len(scored),
            mean=fmean(answer.scored.values[metric] for answer in scored),
            n_without=len(others),
            mean_without=mean_of(others),
            ceiling=fmean(best),
        )


def is_answer_wrong(answer: Answer, errata: Mapping[str, Erratum]) -> bool:
    """Whether an erratum says so of the very answer that the sample has."""
    erratum = errata.get(answer.sample.id)
    if erratum is None or not erratum.is_answer_wrong:
        return False
    return not erratum.golden or erratum.golden.strip() in answer.sample.answers


def _mended_score(answer: Answer, metric: str, errata: Mapping[str, Erratum]) -> float:
    """What the mended answer scores against the wrong one: nothing, but under a rule."""
    name = rule_name(answer.sample) if metric == RULE_METRIC else None
    if name is None:
        return 0.0
    try:
        mended = Response(text=errata[answer.sample.id].correct)
        return score_by_rule(name, answer.sample, mended).value
    except ValueError:
        return 0.0
