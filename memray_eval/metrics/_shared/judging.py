"""How a judge is asked: a rubric, and sections of data between markers that the judged text cannot
guess. See text_processing/judge_prompts.py for the order that they are sent in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memray_eval.metric import MetricValue
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.sample_text import history_lines, memory_lines
from memray_eval.types import Response, Sample


def with_anchors(rubric: str, anchors: Mapping[float, str]) -> str:
    """The rubric with a line for each anchor, the best first, in the place of {anchors}."""
    lines = (f"{score:g}: {anchors[score]}" for score in sorted(anchors, reverse=True))
    return rubric.replace("{anchors}", "\n".join(lines))


def judge_messages(rubric: str, sections: dict[str, str]) -> JudgePrompt:
    """The question of a judge call about the sections, by name."""
    return JudgePrompt(rubric, sections)


def ask_of_answer(rubric: str) -> Callable[[Sample, Response], JudgePrompt]:
    """The `prompt` of a metric whose judge sees the query and the response alone."""
    return lambda sample, response: judge_messages(
        rubric, {"QUERY": sample.query, "RESPONSE": response.text}
    )


def read_score(field: str) -> Callable[[Any, Sample, Response], MetricValue]:
    """The `measure` of a metric whose value is a field of the judgment."""
    return lambda judgment, sample, response: MetricValue(value=getattr(judgment, field))


def with_memory(sample: Sample, response: Response) -> dict[str, str]:
    """The sections that a metric about the use of memory shows its judge."""
    return {
        "MEMORY": memory_lines(sample),
        "HISTORY": history_lines(sample),
        "QUERY": sample.query,
        "RESPONSE": response.text,
    }
