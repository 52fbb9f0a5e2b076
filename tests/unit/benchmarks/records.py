"""A good record of each benchmark, in the file in which it is published, and the sample that it
becomes: tests/data/published.jsonl."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from memray_eval.benchmarks import get_suite
from memray_eval.datasets.reading import SampleReader
from memray_eval.types import Arm, Candidate, Sample
from tests.build import build_sample
from tests.conftest import REPOSITORY
from tests.unit.datasets.builders import read

PLAIN = Candidate(name="a", model="m")
_LINES = (REPOSITORY / "tests/data/published.jsonl").read_text("utf-8").splitlines()
_ROWS = {row["name"]: row for row in map(json.loads, _LINES)}
# A suite, and what tells its kinds of record apart -> the file's path, and the record in it
RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (row["path"], row["record"]) for name, row in _ROWS.items()
}
SAMPLES = {name: row["sample"] for name, row in _ROWS.items() if "sample" in row}
GRAPH = RECORDS["graphwalks"][1]["prompt"]
MESSAGES = json.loads(RECORDS["mrcr"][1]["prompt"])


def record(name: str, **changes: Any) -> dict[str, Any]:
    """The record with changes; a field that is changed to ... (in JSON a text) is not there."""
    changed = RECORDS[name][1] | changes
    return {field: value for field, value in changed.items() if value not in (..., "...")}


def adapted(name: str, path: str = "", **changes: Any) -> dict[str, Any]:
    """The fields that the suite makes of the changed record, in the file at `path`."""
    suite = get_suite(name.split()[0])
    return dict(suite.adapt(record(name, **changes), path or RECORDS[name][0]))


def sample_of(name: str, path: str = "", **changes: Any) -> Sample:
    suite = name.split()[0]
    return Sample.model_validate({"id": "1", **adapted(name, path, **changes), "suite": suite})


def task_sample(
    suite: str, task: str = "", *answers: str, classes: Sequence[str] = (), **metadata: Any
) -> Sample:
    about = {"suite": suite, "task": task, "answers": answers, "classes": classes}
    return build_sample(**about, metadata=metadata)


def sent(sample: Sample, candidate: Candidate = PLAIN, templates: str | None = None) -> str:
    """The text of the only message."""
    (message,) = get_suite(sample.suite, templates).prompt(sample, candidate).messages
    return message.content


def in_arm(arm: Arm, **fields: Any) -> Candidate:
    """The candidate that is shown this of a conversation."""
    return PLAIN.model_copy(update={"context": arm} | fields)


def by_arm(sample: Sample) -> dict[str, str]:
    """What is asked, by arm."""
    return {arm: sent(sample, in_arm(arm)) for arm in get_args(Arm)}


def read_folder(path: Path, name: str) -> list[Any]:
    """The problems of a suite's dataset, and then its samples."""
    suite = get_suite(name)
    result = read(path, SampleReader(suite=name, adapt=suite.adapt, files=suite.files))
    return [*result.problems, *result.items]
