"""The judge stage: scores metrics without vectors, by LLM judges, by code, or by rules."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Container, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, Field

from memray_eval.config.sections import OnJudgeFailure
from memray_eval.errors import EvalError, JudgeError, Refused, describe_error
from memray_eval.metric import (
    DISAGREEMENT,
    RULES,
    ComputedMetric,
    JudgedMetric,
    Metric,
    compute_score,
    failed_score,
    lookup_for_task,
    score_by_rules,
    score_by_verdict,
    score_empty,
    score_without_judge,
    unscorable,
)
from memray_eval.ports import CURRENT_UNIT, VOTERS, Judge, Verdict
from memray_eval.text_processing.judge_prompts import is_long_start
from memray_eval.types import (
    ComputedScore,
    Frozen,
    Message,
    Record,
    Response,
    Score,
    Usage,
    dumps,
    join_jurors,
)

# "metric" or "metric/task" -> its judges. A judged metric without one is scored by its estimate; if
# it has none, it is not applicable.
Judges = Mapping[str, Sequence[Judge]]
Vote = Literal["median", "majority"]
T = TypeVar("T")


class JudgingOptions(Frozen):
    """Settings of judging. `vote` combines several verdicts. `rubrics` replaces a metric's own, by
    "metric" or "metric/task". `on_failure` says what replaces a missing verdict. `siblings` counts,
    by candidate, those that answer a sample side by side, itself included; 1 by default."""

    vote: Vote = "median"
    rubrics: Mapping[str, str] = Field(default_factory=dict)
    on_failure: OnJudgeFailure = "error"
    siblings: Mapping[str, int] = Field(default_factory=dict)


def scored_by_judge_stage(metric: Metric, judges: Container[str]) -> bool:
    """True if this stage scores the metric, not the embed stage; `judges`: of judged metrics."""
    if isinstance(metric, JudgedMetric):
        return metric.name in judges or (metric.estimate is None or metric.estimate.texts is None)
    return isinstance(metric, ComputedMetric)


async def judge_record(
    record: Record, metrics: Sequence[Metric], judges: Judges, asking: JudgingOptions | None = None
) -> Record:
    """Adds a score for each metric that the record has none for, all concurrently. Several judges
    of a metric vote. Raises Stopped (BudgetSpent) and ServiceLost, once all calls have ended."""
    options = asking or JudgingOptions()
    calls = _share_calls(prompts_of_record(record, metrics, judges, options), metrics)
    scores = await _gather_all(
        _score(record, metric, judges, options, calls.get(metric.name, ()))
        for metric in missing_metrics(record, metrics)
    )
    return record.with_scores(scores)


class JudgeCalls(NamedTuple):
    """A judge, and the messages of each of its calls about one metric."""

    judge: Judge
    calls: Sequence[Sequence[Message]]


CallsByMetric: TypeAlias = dict[str, Sequence[JudgeCalls] | Score]


class _SharingJudge:
    """Asks a judge a question once for all metrics of a record: only the first verdict costs."""

    def __init__(self, judge: Judge, tasks: dict[Any, asyncio.Task[Verdict]], juror: int) -> None:
        self.name, self._judge, self._tasks, self._juror = judge.name, judge, tasks, juror

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        key = self.name, self._juror, judgment, tuple(messages)
        if (call := self._tasks.get(key)) is None:
            self._tasks[key] = asyncio.create_task(self._judge.judge(messages, judgment))
            return await self._tasks[key]
        try:
            verdict = await call
        except JudgeError as error:
            free_error = copy(error)  # the first metric's error has the costs
            free_error.set_tokens(Usage())
            free_error.cost_usd = free_error.saved_usd = free_error.calls = 0
            raise free_error from error
        free = {"usage": Usage(), "cost_usd": 0.0, "saved_usd": 0.0, "latency_s": 0.0}
        return verdict.model_copy(update={**free, "cached": True, "calls": 0})


def _share_calls(calls_by_metric: CallsByMetric, metrics: Sequence[Metric]) -> CallsByMetric:
    """Makes metrics that share a judgment share their calls, whether or not calls are cached."""
    judgments = {
        metric.name: metric.judgment for metric in metrics if isinstance(metric, JudgedMetric)
    }
    sharing = Counter(judgments[name] for name in calls_by_metric)
    tasks: dict[Any, asyncio.Task[Verdict]] = {}
    return {
        name: jury
        if isinstance(jury, Score) or sharing[judgments[name]] == 1
        else [
            JudgeCalls(_SharingJudge(judge, tasks, juror), calls)
            for juror, (judge, calls) in enumerate(jury)
        ]
        for name, jury in calls_by_metric.items()
    }


def prompts_of_record(
    record: Record, metrics: Sequence[Metric], judges: Judges, options: JudgingOptions
) -> CallsByMetric:
    """Builds the calls to judges about a record by metric, or the score of a metric that does not
    apply or whose prompt fails. Long prompts know how many calls of the run begin alike. All
    metrics count, also scored ones: a prompt is the same in every session."""
    response = record.response or Response(error="not generated")
    calls_by_metric: CallsByMetric = {}
    judgments: dict[str, type[BaseModel]] = {}
    for metric in metrics if not response.is_empty else ():
        if not isinstance(metric, JudgedMetric):
            continue
        if not (jury := lookup_for_task(judges, metric.name, record.sample.task)):
            continue
        if (without := unscorable(metric, record.sample, response)) is not None:
            calls_by_metric[metric.name] = without
            continue
        rubric = lookup_for_task(options.rubrics, metric.name, record.sample.task)
        try:
            calls = metric.make_calls(record.sample, response, rubric)
        except Exception as error:  # a user's own
            calls_by_metric[metric.name] = failed_score(metric, error)
        else:
            judgments[metric.name] = metric.judgment
            calls_by_metric[metric.name] = [JudgeCalls(judge, calls) for judge in jury]
    return _note_shared_starts(
        calls_by_metric, judgments, options.siblings.get(record.candidate.name, 1)
    )


def _note_shared_starts(
    calls_by_metric: CallsByMetric, judgments: Mapping[str, type[BaseModel]], siblings: int
) -> CallsByMetric:
    """Notes on each long prompt how many calls to its judge begin alike, siblings included."""
    starts, seen = Counter[Any](), set[Any]()
    for metric, jury in calls_by_metric.items():
        for juror, (judge, calls) in enumerate(() if isinstance(jury, Score) else jury):
            for prompt in calls:
                if not is_long_start(prompt):
                    continue
                # Metrics that share a judgment ask the same call, which is made once
                call = prompt, judgments[metric], juror
                if call not in seen:
                    seen.add(call)
                    starts[judge.name, prompt.shared] += 1

    def note(judge: Judge, prompt: Sequence[Message]) -> Sequence[Message]:
        if not is_long_start(prompt):
            return prompt
        return prompt.having(readers=starts[judge.name, prompt.shared] * siblings)

    return {
        metric: jury
        if isinstance(jury, Score) or not starts
        else [JudgeCalls(judge, [note(judge, prompt) for prompt in calls]) for judge, calls in jury]
        for metric, jury in calls_by_metric.items()
    }


def fail_unjudged(record: Record, metrics: Sequence[Metric], error: BaseException) -> Record:
    """Adds an error, which judging raised, for each metric that the record has no score for."""
    missing = missing_metrics(record, metrics)
    return record.with_scores(failed_score(metric, error) for metric in missing)


def fail_ungenerated(record: Record, metrics: Sequence[Metric]) -> Record:
    """Adds the scores of a record whose generation failed, as both stages would."""
    response = record.response or Response(error="not generated")
    scores = (
        unscorable(metric, record.sample, response) for metric in missing_metrics(record, metrics)
    )
    return record.with_scores(score for score in scores if score is not None)


def missing_metrics(record: Record, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that a record has no score for."""
    scored = {score.metric for score in record.scores}
    return [metric for metric in metrics if metric.name not in scored]


