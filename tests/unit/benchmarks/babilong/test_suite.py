from __future__ import annotations

from typing import Any

import pytest

from memray_eval.benchmarks.babilong.suite import TASKS, WORDINGS, adapt, prompt
from memray_eval.types import Candidate, Sample
from tests.unit.benchmarks.builders import scored

CANDIDATE = Candidate(name="a", model="m")


def record(**changes: Any) -> dict[str, Any]:
    text = "It rained. Mary moved to the kitchen. It {rained} on."
    return {"input": text, "question": "Where is Mary? ", "target": "kitchen"} | changes


@pytest.mark.parametrize(
    ("path", "task", "bucket"),
    [
        ("babilong/data/qa1/32k.json", "qa1", "32k"),
        ("babilong/data/qa10/1M.json", "qa10", "1M"),
        ("hub/128k/qa3-00000-of-00001.parquet", "qa3", "128k"),
        ("hub/qa2/0k-00000-of-00001.parquet", "qa2", "0k"),
        ("rows/qa4.jsonl", "qa4", None),
    ],
)
def test_a_files_path_tells_task_and_length(path: str, task: str, bucket: str | None) -> None:
    sample = Sample.model_validate({"id": "1", **adapt(record(), path)})
    assert (sample.task, sample.query, sample.answers) == (task, "Where is Mary?", ("kitchen",))
    assert sample.metadata == ({"bucket": bucket} if bucket else {})
    asked = prompt(sample, CANDIDATE).messages[0].content
    assert record()["input"] in asked
    assert asked.index("Mary moved") < asked.index("Question: Where is Mary?")


@pytest.mark.parametrize(
    ("changes", "path", "told"),
    [
        ({"target": None}, "qa1/4k.json", "not a record of BABILong: it lacks target;"),
        ({"input": 3}, "qa1/4k.json", "input: must be text, not int 3"),
        ({}, "data/4k.json", "no task in the name of data/4k.json"),
        ({"task": "qa21"}, "qa1/4k.json", "no task 'qa21'; there are: qa1"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(
    changes: dict[str, Any], path: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        adapt(record(**changes), path)


def test_every_task_has_a_wording_and_the_rule() -> None:
    assert set(WORDINGS) == set(TASKS)
    for task in TASKS:
        sample = Sample(id="1", suite="babilong", task=task, query="q", answers=("kitchen",))
        assert scored("rule_score", sample, "kitchen").judge == "babilong, BABILong e3119da"
