"""Whether a judge's reply to LongMemEval's question about the response holds "yes".

One prompt a type of question, another where the question cannot be answered. With `templates:` a
copy of the benchmark's repository, they are its own, word for word; otherwise they are in our
words. As in its code the label is whether "yes" stands anywhere in the reply, so that "yesterday"
passes; semantic_correctness reads a verdict instead. The benchmark asks gpt-4o-2024-08-06 at
temperature 0. Source: benchmarks/longmemeval.py."""

from pydantic import BaseModel, Field

from memray_eval.benchmarks.longmemeval import KINDS, TASK, UNANSWERABLE, fill_official
from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics.long_context.abstention import is_unanswerable
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message, Response, Sample


class LongMemEvalJudgment(BaseModel):
    """The judge's answer to whether the response is right."""

    reply: str = Field(description="yes or no, and nothing else")


def prompt_with(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    """The official prompt for the question's type, or the rubric with what it asks of the type."""
    kind = UNANSWERABLE if is_unanswerable(sample) else sample.task
    answer = "; ".join(sample.answers)
    official = fill_official(rubric, kind, sample.query, answer, response.text)
    if official is not None:
        return (Message(role="user", content=official),)
    sections = {"QUESTION": sample.query, "REFERENCE": answer, "RESPONSE": response.text}
    return JudgePrompt("\n".join((rubric.strip(), KINDS.get(kind, ""))), sections)


def measure(judgment: LongMemEvalJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(float("yes" in judgment.reply.lower()))


METRIC = JudgedMetric(
    title="LONGMEMEVAL ACCURACY (LongMemEval 9e0b455)",
    value_label="Accuracy",
    scale=(0, 1),
    requires=("answers",),
    judgment=LongMemEvalJudgment,
    prompt=lambda sample, response: prompt_with(TASK, sample, response),
    prompt_with=prompt_with,
    rubrics={"own words": TASK},
    measure=measure,
    on_empty=lambda sample: LongMemEvalJudgment(reply="no"),
    preferred_judge="openai/gpt-4o",
    version=1,
    anchors={1.0: "the reply holds yes", 0.0: "the reply does not hold yes"},
)
