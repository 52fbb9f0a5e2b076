"""The call by which a model revises a rubric: a metric of a run of `improve`, for the run's cache,
budget and limits. It is in no catalogue."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message, Response, Sample

RUBRIC = """
CURRENT is the rubric by which a judge scores responses. CAUSES says how its scores differ from people's, and CASES has responses
that it scores otherwise than people, with both scores on people's scale. Revise the rubric so that a judge who goes by it scores
as these people do.
- Find what the cases have in common: what people reward or forgive, and the judge does not. State it as a general rule. Quote no
  case and name nothing that stands in one: other responses will be judged.
- Keep the scale, the steps and the fields that CURRENT asks for, in its order, and all of it that is not at fault.
- Write no rule that follows from a single case.
First say in findings what the judge gets wrong, then write the whole revised rubric.
"""  # noqa: E501


class RevisedRubric(BaseModel):
    """A judge's faults, and the rubric that mends them."""

    findings: str = Field(description="What the judge gets wrong, in two or three sentences.")
    rubric: str = Field(min_length=1, description="The whole revised rubric.")


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    """The current rubric is the sample's query, the causes its context, the cases its response."""
    shown = {"CURRENT": sample.query, "CAUSES": sample.context or "", "CASES": response.text}
    return JudgePrompt(RUBRIC, shown)


METRIC = JudgedMetric(
    name="revised_rubric",
    title="REVISED RUBRIC",
    value_label="Revised",
    scale=(0, 1),
    judgment=RevisedRubric,
    prompt=prompt,
    measure=lambda judgment, sample, response: MetricValue(1.0),
    on_empty=lambda sample: RevisedRubric(findings="no case", rubric="-"),
    preferred_judge="openai/gpt-4o",
    version=1,
)
