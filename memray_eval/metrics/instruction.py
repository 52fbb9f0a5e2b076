"""How well the response does what its prompt asks, 0-100, by the checks of the sample's prompt
type. Source: seed 004.

See benchmarks/instruction/checks.py. Its parts are the subscores of the checks that there were, and
under check/n that there was one, so that the mean of a check leaves out those without it.
metadata.weights replaces the type's weights."""

from __future__ import annotations

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


def measure(sample: Sample, response: Response) -> MetricValue:
    checked = result(sample, response)
    present = {f"{name}/n": 1.0 for name in checked.subscores}
    return MetricValue(value=checked.overall_score, parts={**checked.subscores, **present})


def applies(sample: Sample) -> str | None:
    if sample.prompt_type in PROMPT_TYPES:
        return None
    return f"prompt_type {sample.prompt_type!r} is none of: {', '.join(PROMPT_TYPES)}"


def aggregate(columns: Columns) -> Aggregates:
    """macro: the mean of each check over the responses that had it. extras: the share of responses
    in each band."""
    bands = [band(value).name for value in columns["value"]]
    return Aggregates(
        macro={
            check: ratio(float(columns[check].sum()), float(columns[f"{check}/n"].sum()))
            for check in CHECKS
        },
        extras={band_.name: bands.count(band_.name) / len(bands) for band_ in BANDS},
    )


METRIC = ComputedMetric(
    title="Instruction following",
    value_label="Score",
    scale=(0, 100),
    measure=measure,
    applies=applies,
    parts=(*CHECKS, *(f"{check}/n" for check in CHECKS)),
    aggregate=aggregate,
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
)
