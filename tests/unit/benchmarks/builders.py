"""Shared by the tests of several benchmarks: generated samples, a folder read."""

from pathlib import Path
from typing import Any

from memray_eval.benchmarks.needles.generate import samples
from memray_eval.benchmarks.needles.plan import Plan
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks import TASKS
from memray_eval.datasets.reading import SampleReader
from memray_eval.types import Sample
from tests.unit.datasets.builders import read


def generated(
    resources: Resources,
    *lengths: int,
    n: int,
    tasks: tuple[str, ...],
    depths: tuple[int, ...] = (50,),
) -> list[Sample]:
    plan = Plan(
        tasks={name: TASKS[name] for name in tasks}, lengths=lengths, depths=depths, samples=n
    )
    return list(samples(plan, resources))


def read_folder(path: Path, reader: SampleReader) -> list[Any]:
    """The problems of a dataset, and then its samples."""
    result = read(path, reader)
    return [*result.problems, *result.items]
