"""Metrics that users bring: a function or a rubric in a file of theirs, or a rubric in a job.

from memray_eval.metrics.own import computed_metric, judge_metric

sleepy = computed_metric(lambda sample, response: "sleep" in response.text)
tone = judge_metric("tone", rubric="Score how warm the response sounds, 1 to 5.")
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, create_model

from memray_eval.config.problems import describe
from memray_eval.config.sections import (
    OwnMetric,
    RubricMetric,
    Seen,
    names_a_text_file,
    read_rubric,
)
from memray_eval.errors import ConfigError
from memray_eval.extensions import OwnObject, OwnSource, entry_points, find_own_object, find_source
from memray_eval.metric import (
    OWN,
    ComputedMetric,
    JudgedMetric,
    Metric,
    MetricValue,
    NothingToScoreError,
)
from memray_eval.metrics._evidence import JUDGE, other_text, pairwise_metric
from memray_eval.metrics._judging import judge_silence, show
from memray_eval.own_code import guarded, to_number
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Response, Sample

_COMPARE = (
    "Say which of two answers to the same user is better by this rubric: FIRST, SECOND, or neither "
    "(tie).\n\n"
)

Measure = Callable[[Sample, Response], float | bool | None]


def computed_metric(
    fn: Measure, name: str | None = None, scale: tuple[float, float] = (0, 1)
) -> ComputedMetric:
    """A metric from a function of a sample and a response to a number on `scale`, or to a bool.

    It may also decorate the function, whose name it takes unless it is given one; a lambda has that
    of the attribute which holds it. None makes it not applicable to the unit; another value that is
    no number, or lies outside the scale, is an error of its unit. Raises ConfigError for a scale
    without room.

        brief = me.computed_metric(lambda sample, response: len(response.text) < 200, "brief")
    """
    own_name = getattr(fn, "__name__", "")
    named = name or ("" if own_name == "<lambda>" else own_name)
    low, high = _checked_scale(named or "computed_metric", scale)

    def measure(sample: Sample, response: Response) -> MetricValue:
        if (result := fn(sample, response)) is None:
            raise NothingToScoreError("the metric's function returned None")
        value = to_number(result)
        if not low <= value <= high:
            raise ValueError(f"returned {value:g}, outside its scale of {low:g} to {high:g}")
        return MetricValue(value)

    return ComputedMetric(
        name=named,
        family=OWN,
        title=named.upper(),
        value_label=named,
        scale=(low, high),
        about=(inspect.getdoc(fn) or "A function of your own.").split("\n")[0],
        measure=measure,
    )


def judge_metric(
    name: str,
    rubric: str,
    scale: tuple[float, float] = (1, 5),
    choices: Sequence[str] | None = None,
    sees: Sequence[Seen] = ("query", "response"),
) -> JudgedMetric:
    """A metric that a judge scores by a rubric: its text, or a .md or .txt file beside the
    caller's.

    The judge gives a reason and a score on `scale` (whole numbers where both ends are), or one of
    `choices`, from the worst to the best, which count 0 to 1 in even steps. It is shown what `sees`
    names. An empty response gets the lowest score without a call. There is no offline estimate:
    without a judge the metric is not applicable. Raises ConfigError for what does not fit.

        tone = me.judge_metric("tone", rubric="How warm is the response? 1: cold. 5: kind.")
        help = me.judge_metric("help", rubric="help.md", choices=["no", "some", "all"])
    """
    if names_a_text_file(rubric):
        folder = Path(sys._getframe(1).f_globals.get("__file__", ".")).parent
        rubric = read_rubric(folder / rubric)
    fields = {"name": name, "rubric": rubric, "scale": scale, "choices": choices, "sees": sees}
    try:
        spec = RubricMetric.model_validate(fields)
    except ValidationError as error:
        wrong = "; ".join(describe(error, RubricMetric))
        raise ConfigError(f"metric {name}: {wrong}") from None
    return metric_by_rubric(spec)


def metric_by_rubric(spec: RubricMetric) -> JudgedMetric:
    """The metric that a rubric in a job, or `judge_metric`, describes."""
    if spec.compares:
        return _metric_of_pairs(spec)
    low, high = _checked_scale(spec.name, spec.scale) if spec.choices is None else (0.0, 1.0)
    is_integer = spec.choices is None and low.is_integer() and high.is_integer()
    judgment = _judgment_of(spec, low, high, is_integer)
    # 0 for the first and worst to 1 for the last and best
    labels = spec.choices or ()
    values = {label: number / (len(labels) - 1) for number, label in enumerate(labels)}

    def ask(rubric: str, sample: Sample, response: Response) -> JudgePrompt:
        return JudgePrompt(rubric, show(sample, response, *spec.sees))

    def measure(verdict: Any, sample: Sample, response: Response) -> MetricValue:
        return MetricValue(values[verdict.choice] if spec.choices else float(verdict.score))

    worst = {"choice": spec.choices[0]} if spec.choices else {"score": low}
    return JudgedMetric(
        name=spec.name,
        family=OWN,
        title=spec.name.upper(),
        value_label=spec.name,
        scale=(low, high),
        about=f"A rubric of your own: {spec.rubric.strip().splitlines()[0]}",
        integer_scale=is_integer,
        # memory and history may be empty; a text or answers to compare with may not
        requires=("query", *(part for part in ("context", "answers") if part in spec.sees)),
        judgment=judgment,
        prompt=lambda sample, response: ask(spec.rubric, sample, response),
        prompt_with=ask,
        measure=measure,
        on_empty=judge_silence(judgment, reason="the response is empty", **worst),
        preferred_judge=JUDGE,
        described_by=spec,
    )


def _metric_of_pairs(spec: RubricMetric) -> JudgedMetric:
    """The metric whose judge says which of two answers is better by a rubric."""

    def ask(rubric: str, sample: Sample, response: Response) -> JudgePrompt:
        shown = show(sample, response, *spec.sees)
        answers = {"FIRST": shown.pop("RESPONSE"), "SECOND": other_text(sample)}
        return JudgePrompt(_COMPARE + rubric, shown | answers)

    return pairwise_metric(
        spec.rubric,
        ask,
        name=spec.name,
        family=OWN,
        title=spec.name.upper(),
        about=f"A rubric of your own, of pairs: {spec.rubric.strip().splitlines()[0]}",
        described_by=spec,
    )


def _checked_scale(name: str, scale: Sequence[float]) -> tuple[float, float]:
    if len(scale) != 2 or not all(map(math.isfinite, scale)) or scale[0] >= scale[1]:
        raise ConfigError(f"metric {name}: scale is {scale!r}; write its two ends, such as (1, 5)")
    return float(scale[0]), float(scale[1])


def _judgment_of(spec: RubricMetric, low: float, high: float, is_integer: bool) -> type[BaseModel]:
    fields: dict[str, Any] = {
        "reason": (str, Field(description="Why, in one or two sentences, by the rubric."))
    }
    if spec.choices:
        fields["choice"] = (Literal[tuple(spec.choices)], Field())
    elif is_integer:
        fields["score"] = (int, Field(ge=int(low), le=int(high)))
    else:
        fields["score"] = (float, Field(ge=low, le=high, allow_inf_nan=False))
    words = "".join(part.capitalize() for part in spec.name.split("_") if part.isalnum())
    return create_model(f"{words or 'Own'}Judgment", **fields)


def find_own_metrics(
    entries: Iterable[str | RubricMetric],
    include: Iterable[str] = (),
    suite: OwnObject | None = None,
) -> tuple[tuple[str, ...], tuple[OwnMetric, ...]]:
    """The names of the metrics that a job lists, and the sources of those that are not built in: of
    its list, of the files that it includes, and of its suite's file. Raises ConfigError."""
    names: list[str] = []
    own_metrics: dict[str, OwnMetric] = {}
    beside = {} if suite is None else suite.siblings()
    for path in include:
        own_metrics |= {metric.name: metric for metric in _metrics_of_file(find_source(path))}
    for entry in entries:
        if isinstance(entry, RubricMetric):
            is_file = names_a_text_file(entry.rubric)
            text = read_rubric(Path(entry.rubric)) if is_file else entry.rubric
            rubric = entry.model_copy(update={"rubric": text})
            metric_by_rubric(rubric)  # raises where it does not fit
            listed = [OwnMetric(name=entry.name, rubric=rubric)]
        elif suite is not None and (
            isinstance(beside_it := beside.get(entry), Metric) or inspect.isfunction(beside_it)
        ):
            listed = [_own_metric(replace(suite, attribute=entry))]
        elif entry in own_metrics or (code := find_own_object(entry)) is None:
            names.append(entry)
            continue
        elif code.attribute:
            listed = [_own_metric(code, entry if entry in entry_points() else "")]
        else:
            listed = _metrics_of_file(code.source)
        names += [metric.name for metric in listed]
        own_metrics |= {metric.name: metric for metric in listed}
    return tuple(dict.fromkeys(names)), tuple(own_metrics.values())


