"""How far the response meets the items of BEAM's rubric: one judge call an item, 0, 0.5 or 1.

value = the mean over the question's items, as the paper says; the part `as_code` is the same with
0.5 cut to 0, as the code computes it in nine of ten abilities (event ordering keeps it). With
`templates:` a copy of the benchmark's repository, the judge is asked by its own prompt, whose
<question> its code never fills; otherwise in our words, with the question. Source:
benchmarks/beam.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from memray_eval.benchmarks.beam import TASK, as_code, as_paper, fill_official
from memray_eval.metric import JudgedMetric, MetricValue, means_of, section
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message, Response, Sample

AS_CODE = "as_code"


STEPS = ("1.0", "0.5", "0.0")


def _read_step(score: Any) -> Any:
    step = float(score) if isinstance(score, str) else score
    if step not in map(float, STEPS):
        raise ValueError("score must be 1.0, 0.5 or 0.0")
    return step


class ItemJudgment(BaseModel):
    """How far the response meets one item."""

    reason: str = Field(description="Why, in one or two sentences.")
    # As texts: Google's schemas have no enumeration of numbers. A number is read too
    score: Annotated[
        float, BeforeValidator(_read_step), WithJsonSchema({"type": "string", "enum": [*STEPS]})
    ]


class RubricJudgment(BaseModel):
    """The judgments of all items, in their order."""

    items: list[ItemJudgment]


def items_of(sample: Sample) -> list[str]:
    """The rubric's items; of a sample without one its answers, each of which must be met."""
    items = sample.metadata.get("rubric")
    return [str(item) for item in items] if isinstance(items, list) and items else [*sample.answers]


def calls(rubric: str, sample: Sample, response: Response) -> list[tuple[Message, ...]]:
    """One call an item."""
    prompts: list[tuple[Message, ...]] = []
    for item in items_of(sample):
        official = fill_official(rubric, item, response.text)
        if official is not None:
            prompts.append((Message(role="user", content=official),))
            continue
        sections = {"QUESTION": sample.query, "CRITERION": item, "RESPONSE": response.text}
        prompts.append(JudgePrompt(rubric, sections))
    return prompts


def join(judgments: Sequence[ItemJudgment]) -> RubricJudgment:
    return RubricJudgment(items=list(judgments))


def measure(
    judgment: RubricJudgment | ItemJudgment, sample: Sample, response: Response
) -> MetricValue:
    items = judgment.items if isinstance(judgment, RubricJudgment) else [judgment]
    scores = [item.score for item in items]
    return MetricValue(as_paper(scores), {AS_CODE: as_code(scores, sample.task)})


def prompt_with(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    """The call about the first item."""
    return next(iter(calls(rubric, sample, response)), JudgePrompt(rubric, {}))


METRIC = JudgedMetric(
    title="BEAM RUBRIC (BEAM b2a3ee8)",
    value_label="Rubric Score",
    scale=(0, 1),
    judgment=ItemJudgment,
    requires=("answers",),
    prompt=lambda sample, response: prompt_with(TASK, sample, response),
    prompt_with=prompt_with,
    calls=calls,
    join=join,
    rubrics={"own words": TASK},
    measure=measure,
    on_empty=lambda sample: RubricJudgment(
        items=[ItemJudgment(reason="the response is empty", score=0.0) for _ in items_of(sample)]
    ),
    preferred_judge="openai/gpt-4o-mini",
    version=2,
    anchors={1.0: "the item is met", 0.5: "it is met in part", 0.0: "it is not met"},
    parts=(AS_CODE,),
    aggregate=means_of(AS_CODE),
    layout=(
        section(
            ("As the Paper Says", "mean", "score", "higher is better"),
            ("As the Code Has It", f"extras.{AS_CODE}"),
            ("Std Deviation", "std"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)
