"""How a judge is asked: a rubric, and sections of data between markers that the judged text cannot
guess. See text_processing/judge_prompts.py for the order that they are sent in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

from pydantic import BaseModel

from memray_eval.config.sections import Seen
from memray_eval.metric import MetricValue
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.sample_text import history_lines, memory_lines
from memray_eval.types import Response, Sample

WITH_MEMORY: tuple[Seen, ...] = ("memory", "history", "query", "response")
_TEXT_OF: Mapping[Seen, Callable[[Sample, Response], str]] = {
    "query": lambda sample, response: sample.query,
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


def read_score(field: str) -> Callable[[Any, Sample, Response], MetricValue]:
    """The `measure` of a metric whose value is a field of the judgment."""
    return lambda judgment, sample, response: MetricValue(value=getattr(judgment, field))


def judge_silence(
    judgment: type[BaseModel], **decided: float | str
) -> Callable[[Sample], BaseModel]:
    """The `on_empty` of a metric: no quotes, "empty response" as every text, and what is
    `decided`."""
    silence: dict[str, Any] = {
        name: [] if get_origin(field.annotation) is list else "empty response"
        for name, field in judgment.model_fields.items()
    }
    return lambda sample: judgment.model_validate({**silence, **decided})
