"""The judge stage: every metric that needs no vectors. LLM judges, computed metrics, and estimates from words alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Container, Iterable, Mapping, Sequence
from typing import Literal

from memray_eval.errors import JudgeError, Refused
from memray_eval.metric import (
    DISAGREEMENT,
    RULES,
    ComputedMetric,
    JudgedMetric,
    Metric,
    score_by_code,
    score_by_rules,
    score_by_verdict,
    unscorable,
)
from memray_eval.ports import Judge
from memray_eval.types import Record, Response, Score, Usage, dumps

Judges = Mapping[str, Sequence[Judge]]  # metric name -> who judges it; a judged metric that is not named goes by its rules
Vote = Literal["median", "majority"]


def scored_by_judge_stage(metric: Metric, judges: Container[str]) -> bool:
    """Whether this stage scores the metric, given which metrics a model judges; the embed stage scores the others."""
    if isinstance(metric, JudgedMetric):
        return metric.name in judges or metric.rules_texts is None
    return isinstance(metric, ComputedMetric)


async def judge_record(record: Record, metrics: Sequence[Metric], judges: Judges, vote: Vote = "median") -> Record:
    """The record with a score for each of the metrics that it has none for, asked side by side; several judges of a metric
    vote. Raises BudgetSpent, once every call that was made has ended."""
    there = {score.metric for score in record.scores}
    scores = await _all(_score(record, metric, judges, vote) for metric in metrics if metric.name not in there)
    return record.model_copy(update={"scores": (*record.scores, *scores)})


async def _all(asked: Iterable[Awaitable[Score]]) -> list[Score]:
    """All scores; what one of them raises, once the others have ended: a call that was paid is never left alone."""
    scores = await asyncio.gather(*asked, return_exceptions=True)
    return [_raised(score) for score in scores]


def _raised(score: Score | BaseException) -> Score:
    if isinstance(score, BaseException):
        raise score
    return score


async def _score(record: Record, metric: Metric, judges: Judges, vote: Vote) -> Score:
    response = record.response or Response(error="not generated")
    if isinstance(metric, ComputedMetric):
        return score_by_code(metric, record.sample, response)
    assert isinstance(metric, JudgedMetric)
    if metric.name in judges and not response.is_empty:
        jury = judges[metric.name]
        return settle(await _all(_ask(record, response, metric, judge) for judge in jury), vote)
    return score_by_rules(metric, record.sample, response, {}, RULES)


def settle(scores: Sequence[Score], vote: Vote) -> Score:
    """One score of several judges: the verdict in the middle (the lower of two), or the most frequent one (ties: the middle).

    It names all who were heard and keeps their values (`jury` in its judgment) and how far they were apart (part
    DISAGREEMENT); tokens and costs are those of all. Without any verdict the first failure stands.
    """
    if len(scores) == 1:
        return scores[0]
    heard = sorted((score for score in scores if score.value is not None), key=lambda score: score.value or 0.0)
    spent = {
        "usage": sum((score.usage for score in scores), Usage()),
        "cost_usd": sum(score.cost_usd for score in scores),
        "latency_s": max(score.latency_s for score in scores),
        "cached": all(score.cached for score in scores),
    }
    if not heard:
        return scores[0].model_copy(update=spent)
    values = [score.value or 0.0 for score in heard]
    middle = values[(len(values) - 1) // 2]
    chosen = middle if vote == "median" else max(values, key=lambda value: (values.count(value), value == middle))
    verdict = heard[values.index(chosen)]
    jury = [{"judge": score.judge, "value": score.value, "status": score.status} for score in scores]
    judgment = json.loads(verdict.judgment or "{}") | {"jury": jury}
    parts = {**verdict.parts, DISAGREEMENT: values[-1] - values[0]}
    names = " + ".join(dict.fromkeys(score.judge for score in scores if score.value is not None))
    return verdict.model_copy(update={**spent, "judge": names, "parts": parts, "judgment": dumps(judgment)})


async def _ask(record: Record, response: Response, metric: JudgedMetric, judge: Judge) -> Score:
    if (without := unscorable(metric, record.sample, response)) is not None:
        return without
    try:
        verdict = await judge.judge(metric.prompt(record.sample, response), metric.judgment)
    except JudgeError as error:
        return Score(
            metric=metric.name,
            status="abstained" if isinstance(error, Refused) else "error",
            judge=judge.name,
            usage=Usage(input_tokens=error.input_tokens, output_tokens=error.output_tokens),
            cost_usd=error.cost_usd,
            error=f"{type(error).__name__}: {error}",
        )
    return score_by_verdict(metric, record.sample, response, verdict)
