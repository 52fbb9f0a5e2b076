"""Metrics by yes/no questions: what a model's P(yes) on each says of a response, weighed by a fit
to people's labels. The value is low + (high - low) * sigmoid(intercept + sum of weight * log
(P(yes) / P(no))) on the metric's scale."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from memray_eval.config.sections import FittedQuestions, JudgingConfig, Jury
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, reason_of
from memray_eval.judges.first_token import FirstTokenJudgment, revision_of
from memray_eval.metric import JudgedMetric, Metric, MetricValue, keep_all, no_aggregates
from memray_eval.text_processing.judge_prompts import JudgePrompt, question_messages
from memray_eval.types import QUESTIONS, Message, Response, Sample, dumps

LEAST_P = 1e-4  # of P(yes) and P(no), so that one sure answer does not decide alone
Fits = dict[str, FittedQuestions]
_FITS = TypeAdapter(Fits)


class QuestionAnswers(BaseModel):
    """P(yes) by question."""

    p_yes: dict[str, float]


@cache
def question_sets() -> Mapping[str, Mapping[str, str]]:
    """By metric, the texts of its questions by id."""
    file = importlib.resources.files("memray_eval.metrics") / "questions.yaml"
    sets: Mapping[str, Mapping[str, str]] = parse_yaml(file.read_text("utf-8"))
    return sets


def questions_of(metric: str) -> Mapping[str, str]:
    """A metric's questions by id. Raises ConfigError if it has none."""
    if metric not in question_sets():
        raise ConfigError(
            f"judge: questions: {metric} has none; name its judge, as in judge: {{{metric}: "
            f"PROVIDER/MODEL}}. There are questions for: {', '.join(question_sets())}"
        )
    return question_sets()[metric]


def digest_of(questions: Mapping[str, str]) -> str:
    """What a fit remembers the texts of its questions by."""
    return hashlib.blake2b(dumps(dict(questions)).encode(), digest_size=8).hexdigest()


def logit(p_yes: float) -> float:
    p = min(max(p_yes, LEAST_P), 1 - LEAST_P)
    return math.log(p / (1 - p))


_MEASURES = {"model", "revision", "weights", "intercept"}


def metric_by_questions(metric: Metric, fit: FittedQuestions) -> JudgedMetric:
    """The metric with a call for each of its questions in place of its judge's, on the same
    material. Raises ConfigError if it has none."""
    assert isinstance(metric, JudgedMetric)
    own, questions, (low, high) = metric, questions_of(metric.name), metric.scale

    def calls(rubric: str, sample: Sample, response: Response) -> Sequence[tuple[Message, ...]]:
        prompt = own.prompt(sample, response)
        assert isinstance(prompt, JudgePrompt)
        return [question_messages(prompt.sections, text) for text in questions.values()]

    def join(judgments: Sequence[FirstTokenJudgment]) -> QuestionAnswers:
        answers = (judgment.p_yes for judgment in judgments)
        return QuestionAnswers(p_yes=dict(zip(questions, answers, strict=True)))

    def measure(judgment: Any, sample: Sample, response: Response) -> MetricValue:
        if not isinstance(judgment, QuestionAnswers):  # of an empty response
            return MetricValue(own.measure(judgment, sample, response).value)
        terms = (fit.weights[name] * logit(p) for name, p in judgment.p_yes.items())
        return MetricValue(low + (high - low) / (1 + math.exp(-fit.intercept - sum(terms))))

    def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
        """For the manifest's digest: all that makes the figures."""
        made_of = {"questions": dict(questions), **fit.model_dump(include=_MEASURES)}
        return (Message(role="system", content=dumps(made_of)),)

    return replace(
        metric,
        judgment=FirstTokenJudgment,
        prompt=prompt,
        calls=calls,
        join=join,
        measure=measure,
        verify=keep_all,
        rubrics={},
        prompt_with=None,
        parts=(),
        aggregate=no_aggregates,
        pooled=None,
        layout=(),
        integer_scale=False,
        fit=fit,
    )


def read_fits(path: str) -> Fits:
    """The fits of a file, by metric. Raises ConfigError if it is none."""
    try:
        return _FITS.validate_json(Path(path).read_bytes())
    except (OSError, ValidationError) as error:
        why = "--fit-questions did not write it"
        if isinstance(error, OSError):
            why = f"{reason_of(error)}; `calibrate --fit-questions --save` writes one"
        raise ConfigError(f"no fit of questions in {path}: {why}") from None


def write_fits(path: str, fits: Fits) -> None:
    """Writes fits, beside those of other metrics that the file has."""
    before = read_fits(path) if Path(path).exists() else {}
    text = json.dumps(_FITS.dump_python(before | fits, mode="json"), indent=2, ensure_ascii=False)
    Path(path).write_text(text + "\n", "utf-8")


def fits_for(
    judge: Jury | Mapping[str, Jury], metrics: Iterable[Metric], judging: JudgingConfig
) -> Fits:
    """The fit of each metric that goes by questions. Raises ConfigError for one without, or that
    was made for another model's revision or for other questions."""
    by_key = judge if isinstance(judge, Mapping) else {m.name: judge for m in metrics}
    for key, jury in by_key.items():
        if "/" in key and jury == QUESTIONS:
            raise ConfigError(f"judge: {key}: a metric goes by questions for all tasks or for none")
    return {
        metric.name: _fit_of(metric.name, judging)
        for metric in metrics
        if isinstance(metric, JudgedMetric) and by_key.get(metric.name) == QUESTIONS
    }


def _fit_of(metric: str, judging: JudgingConfig) -> FittedQuestions:
    questions, path = questions_of(metric), judging.questions.fit
    fits = {} if path is None else read_fits(path)
    how = (
        f"`memray-eval calibrate LABELS --metric {metric} --judge "
        f"{fits[metric].model if metric in fits else 'SERVER/MODEL'} --fit-questions --save "
        f"{path or 'FIT.json'}`"
    )
    if (fit := fits.get(metric)) is None:
        where = f"{path} has" if path else "judging.questions.fit names no file, so there are"
        raise ConfigError(f"judge: questions: {where} no weights for {metric}; fit them: {how}")
    if fit.questions != digest_of(questions) or fit.weights.keys() != questions.keys():
        raise ConfigError(
            f"judge: questions: those of {metric} have changed since {path} was fitted; fit them "
            f"again: {how}"
        )
    if (now := revision_of(fit.model, judging)) != fit.revision:
        raise ConfigError(
            f"judge: questions: {path} was fitted on {fit.model} at {fit.revision}, and here is "
            f"{now}; serve that revision, or fit this one: {how}"
        )
    return fit
