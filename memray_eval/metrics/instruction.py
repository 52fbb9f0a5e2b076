"""Metrics of instruction following: the checks of seed 004, and expected answers."""

from collections.abc import Callable

from memray_eval.benchmarks.instruction.answers import Match, compare, why_no_answer
from memray_eval.benchmarks.instruction.checks import (
    BANDS,
    CHECKS,
    PROMPT_TYPES,
    Result,
    band,
    score_response,
)
from memray_eval.metric import (
    Aggregates,
    Columns,
    ComputedMetric,
    MetricValue,
    ratio,
    section,
    statistics_block,
)
from memray_eval.text_processing.numerals import choices_of
from memray_eval.types import Response, Sample

_CUT = "length"  # the finish reason of a response that ran into its limit


def result(sample: Sample, response: Response) -> Result:
    """The checks of one response. Raises ConfigError for bad weights."""
    return score_response(
        sample.prompt_type,
        sample.query,
        response.text,
        sample.answers,
        is_cut=response.finish_reason == _CUT,
        weights=sample.metadata.get("weights"),
    )


def measure_quality(sample: Sample, response: Response) -> MetricValue:
    checked = result(sample, response)
    present = {f"{name}/n": 1.0 for name in checked.subscores}
    return MetricValue(value=checked.overall_score, parts={**checked.subscores, **present})


def applies_to_type(sample: Sample) -> str | None:
    if sample.prompt_type in PROMPT_TYPES:
        return None
    return f"prompt_type {sample.prompt_type!r} is none of: {', '.join(PROMPT_TYPES)}"


def aggregate_checks(columns: Columns) -> Aggregates:
    bands = [band(value).name for value in columns["value"]]
    return Aggregates(
        macro={
            check: ratio(float(columns[check].sum()), float(columns[f"{check}/n"].sum()))
            for check in CHECKS
        },
        extras={band_.name: bands.count(band_.name) / len(bands) for band_ in BANDS},
    )


def compared_metric(
    title: str, value_label: str, value_of: Callable[[Match], float], about: str
) -> ComputedMetric:
    """A metric that compares the response with the right answers."""

    def measure(sample: Sample, response: Response) -> MetricValue:
        compared = compare(sample.query, response.text, sample.answers, choices_of(sample))
        return MetricValue(value=float(value_of(compared)))

    return ComputedMetric(
        title=title,
        value_label=value_label,
        scale=(0, 1),
        requires=("answers",),
        level="last_turn",
        applies=lambda sample: why_no_answer(sample.answers),
        measure=measure,
        about=about,
    )


METRICS = {
    "answer_f1": compared_metric(
        "Answer F1",
        "F1",
        lambda compared: compared.f1,
        """\
LongBench's F1 of the response's words and values against the best answer; of a chosen option 1
or 0. See benchmarks/instruction/answers.py.

A number is one token by its value, its unit the next: see text_processing/values.py. LongBench's
own rule is `qa_f1`. A sample without a right answer is not scored.""",
    ),
    "exact_match": compared_metric(
        "Exact match",
        "Accuracy",
        lambda compared: compared.exact,
        """\
Whether the response is an expected answer: the option it chooses, equal JSON, or equal words and
values. See benchmarks/instruction/answers.py.

Numbers are compared by value, sign and unit, text without regard to case, punctuation, articles and
Unicode form: see text_processing/values.py. A sample without a right answer is not scored.""",
    ),
}
METRICS["instruction_quality"] = ComputedMetric(
    title="Instruction following",
    value_label="Score",
    scale=(0, 100),
    measure=measure_quality,
    applies=applies_to_type,
    parts=(*CHECKS, *(f"{check}/n" for check in CHECKS)),
    aggregate=aggregate_checks,
    layout=(
        statistics_block("Score", integer_scale=False),
        section(
            *(
                (
                    f"{band.name.title()} (from {band.low:g})",
                    f"extras.{band.name}",
                    "percent",
                    band.meaning,
                )
                for band in BANDS
            ),
            heading="  What the scores mean:",
        ),
        section(
            *((check, f"macro.{check}", "average") for check in CHECKS),
            heading="  Means of the checks:",
        ),
    ),
    about="""\
How well the response does what its prompt asks, 0-100, by the checks of the sample's prompt
type. Source: seed 004.

See benchmarks/instruction/checks.py. Its parts are the subscores of the checks that there were, and
under check/n that there was one, so that the mean of a check leaves out those without it.
metadata.weights replaces the type's weights.

macro: the mean of each check over the responses that had it. extras: the share of responses
in each band.""",
)
