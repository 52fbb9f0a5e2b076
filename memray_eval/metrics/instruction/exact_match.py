"""Whether the response is an expected answer: the option it chooses, equal JSON, or equal text. See
benchmarks/instruction/answers.py."""

from __future__ import annotations

from memray_eval.benchmarks.instruction.answers import compare, why_no_answer
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    return MetricValue(value=float(compare(sample.query, response.text, sample.answers).exact))


METRIC = ComputedMetric(
    title="Exact match",
    value_label="Accuracy",
    scale=(0, 1),
    requires=("query", "answers"),
    applies=lambda sample: why_no_answer(sample.answers),
    measure=measure,
)
