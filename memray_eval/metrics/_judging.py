"""How a judge is asked: a rubric, and sections of data between markers that the judged text cannot
guess. See text_processing/judge_prompts.py for the order that they are sent in."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, get_origin

from pydantic import BaseModel

from memray_eval.config.sections import Seen, Weights
from memray_eval.errors import ConfigError, suggest
from memray_eval.metric import JudgedMetric, Metric, MetricValue
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.numerals import choice_lines, history_lines, memory_lines
from memray_eval.types import Message, Response, Sample

M = TypeVar("M", bound=Metric)
WITH_MEMORY: tuple[Seen, ...] = ("memory", "history", "query", "response")
_TEXT_OF: Mapping[Seen, Callable[[Sample, Response], str]] = {
    "query": lambda sample, response: sample.query + choice_lines(sample),
    "memory": lambda sample, response: memory_lines(sample),
    "history": lambda sample, response: history_lines(sample),
    "context": lambda sample, response: sample.context or "",
    "response": lambda sample, response: response.text,
    "answers": lambda sample, response: "\n".join(sample.answers),
}


def with_anchors(rubric: str, anchors: Mapping[float, str]) -> str:
    """The rubric with a line for each anchor, the best first, in the place of {anchors}."""
    lines = (f"{score:g}: {anchors[score]}" for score in sorted(anchors, reverse=True))
    return rubric.replace("{anchors}", "\n".join(lines))


def show(sample: Sample, response: Response, *parts: Seen) -> dict[str, str]:
    """The sections of a judge's prompt with these parts of a sample and its response, by name."""
    return {part.upper(): _TEXT_OF[part](sample, response) for part in parts}


def ask(rubric: str, *parts: Seen) -> Callable[[Sample, Response], JudgePrompt]:
    """The `prompt` of a metric whose judge sees these parts alone."""
    return lambda sample, response: JudgePrompt(rubric, show(sample, response, *parts))


def ask_in_talk(rubric: str) -> Callable[[Sample, Response], JudgePrompt]:
    """The `prompt` of a metric whose judge sees query, response, and history where there is one."""
    with_history, alone = (
        ask(rubric, "history", "query", "response"),
        ask(rubric, "query", "response"),
    )
    return lambda sample, response: (with_history if sample.history else alone)(sample, response)


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


def read_score(field: str) -> Callable[[Any, Sample, Response], MetricValue]:
    """The `measure` of a metric whose value is a field of the judgment."""
    return lambda judgment, sample, response: MetricValue(value=getattr(judgment, field))


def judge_silence(judgment: type[BaseModel], **decided: object) -> Callable[[Sample], BaseModel]:
    """The `on_empty`: no quotes, "empty response" as every text, and what is `decided`."""
    silence: dict[str, Any] = {
        name: [] if get_origin(field.annotation) is list else "empty response"
        for name, field in judgment.model_fields.items()
    }
    return lambda sample: judgment.model_validate({**silence, **decided})


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
