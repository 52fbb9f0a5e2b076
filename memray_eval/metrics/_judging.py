"""How a judge is asked: a rubric, and sections of data between markers that the judged text cannot
guess. See text_processing/judge_prompts.py for the order that they are sent in."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, get_origin

from pydantic import BaseModel

from memray_eval.config.sections import Seen, Weights
from memray_eval.errors import ConfigError, suggest
from memray_eval.metric import (
    JudgedMetric,
    Metric,
    MetricValue,
    Verify,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.numerals import choice_lines, history_lines, memory_lines
from memray_eval.types import Message, Response, Sample

M = TypeVar("M", bound=Metric)
Part: TypeAlias = Seen | Literal["emotion", "traits"]
WITH_MEMORY: tuple[Seen, ...] = ("memory", "history", "query", "response")
_TEXT_OF: Mapping[Part, Callable[[Sample, Response], str]] = {
    "query": lambda sample, response: sample.query + choice_lines(sample),
    "memory": lambda sample, response: memory_lines(sample),
    "history": lambda sample, response: history_lines(sample),
    "context": lambda sample, response: sample.context or "",
    "response": lambda sample, response: response.text,
    "answers": lambda sample, response: "\n".join(sample.answers),
    "emotion": lambda sample, response: _share_lines(
        dict(sorted(sample.emotion.items(), key=lambda item: -item[1]))
    ),
    "traits": lambda sample, response: _share_lines(sample.traits),
}


def _share_lines(shares: Mapping[str, float]) -> str:
    return "\n".join(f"{name}: {share:.2f}" for name, share in shares.items())


def show(sample: Sample, response: Response, *parts: Part) -> dict[str, str]:
    """The sections of a judge's prompt with these parts of a sample and its response, by name."""
    return {part.upper(): _TEXT_OF[part](sample, response) for part in parts}


def ask(rubric: str, *parts: Part) -> Callable[[Sample, Response], JudgePrompt]:
    """The `prompt` of a metric whose judge sees these parts alone; without any it sees query and
    response, and the history if there is any."""

    def prompt(sample: Sample, response: Response) -> JudgePrompt:
        talk = WITH_MEMORY[1:] if sample.history else WITH_MEMORY[2:]
        return JudgePrompt(rubric, show(sample, response, *(parts or talk)))

    return prompt


def with_any_rubric(metric: M) -> M:
    """A judged metric of one rubric that can also be asked by a user's, in the place of its own."""
    if not isinstance(metric, JudgedMetric) or metric.prompt_with is not None:
        return metric
    ask_by_own = metric.prompt

    def ask_by(text: str, sample: Sample, response: Response) -> tuple[Message, ...]:
        prompt = ask_by_own(sample, response)
        assert isinstance(prompt, JudgePrompt)
        system, *material = prompt
        content = system.content.replace(prompt.rubric.strip(), text.strip())
        return (system.model_copy(update={"content": content}), *material)

    return replace(metric, prompt_with=ask_by)


def judge_silence(judgment: type[BaseModel], **decided: object) -> Callable[[Sample], BaseModel]:
    """The `on_empty`: no quotes, "empty response" as every text, and what is `decided`."""
    silence: dict[str, Any] = {
        name: [] if get_origin(field.annotation) is list else "empty response"
        for name, field in judgment.model_fields.items()
    }
    return lambda sample: judgment.model_validate({**silence, **decided})


def rubric_metric(
    about: str,
    rubric: str,
    anchors: Mapping[float, str],
    *,
    judgment: type[BaseModel],
    verify: Verify,
    empty: Mapping[str, object],
    value_label: str,
    sees: tuple[Part, ...] = (),
    counts: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    **fields: Any,
) -> JudgedMetric:
    """A metric whose judge scores by a rubric, from 1 to 5 in whole numbers or from 0 to 1, with a
    line for each of the `anchors`, the best first, in the place of {anchors}. The score is the last
    field of `judgment`, in which an empty response has what is in `empty`. `sees`: as for `ask`.
    `counts` has the judgment's lists that are counted: the part of each, and its label."""
    *_, score = judgment.model_fields
    is_integer = max(anchors) > 1
    labels = dict(counts.values())
    levels = (f"{level:g}: {anchors[level]}" for level in sorted(anchors, reverse=True))

    def measure(verdict: Any, sample: Sample, response: Response) -> MetricValue:
        parts = {part: len(getattr(verdict, listed)) for listed, (part, _) in counts.items()}
        return MetricValue(getattr(verdict, score), parts)

    return with_any_rubric(
        JudgedMetric(
            value_label=value_label,
            scale=(1, 5) if is_integer else (0, 1),
            integer_scale=is_integer,
            judgment=judgment,
            prompt=ask(rubric.replace("{anchors}", "\n".join(levels)), *sees),
            measure=measure,
            verify=verify,
            on_empty=judge_silence(judgment, **empty),
            anchors=anchors,
            about=about,
            parts=tuple(labels),
            aggregate=sums_and_means(labels),
            layout=(statistics_block(value_label, is_integer), counts_block(labels)) * bool(labels),
            **fields,
        )
    )


TOLERANCE = 1e-6
ByTask: TypeAlias = Mapping[str, Mapping[str, float]]  # "" for every task without its own


def weights_by_task(weights: Weights, default: Mapping[str, float], what: str) -> ByTask:
    """The weights of tasks that have their own, and under "" all others'. Raises ConfigError."""
    of_all = {name: share for name, share in weights.items() if not isinstance(share, Mapping)}
    by_task = {task: shares for task, shares in weights.items() if isinstance(shares, Mapping)}
    checked = {task: check_weights(shares, default, what) for task, shares in by_task.items()}
    return {"": check_weights(of_all or default, default, what), **checked}


def check_weights(
    weights: Mapping[str, float], scores: Collection[str], what: str
) -> dict[str, float]:
    """Weights that sum to 1, in the order of `scores`. Raises ConfigError."""
    for name, weight in weights.items():
        if name not in scores:
            raise ConfigError(f"{what}: no score {name!r}; {suggest(name, scores)}")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight < math.inf:
            raise ConfigError(f"{what}: {name} is {weight!r}; a weight is a number from 0 to 1")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > TOLERANCE:
        raise ConfigError(
            f"{what}: they sum to {total:.7g}, not 1; a score that is left out weighs 0"
        )
    return {name: float(weights[name]) for name in scores if name in weights}


def describe_weights(weights: Mapping[str, float]) -> str:
    """Weights in words, as the name of who scored has them."""
    return f"weights {' '.join(f'{name}={share:g}' for name, share in weights.items())}"
