"""How a sample of a suite that holds several benchmarks names the one that it is of: its task is
BENCHMARK:TASK."""

from __future__ import annotations

from memray_eval.types import Sample

SUITE = "long_context"
BENCHMARKS = (
    "needles",
    "mrcr",
    "graphwalks",
    "nolima",
    "babilong",
    "helmet",
    "lveval",
    "longbench",
    "longbench2",
    "infinitebench",
)


def join_task(benchmark: str, task: str) -> str:
    return f"{benchmark}:{task}"


def as_published(sample: Sample) -> Sample:
    """The sample with its own benchmark for a suite, and that one's task; of any other suite, as it
    is."""
    benchmark, colon, task = sample.task.partition(":")
    if sample.suite != SUITE or not colon:
        return sample
    return sample.model_copy(update={"suite": benchmark, "task": task})
