"""All long-context benchmarks in one run, by length: a dataset is a folder with a folder for each
benchmark, and every row is read, asked and scored as its benchmark does."""

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import (
    Suite,
    babilong,
    graphwalks,
    helmet,
    long_context_suite,
    longbench2,
    mrcr,
)
from memray_eval.benchmarks.infinitebench import suite as infinitebench
from memray_eval.benchmarks.longbench import suite as longbench
from memray_eval.benchmarks.needles import suite as needles
from memray_eval.benchmarks.needles.prose import length_label
from memray_eval.types import Candidate, Prompt, Sample

SUITES: Mapping[str, Suite] = {
    "needles": needles.SUITE,
    "mrcr": mrcr.SUITE,
    "graphwalks": graphwalks.SUITE,
    "babilong": babilong.SUITE,
    "helmet": helmet.SUITE,
    "longbench": longbench.SUITE,
    "longbench2": longbench2.SUITE,
    "infinitebench": infinitebench.SUITE,
}
# A task of this suite names the benchmark that it is of.
TASKS = tuple(f"{name}:{task}" for name, suite in SUITES.items() for task in suite.tasks)


def as_published(sample: Sample) -> Sample:
    """The sample with its own benchmark's suite and task; of any other suite, as it is."""
    benchmark, colon, task = sample.task.partition(":")
    if sample.suite != "long_context" or not colon:
        return sample
    return sample.model_copy(update={"suite": benchmark, "task": task})


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row as its benchmark reads it, with that name before its task and id; a row of a run as it
    is. Raises ValueError that names the benchmarks if no folder above the file is called as one."""
    if "sample_id" in raw or str(raw.get("task", "")).partition(":")[0] in SUITES:
        return raw
    parts = reversed(path.replace("\\", "/").split("/"))
    name = next((stem for part in parts if (stem := part.partition(".")[0]) in SUITES), None)
    if name is None:
        raise ValueError(
            f"no benchmark in the path of {path}; a folder above the file is called as one of: "
            f"{', '.join(SUITES)}"
        )
    fields = dict(SUITES[name].adapt(raw, path))
    fields["task"] = f"{name}:{fields.get('task') or ''}"
    if fields.get("id") is not None:
        fields["id"] = f"{name}:{fields['id']}"
    return {**fields, "metadata": _with_bucket(fields.get("metadata"))}


def _with_bucket(metadata: Any) -> Any:
    """The metadata of a generated sample with its length for a bucket, if it has none."""
    if not isinstance(metadata, Mapping) or "bucket" in metadata or "tokens" not in metadata:
        return {} if metadata is None else metadata
    length = metadata.get("length")
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        return metadata
    return {**metadata, "bucket": length_label(length)}


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The prompt of the sample's benchmark, its default if it lacks the candidate's."""
    own = as_published(sample)
    if own.suite not in SUITES:
        raise ValueError(f"task {sample.task!r} names no benchmark; write BENCHMARK:TASK")
    suite = SUITES[own.suite]
    if candidate.prompt not in suite.prompts:
        candidate = candidate.model_copy(update={"prompt": "default"})
    return suite.prompt(own, candidate)


SUITE = long_context_suite(
    description="All long-context benchmarks in one run, by length: one folder each",
    metrics=("rule_score",),
    prompt=prompt,
    prompts=("default", "cot", "transcript"),
    adapt=adapt,
    tasks=TASKS,
)
