"""Whether the response lists events in the right order: Kendall's tau-b, laid over 0-1.

A judge says which of the reference's events each item of the response is; the order is compared
here: what BEAM's code reports for event ordering is (tau-b + 1) / 2 over the union of both lists,
what a list lacks tied behind its last. Parts: `f1` of the events listed, and `final`, tau times F1,
which the code computes and leaves out of its table. The code asks a judge about every pair of an
item and an event; one call that names the matches is ours. Source: benchmarks/beam.py."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.benchmarks.beam import ORDERING, order_score
from memray_eval.metric import JudgedMetric, MetricValue, means_of, section
from memray_eval.metrics.long_context.beam_rubric import items_of
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message, Response, Sample

TASK = """
A user asked an assistant to list events in their order. EVENTS are the right ones, numbered; the RESPONSE lists some.
Go through what the response lists, from first to last, and write in `order`, for each item, the number of the event that it is.
Write 0 for an item that is none of the events, and give each number once. Do not sort: keep the response's order.
A response that lists nothing has an empty order.
"""  # noqa: E501


class EventOrderJudgment(BaseModel):
    """Which events the response lists, in its order."""

    reason: str = Field(description="How the items match the events, in one or two sentences.")
    order: list[int] = Field(description="The event numbers in the response's order, 0 for none.")


def applies(sample: Sample) -> str | None:
    if sample.task in ("", ORDERING):
        return None
    return f"{sample.task} asks for no order; {ORDERING} does"


def prompt_with(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    events = "\n".join(f"{number}. {item}" for number, item in enumerate(items_of(sample), 1))
    return JudgePrompt(
        rubric, {"QUESTION": sample.query, "EVENTS": events, "RESPONSE": response.text}
    )


def measure(judgment: EventOrderJudgment, sample: Sample, response: Response) -> MetricValue:
    score = order_score(len(items_of(sample)), judgment.order)
    return MetricValue(score.tau, {"f1": score.f1, "final": score.final})


METRIC = JudgedMetric(
    title="BEAM EVENT ORDER (BEAM b2a3ee8)",
    value_label="Tau-b",
    scale=(0, 1),
    judgment=EventOrderJudgment,
    requires=("answers",),
    prompt=lambda sample, response: prompt_with(TASK, sample, response),
    prompt_with=prompt_with,
    applies=applies,
    rubrics={"own words": TASK},
    measure=measure,
    on_empty=lambda sample: EventOrderJudgment(reason="the response is empty", order=[]),
    preferred_judge="openai/gpt-4o-mini",
    version=1,
    anchors={1.0: "the reference's order", 0.0: "its reverse, or none of its events"},
    parts=("f1", "final"),
    aggregate=means_of("f1", "final"),
    layout=(
        section(
            ("Tau-b, 0 to 1", "mean", "score", "higher is better"),
            ("F1 of the Events", "extras.f1"),
            ("Tau-b times F1", "extras.final"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)
