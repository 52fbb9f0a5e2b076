"""BEAM's own metrics: how far a response meets the items of a rubric, and the order of events."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from memray_eval.benchmarks.beam import (
    ORDERING,
    TASK,
    as_code,
    as_paper,
    fill_official,
    order_score,
)
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


def ask_items(rubric: str, sample: Sample, response: Response) -> list[tuple[Message, ...]]:
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


def join_items(judgments: Sequence[ItemJudgment]) -> RubricJudgment:
    return RubricJudgment(items=list(judgments))


def measure_items(
    judgment: RubricJudgment | ItemJudgment, sample: Sample, response: Response
) -> MetricValue:
    items = judgment.items if isinstance(judgment, RubricJudgment) else [judgment]
    scores = [item.score for item in items]
    return MetricValue(as_paper(scores), {AS_CODE: as_code(scores, sample.task)})


def ask_first(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    """The call about the first item."""
    return next(iter(ask_items(rubric, sample, response)), JudgePrompt(rubric, {}))


EVENTS_TASK = """
A user asked an assistant to list events in their order. EVENTS are the right ones, numbered; the RESPONSE lists some.
Go through what the response lists, from first to last, and write in `order`, for each item, the number of the event that it is.
Write 0 for an item that is none of the events, and give each number once. Do not sort: keep the response's order.
A response that lists nothing has an empty order.
"""  # noqa: E501


class EventOrderJudgment(BaseModel):
    """Which events the response lists, in its order."""

    reason: str = Field(description="How the items match the events, in one or two sentences.")
    order: list[int] = Field(description="The event numbers in the response's order, 0 for none.")


def asks_order(sample: Sample) -> str | None:
    if sample.task in ("", ORDERING):
        return None
    return f"{sample.task} asks for no order; {ORDERING} does"


def ask_order(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    events = "\n".join(f"{number}. {item}" for number, item in enumerate(items_of(sample), 1))
    return JudgePrompt(
        rubric, {"QUESTION": sample.query, "EVENTS": events, "RESPONSE": response.text}
    )


def measure_order(judgment: EventOrderJudgment, sample: Sample, response: Response) -> MetricValue:
    score = order_score(len(items_of(sample)), judgment.order)
    return MetricValue(score.tau, {"f1": score.f1, "final": score.final})


METRICS = {
    "beam_rubric": JudgedMetric(
        title="BEAM RUBRIC (BEAM b2a3ee8)",
        value_label="Rubric Score",
        scale=(0, 1),
        judgment=ItemJudgment,
        requires=("answers",),
        prompt=lambda sample, response: ask_first(TASK, sample, response),
        prompt_with=ask_first,
        calls=ask_items,
        join=join_items,
        rubrics={"own words": TASK},
        measure=measure_items,
        on_empty=lambda sample: RubricJudgment(
            items=[
                ItemJudgment(reason="the response is empty", score=0.0) for _ in items_of(sample)
            ]
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
        about="""\
How far the response meets the items of BEAM's rubric: one judge call an item, 0, 0.5 or 1.

value = the mean over the question's items, as the paper says; the part `as_code` is the same with
0.5 cut to 0, as the code computes it in nine of ten abilities (event ordering keeps it). With
`templates:` a copy of the benchmark's repository, the judge is asked by its own prompt, whose
<question> its code never fills; otherwise in our words, with the question. Source:
benchmarks/beam.py.""",
    ),
    "beam_event_order": JudgedMetric(
        title="BEAM EVENT ORDER (BEAM b2a3ee8)",
        value_label="Tau-b",
        scale=(0, 1),
        judgment=EventOrderJudgment,
        requires=("answers",),
        prompt=lambda sample, response: ask_order(EVENTS_TASK, sample, response),
        prompt_with=ask_order,
        applies=asks_order,
        rubrics={"own words": EVENTS_TASK},
        measure=measure_order,
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
        about="""\
Whether the response lists events in the right order: Kendall's tau-b, laid over 0-1.

A judge says which of the reference's events each item of the response is; the order is compared
here: what BEAM's code reports for event ordering is (tau-b + 1) / 2 over the union of both lists,
what a list lacks tied behind its last. Parts: `f1` of the events listed, and `final`, tau times F1,
which the code computes and leaves out of its table. The code asks a judge about every pair of an
item and an event; one call that names the matches is ours. Source: benchmarks/beam.py.""",
    ),
}