async def _gather_all(tasks: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits all tasks, then raises the first error: no paid call is abandoned."""
    awaited = list(tasks)
    if len(awaited) == 1:
        return [await awaited[0]]
    results = []
    for result in await asyncio.gather(*awaited, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


async def _score(
    record: Record,
    metric: Metric,
    judges: Judges,
    options: JudgingOptions,
    jury_calls: Sequence[JudgeCalls] | Score,
) -> Score:
    jury = lookup_for_task(judges, metric.name, record.sample.task)
    if not jury or not isinstance(metric, JudgedMetric):
        unasked = score_unasked(record, metric)
        return unasked.to_score() if isinstance(unasked, ComputedScore) else unasked
    response = record.response or Response(error="not generated")
    if response.is_empty:
        return score_empty(metric, record.sample, response)
    CURRENT_UNIT.set(f"{record.unit_id} {metric.name}")
    VOTERS.set({})
    if isinstance(jury_calls, Score):
        return jury_calls
    outcomes = await _gather_all(
        _ask_judge(record, response, metric, judge, calls) for judge, calls in jury_calls
    )
    score = combine_votes([score for score, _ in outcomes], options.vote)
    is_judged = any(is_verdict for _, is_verdict in outcomes)
    if is_judged or options.on_failure not in metric.without_judge:
        return score
    return score_without_judge(metric, record.sample, response, options.on_failure, score)


def score_unasked(record: Record, metric: Metric) -> ComputedScore | Score:
    """Scores a metric that no model judges, by code or by rules that read words alone."""
    response = record.response or Response(error="not generated")
    if isinstance(metric, ComputedMetric):
        return compute_score(metric, record.sample, response)
    assert isinstance(metric, JudgedMetric)
    return score_by_rules(metric, record.sample, response, {}, RULES)


def combine_votes(scores: Sequence[Score], vote: Vote) -> Score:
    """Combines the scores of several judges: the median verdict (the lower of two), or the most
    frequent (the median on a tie). It keeps all values (`jury` in its judgment) and their range
    (part DISAGREEMENT). Tokens and costs are sums. Without any verdict it is the first failure."""
    if len(scores) == 1:
        return scores[0]
    gave = [score for score in scores if score.value is not None]
    heard = sorted(gave, key=lambda score: score.value or 0.0)
    spent = {
        "usage": sum((score.usage for score in scores), Usage()),
        "cost_usd": sum(score.cost_usd for score in scores),
        "saved_usd": sum(score.saved_usd for score in scores),
        "latency_s": max(score.latency_s for score in scores),
        "cached": all(score.cached for score in scores),
        "calls": sum(score.calls or 0 for score in scores),
    }
    if not heard:
        return scores[0].model_copy(update=spent)
    values = [score.value or 0.0 for score in heard]
    middle = values[(len(values) - 1) // 2]
    chosen = middle
    if vote == "majority":
        chosen = max(values, key=lambda value: (values.count(value), value == middle))
    verdict = heard[values.index(chosen)]
    jury = [
        {"judge": score.judge, "value": score.value, "status": score.status} for score in scores
    ]
    judgment = json.loads(verdict.judgment or "{}") | {"jury": jury}
    parts = {**verdict.parts, DISAGREEMENT: values[-1] - values[0]}
    models = [name or "" for _, name in dict.fromkeys((s.judge, s.served_model) for s in gave)]
    named = {
        "judge": join_jurors(dict.fromkeys(score.judge for score in gave)),
        "served_model": join_jurors(models) if all(models) else None,
    }
    return verdict.model_copy(
        update={**spent, **named, "parts": parts, "judgment": dumps(judgment)}
    )


async def _ask_each(
    judge: Judge, metric: JudgedMetric, calls: Sequence[Sequence[Message]]
) -> Verdict:
    """Returns the verdict of one judge on its one call, or on all calls of the metric, joined;
    equal calls are made once. Raises the error of the first call that failed, with the costs of all
    and how many failed."""
    if metric.join is None:
        return await judge.judge(calls[0], metric.judgment)
    different = {tuple(messages): messages for messages in calls}
    outcomes = await asyncio.gather(
        *(judge.judge(messages, metric.judgment) for messages in different.values()),
        return_exceptions=True,
    )
    verdicts = [verdict for verdict in outcomes if isinstance(verdict, Verdict)]
    usage = sum((verdict.usage for verdict in verdicts), Usage())
    cost_usd = sum(verdict.cost_usd for verdict in verdicts)
    saved_usd = sum(verdict.saved_usd for verdict in verdicts)
    n_paid = sum(verdict.calls for verdict in verdicts if not verdict.cached)
    for outcome in outcomes:
        if isinstance(outcome, JudgeError):
            outcome.set_tokens(Usage.of(outcome) + usage)
            outcome.cost_usd += cost_usd
            outcome.saved_usd += saved_usd
            outcome.calls += n_paid
            n_failed = sum(isinstance(other, JudgeError) for other in outcomes)
            if n_failed < len(outcomes):
                what = f"{n_failed} of {len(outcomes)} calls gave no verdict"
                outcome.args = (f"{what}; the first: {outcome}",)
        if isinstance(outcome, BaseException):
            raise outcome
    by_call = dict(zip(different, verdicts, strict=True))
    return Verdict(
        judgment=metric.join([by_call[tuple(messages)].judgment for messages in calls]),
        judge=verdicts[0].judge,
        served_model=join_jurors(dict.fromkeys(filter(None, (v.served_model for v in verdicts))))
        or None,
        usage=usage,
        cost_usd=cost_usd,
        saved_usd=saved_usd,
        latency_s=max(verdict.latency_s for verdict in verdicts),
        cached=all(verdict.cached for verdict in verdicts),
        calls=n_paid,
    )


async def _ask_judge(
    record: Record,
    response: Response,
    metric: JudgedMetric,
    judge: Judge,
    calls: Sequence[Sequence[Message]],
) -> tuple[Score, bool]:
    """The score of one judge, and True if it is by a verdict, False if the judge failed."""
    try:
        verdict = await _ask_each(judge, metric, calls)
    except JudgeError as error:
        failed = Score(
            metric=metric.name,
            status="abstained" if isinstance(error, Refused) else "error",
            judge=judge.name,
            usage=Usage.of(error),
            cost_usd=error.cost_usd,
            saved_usd=error.saved_usd,
            calls=error.calls,
            error=describe_error(error),
        )
        return failed, False
    except EvalError:  # concerns the whole run: its budget, its services, its end
        raise
    except Exception as error:  # what the client did not foresee fails this one call
        return failed_score(metric, error, judge.name), False
    return score_by_verdict(metric, record.sample, response, verdict), True
