"""Whether the response follows all constraints of metadata.constraints, as IFEval counts: see
benchmarks/instruction/constraints.py.

The value is the prompt's strict accuracy (1: all are followed). The aggregates are IFEval's four:
prompt_strict, prompt_loose over prompts, instruction_strict, instruction_loose over all of their
constraints."""

from __future__ import annotations

from memray_eval.benchmarks.instruction.constraints import follow, read_constraints
from memray_eval.metric import Aggregates, Columns, ComputedMetric, MetricValue, ratio, section
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    """Raises ValueError for a constraint that cannot be read."""
    strict, loose = follow(read_constraints(sample.metadata["constraints"]), response.text)
    parts = {
        "constraints": len(strict),
        "strict": sum(strict),
        "loose": sum(loose),
        "prompt_loose": float(all(loose)),
    }
    return MetricValue(value=float(all(strict)), parts=parts)


def applies(sample: Sample) -> str | None:
    return None if sample.metadata.get("constraints") else "the sample has no metadata.constraints"


def aggregate(columns: Columns) -> Aggregates:
    total = float(columns["constraints"].sum())
    return Aggregates(
        micro={
            "instruction_strict": ratio(float(columns["strict"].sum()), total),
            "instruction_loose": ratio(float(columns["loose"].sum()), total),
        },
        macro={
            "prompt_strict": float(columns["value"].mean()),
            "prompt_loose": float(columns["prompt_loose"].mean()),
        },
    )


METRIC = ComputedMetric(
    title="Constraints followed (as IFEval)",
    value_label="Accuracy",
    scale=(0, 1),
    measure=measure,
    applies=applies,
    parts=("constraints", "strict", "loose", "prompt_loose"),
    aggregate=aggregate,
    layout=(
        section(
            ("Prompts, strict", "macro.prompt_strict", "percent", "higher is better"),
            ("Prompts, loose", "macro.prompt_loose", "percent"),
            ("Constraints, strict", "micro.instruction_strict", "percent"),
            ("Constraints, loose", "micro.instruction_loose", "percent"),
            ("Standard Error", "stderr"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)
