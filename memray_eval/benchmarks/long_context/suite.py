"""All long-context benchmarks in one run, by length: a dataset is a folder with a folder for each
benchmark, and every row is read, asked and scored as its benchmark does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.babilong import suite as babilong
from memray_eval.benchmarks.generator.question_order import length_label
from memray_eval.benchmarks.graphwalks import suite as graphwalks
from memray_eval.benchmarks.helmet import suite as helmet
from memray_eval.benchmarks.infinitebench import suite as infinitebench
from memray_eval.benchmarks.long_context.names import BENCHMARKS, as_published, join_task
from memray_eval.benchmarks.longbench import suite as longbench
from memray_eval.benchmarks.longbench2 import suite as longbench2
from memray_eval.benchmarks.lveval import suite as lveval
from memray_eval.benchmarks.mrcr import suite as mrcr
from memray_eval.benchmarks.needles import suite as needles
from memray_eval.benchmarks.nolima import suite as nolima
from memray_eval.types import Candidate, Prompt, Sample

_MODULES = (
    needles,
    mrcr,
    graphwalks,
    nolima,
    babilong,
    helmet,
    lveval,
    longbench,
    longbench2,
    infinitebench,
)
SUITES: Mapping[str, Suite] = {
    name: module.SUITE for name, module in zip(BENCHMARKS, _MODULES, strict=True)
}
TASKS = tuple(join_task(name, task) for name, suite in SUITES.items() for task in suite.tasks)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row as its benchmark reads it, whose name the task and the id then begin with; a row of a
    run as it is. Raises ValueError that names the benchmarks where no folder above the file is
    called as one."""
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
    fields["task"] = join_task(name, str(fields.get("task") or ""))
    if fields.get("id") is not None:
        fields["id"] = f"{name}:{fields['id']}"
    return {**fields, "metadata": _with_bucket(fields.get("metadata"))}


def _with_bucket(metadata: Any) -> Any:
    """The metadata of a generated sample with its length for a bucket, where it has none; any other
    as it is."""
    if not isinstance(metadata, Mapping) or "bucket" in metadata or "tokens" not in metadata:
        return {} if metadata is None else metadata
    length = metadata.get("length")
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        return metadata
    return {**metadata, "bucket": length_label(length)}


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """What the sample's benchmark asks; in its default way, where it has none of the candidate's.
    Raises ValueError for a sample of no benchmark."""
    own = as_published(sample)
    if own.suite not in SUITES:
        raise ValueError(f"task {sample.task!r} names no benchmark; write BENCHMARK:TASK")
    suite = SUITES[own.suite]
    if candidate.prompt not in suite.prompts:
        candidate = candidate.model_copy(update={"prompt": "default"})
    return suite.prompt(own, candidate)


SUITE = Suite(
    description="All long-context benchmarks in one run, by length: one folder each",
    metrics=("rule_score",),
    prompt=prompt,
    prompts=("default", "cot", "transcript"),
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    scores_empty=True,
)
