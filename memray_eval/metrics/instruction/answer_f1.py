"""LongBench's F1 of the response's words and values against the best answer; of a chosen option 1
or 0. See benchmarks/instruction/answers.py.

A number is one token by its value, its unit the next: see text_processing/values.py. LongBench's
own rule is `qa_f1`. A sample without a right answer is not scored."""

from __future__ import annotations

from memray_eval.benchmarks.instruction.answers import compare, why_no_answer
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.text_processing.numerals import choices_of
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    compared = compare(sample.query, response.text, sample.answers, choices_of(sample))
    return MetricValue(value=compared.f1)


METRIC = ComputedMetric(
    title="Answer F1",
    value_label="F1",
    scale=(0, 1),
    requires=("answers",),
    level="last_turn",
    applies=lambda sample: why_no_answer(sample.answers),
    measure=measure,
)
