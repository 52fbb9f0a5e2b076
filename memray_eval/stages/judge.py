"""The judge stage: every metric that needs no vectors. LLM judges, computed metrics, and estimates from words alone."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence

from memray_eval.errors import JudgeError, Refused
from memray_eval.metric import (
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
from memray_eval.types import Record, Response, Score, Usage

Judges = Mapping[str, Judge]  # metric name -> who judges it; a judged metric that is not named goes by its rules


def scored_by_judge_stage(metric: Metric, judges: Container[str]) -> bool:
    """Whether this stage scores the metric, given which metrics a model judges; the embed stage scores the others."""
    if isinstance(metric, JudgedMetric):
        return metric.name in judges or metric.rules_texts is None
    return isinstance(metric, ComputedMetric)


async def judge_record(record: Record, metrics: Sequence[Metric], judges: Judges) -> Record:
    """The record with a score for each of the metrics, asked side by side."""
    scores = await asyncio.gather(*(_score(record, metric, judges) for metric in metrics))
    return record.model_copy(update={"scores": (*record.scores, *scores)})


async def _score(record: Record, metric: Metric, judges: Judges) -> Score:
    response = record.response or Response(error="not generated")
    if isinstance(metric, ComputedMetric):
        return score_by_code(metric, record.sample, response)
    assert isinstance(metric, JudgedMetric)
    if metric.name in judges and not response.is_empty:
        return await _ask(record, response, metric, judges[metric.name])
    return score_by_rules(metric, record.sample, response, {}, RULES)


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
