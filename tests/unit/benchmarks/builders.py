"""Shared by the tests of several benchmarks: a metric's score, generated samples, a folder read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memray_eval.benchmarks.generator.generate import samples
from memray_eval.benchmarks.generator.plan import Plan, TaskSet
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples, scan
from memray_eval.metric import ComputedMetric, score_by_code
from memray_eval.metrics import all_metrics
from memray_eval.types import Response, Sample, Score


def scored(metric: str, sample: Sample, text: str) -> Score:
    """The score of a text by a computed metric, such as `rule_score`."""
    computed = all_metrics()[metric]
    assert isinstance(computed, ComputedMetric)
    return score_by_code(computed, sample, Response(text=text))


def generated(
    task_set: TaskSet,
    resources: Resources,
    *lengths: int,
    n: int,
    tasks: tuple[str, ...] = (),
    depths: tuple[int, ...] = (50,),
) -> list[Sample]:
    """The samples of a plan of all the set's languages."""
    plan = Plan(
        task_set=task_set,
        tasks=tasks or tuple(task_set.tasks),
        languages=task_set.languages,
        lengths=lengths,
        depths=depths,
        samples=n,
    )
    return list(samples(plan, resources))


def read_folder(path: Path, reader: SampleReader) -> list[Any]:
    """The problems of a dataset, and then its samples."""
    problems = list[Problem]()
    shards = scan(str(path), reader, on_problem=problems.append).shards
    return [*problems, *(sample for shard in shards for sample in read_samples(shard, reader))]