def _own_metric(code: OwnObject, name: str = "") -> OwnMetric:
    metric = _to_metric(code.load(), code.attribute, code.source.place)
    return OwnMetric(name=name or metric.name, code=code)


def _metrics_of_file(source: OwnSource) -> list[OwnMetric]:
    """All metrics that a file defines."""
    defined = [
        name
        for name, value in vars(source.load()).items()
        if isinstance(value, Metric) and not name.startswith("_")
    ]
    if not defined:
        raise ConfigError(
            f"{source.place} defines no metric; write NAME = computed_metric(...) or "
            f"judge_metric(...), or name a function: {source.name}:FUNCTION"
        )
    return [_own_metric(OwnObject(source, name)) for name in defined]


def load_own_metric(own: OwnMetric, timeout_s: float = math.inf) -> Metric:
    """The metric, in this process. What its functions do wrong is an error of their unit, and so is
    one that takes longer than `timeout_s` seconds. Raises ConfigError."""
    if own.rubric is not None:
        return metric_by_rubric(own.rubric)
    assert own.code is not None
    metric = _to_metric(own.code.load(), own.code.attribute, own.code.source.place)
    functions: dict[str, Any] = {
        field.name: guarded(value, f"metric {own.name}", timeout_s)
        for field in fields(metric)
        if inspect.isroutine(value := getattr(metric, field.name)) and value is not field.default
    }
    return replace(metric, name=own.name, **functions)


def _to_metric(value: Any, attribute: str, source: str) -> Metric:
    """What a user's file holds under a name, as a metric of that name, unless it has its own."""
    if isinstance(value, Metric):
        name = value.name or attribute
        return replace(
            value,
            name=name,
            family=value.family or OWN,
            title=value.title or name.upper(),
            value_label=value.value_label or name,
        )
    if inspect.isfunction(value):
        try:
            inspect.signature(value).bind("sample", "response")
        except TypeError as error:
            raise ConfigError(
                f"{source}: {attribute} is called with a sample and a response, and {error}; write "
                f"def {attribute}(sample, response): ... response.text, sample.query"
            ) from None
        return computed_metric(value, name=attribute)
    raise ConfigError(
        f"{source}: {attribute} is {type(value).__name__}, neither a metric nor a function of a "
        "sample and a response"
    )
