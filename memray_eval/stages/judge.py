"""The judge stage: every metric that needs no vectors. LLM judges, computed metrics, and estimates
from words alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Container, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field

from memray_eval.config.sections import OnJudgeFailure
from memray_eval.errors import EvalError, JudgeError, Refused, describe_error
from memray_eval.metric import (
    DISAGREEMENT,
    RULES,
    ComputedMetric,
    JudgedMetric,
    Metric,
    failed_score,
    lookup_for_task,
    score_by_code,
    score_by_rules,
    score_by_verdict,
    score_without_judge,
    unscorable,
)
from memray_eval.ports import Judge
from memray_eval.types import (
    JURORS,
    RULES_ON_EMPTY,
    Frozen,
    Message,
    Record,
    Response,
    Score,
    Usage,
    dumps,
)

# "metric" or "metric/task" -> who judges it; a judged metric that is not named, or by nobody, goes
# by its rules
Judges = Mapping[str, Sequence[Judge]]
Vote = Literal["median", "majority"]
T = TypeVar("T")


class JudgingOptions(Frozen):
    """How judges are asked: how several verdicts are settled, with which rubric text where it is
    not the metric's own (by "metric" or "metric/task"), what stands in for a verdict that no judge
    gave, where the metric has such a way, and, by the same keys, why the rules give no estimate
    where they do not."""

    vote: Vote = "median"
    rubrics: Mapping[str, str] = Field(default_factory=dict)
    on_failure: OnJudgeFailure = "error"
    withheld: Mapping[str, str] = Field(default_factory=dict)


def scored_by_judge_stage(metric: Metric, judges: Container[str]) -> bool:
    """Whether this stage scores the metric, given which metrics a model judges; the embed stage
    scores the others."""
    if isinstance(metric, JudgedMetric):
        return metric.name in judges or metric.rules_texts is None
    return isinstance(metric, ComputedMetric)


async def judge_record(
    record: Record, metrics: Sequence[Metric], judges: Judges, asking: JudgingOptions | None = None
) -> Record:
    """The record with a score for each of the metrics that it has none for, asked side by side;
    several judges of a metric vote. Raises Stopped (BudgetSpent) and ServiceLost, once every call
    that was made has ended."""
    there = {score.metric for score in record.scores}
    wanted = [metric for metric in metrics if metric.name not in there]
    scores = await _gather_all(
        _score(record, metric, judges, asking or JudgingOptions()) for metric in wanted
    )
    return record.model_copy(update={"scores": (*record.scores, *scores)})


def fail_unjudged(record: Record, metrics: Sequence[Metric], error: BaseException) -> Record:
    """The record with an error for each of the metrics that it has no score for: what judging it
    raised."""
    there = {score.metric for score in record.scores}
    scores = [failed_score(metric, error) for metric in metrics if metric.name not in there]
    return record.model_copy(update={"scores": (*record.scores, *scores)})


async def _gather_all(asked: Iterable[Awaitable[T]]) -> list[T]:
    """All results; what one of them raises, once the others have ended: a call that was paid is
    never left alone."""
    results = await asyncio.gather(*asked, return_exceptions=True)
    return [_raised(result) for result in results]


def _raised(result: T | BaseException) -> T:
    if isinstance(result, BaseException):
        raise result
    return result


async def _score(record: Record, metric: Metric, judges: Judges, asking: JudgingOptions) -> Score:
    response = record.response or Response(error="not generated")
    if isinstance(metric, ComputedMetric):
        return score_by_code(metric, record.sample, response)
    assert isinstance(metric, JudgedMetric)
    jury = lookup_for_task(judges, metric.name, record.sample.task)
    if jury and not response.is_empty:
        return await _ask_jury(record, response, metric, jury, asking)
    if jury:
        return score_by_rules(metric, record.sample, response, {}, RULES_ON_EMPTY)
    if (reason := lookup_for_task(asking.withheld, metric.name, record.sample.task)) is not None:
        return unscorable(metric, record.sample, response) or Score(
            metric=metric.name, status="not_applicable", error=reason
        )
    return score_by_rules(metric, record.sample, response, {}, RULES)


async def _ask_jury(
    record: Record,
    response: Response,
    metric: JudgedMetric,
    jury: Sequence[Judge],
    asking: JudgingOptions,
) -> Score:
    """The score of a jury; where none of it gave a verdict, what `asking` has for that."""
    if (without := unscorable(metric, record.sample, response)) is not None:
        return without
    try:
        messages = metric.messages(
            record.sample,
            response,
            lookup_for_task(asking.rubrics, metric.name, record.sample.task),
        )
    except Exception as error:
        return failed_score(metric, error)
    asked = await _gather_all(
        _ask_judge(record, response, metric, judge, messages) for judge in jury
    )
    score = combine_votes([one.score for one in asked], asking.vote)
    if asking.on_failure in metric.without_judge and not any(one.is_verdict for one in asked):
        return score_without_judge(metric, record.sample, response, asking.on_failure, score)
    return score


def combine_votes(scores: Sequence[Score], vote: Vote) -> Score:
    """One score of several judges: the verdict in the middle (the lower of two), or the most
    frequent one (ties: the middle).

    It names all who were heard and keeps their values (`jury` in its judgment) and how far they
    were apart (part DISAGREEMENT); tokens and costs are those of all. Without any verdict the first
    failure stands."""
    if len(scores) == 1:
        return scores[0]
    heard = sorted(
        (score for score in scores if score.value is not None), key=lambda score: score.value or 0.0
    )
    spent = {
        "usage": sum((score.usage for score in scores), Usage()),
        "cost_usd": sum(score.cost_usd for score in scores),
        "latency_s": max(score.latency_s for score in scores),
        "cached": all(score.cached for score in scores),
        "calls": sum(score.calls or 0 for score in scores),
    }
    if not heard:
        return scores[0].model_copy(update=spent)
    values = [score.value or 0.0 for score in heard]
    middle = values[(len(values) - 1) // 2]
    chosen = (
        middle
        if vote == "median"
        else max(values, key=lambda value: (values.count(value), value == middle))
    )
    verdict = heard[values.index(chosen)]
    jury = [
        {"judge": score.judge, "value": score.value, "status": score.status} for score in scores
    ]
    judgment = json.loads(verdict.judgment or "{}") | {"jury": jury}
    parts = {**verdict.parts, DISAGREEMENT: values[-1] - values[0]}
    names = JURORS.join(dict.fromkeys(score.judge for score in scores if score.value is not None))
    return verdict.model_copy(
        update={**spent, "judge": names, "parts": parts, "judgment": dumps(judgment)}
    )


class _JudgeOutcome(NamedTuple):
    """What came of asking one judge, and whether it gave a verdict at all."""

    score: Score
    is_verdict: bool


async def _ask_judge(
    record: Record,
    response: Response,
    metric: JudgedMetric,
    judge: Judge,
    messages: Sequence[Message],
) -> _JudgeOutcome:
    try:
        verdict = await judge.judge(messages, metric.judgment)
    except JudgeError as error:
        failed = Score(
            metric=metric.name,
            status="abstained" if isinstance(error, Refused) else "error",
            judge=judge.name,
            usage=Usage(input_tokens=error.input_tokens, output_tokens=error.output_tokens),
            cost_usd=error.cost_usd,
            calls=error.calls,
            error=describe_error(error),
        )
        return _JudgeOutcome(failed, is_verdict=False)
    except EvalError:  # the run's affair: its money, its services, its end
        raise
    except Exception as error:  # whatever a client did not foresee is the outcome of this one call
        return _JudgeOutcome(failed_score(metric, error, judge.name), is_verdict=False)
    return _JudgeOutcome(
        score_by_verdict(metric, record.sample, response, verdict), is_verdict=True
    )
