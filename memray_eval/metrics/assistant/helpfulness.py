"""Helpfulness: does the response get the user further? Source: seed 000, metric 6.

One rubric score from 1 to 5 over how well the need is met and how readily the guidance can be acted
on. Tone is scored elsewhere. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics._shared.judging import ask_of_answer
from memray_eval.types import Response, Sample

RUBRIC = """
Score how much the response helps the person who asked, from 1 to 5. Ask what they need, whether the response meets it, and
whether they could act on it at once. Warmth and tone don't count here. Short, plain steps or recommendations count in its
favour; details that it makes up, with nothing in the query to support them, count against it.
5: answers the need itself, correctly and fully, and the next steps are plain. 4: can be acted on and is to the point, with
small gaps. 3: some of it helps, but something that matters is missing or left vague. 2: would fit almost any question, or
passes the main need by; little to act on. 1: about something else, a bare refusal, or no answer to the need.
In missing_info name each thing that the person needs and the response leaves out. In suggested_followups give the questions or
next steps that would help most from here. Leave a list empty where there is nothing to say.
"""  # noqa: E501


class HelpfulnessJudgment(BaseModel):
    """How much the response helps."""

    helpfulness_score: int = Field(ge=1, le=5)
    missing_info: list[str] = Field(
        default_factory=list, description="What the user needs and the response leaves out."
    )
    suggested_followups: list[str] = Field(default_factory=list)


def measure(judgment: HelpfulnessJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(value=judgment.helpfulness_score)


METRIC = JudgedMetric(
    title="HELPFULNESS (TASK EFFECTIVENESS)",
    value_label="Helpfulness",
    scale=(1, 5),
    integer_scale=True,
    judgment=HelpfulnessJudgment,
    prompt=ask_of_answer(RUBRIC),
    measure=measure,
    on_empty=lambda sample: HelpfulnessJudgment(
        helpfulness_score=1, missing_info=["any answer: the response is empty"]
    ),
    preferred_judge="anthropic/claude-opus-4-5",
)
