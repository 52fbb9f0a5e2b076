"""Whether the response is an expected answer: the option it chooses, equal JSON, or equal words and
values. See benchmarks/instruction/answers.py.

Numbers are compared by value, sign and unit, text without regard to case, punctuation, articles and
Unicode form: see text_processing/values.py. A sample without a right answer is not scored."""

from __future__ import annotations

from memray_eval.benchmarks.instruction.answers import compare, why_no_answer
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.text_processing.numerals import choices_of
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    compared = compare(sample.query, response.text, sample.answers, choices_of(sample))
    return MetricValue(value=float(compared.exact))


METRIC = ComputedMetric(
    title="Exact match",
    value_label="Accuracy",
    scale=(0, 1),
    requires=("answers",),
    level="last_turn",
    applies=lambda sample: why_no_answer(sample.answers),
    measure=measure,
)
