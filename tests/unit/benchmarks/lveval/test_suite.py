from __future__ import annotations

from typing import Any

import pytest

from memray_eval.benchmarks.lveval.suite import TASKS, WORDINGS, adapt, prompt
from memray_eval.types import Candidate, Sample


def record(**changes: Any) -> dict[str, Any]:
    return {
        "input": "Who built the boat?",
        "context": "### Passage 1\nIver Dahl built {it}.",
        "answers": ["Iver Dahl"],
        "length": 12_345,
        "dataset": "loogle_SD_mixup_16k",
        "language": "en",
        "answer_keywords": "Dahl",
        "confusing_facts": "Iver Holm built it.",
    } | changes


def test_a_published_record_becomes_a_sample() -> None:
    fields = adapt(record(), "LVEval/loogle_SD_mixup/loogle_SD_mixup_16k.jsonl")
    sample = Sample.model_validate({"id": "1", **fields})
    assert (sample.task, sample.language, sample.answers) == (
        "loogle_SD_mixup",
        "en",
        ("Iver Dahl",),
    )
    assert sample.metadata == {
        "length": 12_345,
        "bucket": "16k",
        "answer_keywords": "Dahl",
        "confusing_facts": "Iver Holm built it.",
    }
    asked = prompt(sample, Candidate(name="a", model="m"))
    assert asked.max_tokens == 64
    assert "Iver Dahl built {it}.\n\nQuestion: Who built the boat?" in asked.messages[0].content


def test_the_files_name_tells_task_and_length_where_the_record_does_not() -> None:
    bare = record(dataset=None, language=None, answer_keywords=None)
    fields = adapt(bare, "x/factrecall_zh_256k.jsonl")
    assert (fields["task"], fields["language"]) == ("factrecall_zh", "zh")
    assert fields["metadata"]["bucket"] == "256k"
    assert "answer_keywords" not in fields["metadata"]
    assert adapt(bare, "x/cmrc_mixup.jsonl")["task"] == "cmrc_mixup"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"answers": None}, "not a record of LV-Eval: it lacks answers;"),
        ({"answers": "Dahl"}, "answers: must be a list, not str 'Dahl'"),
        ({"dataset": "poems_16k"}, "no task 'poems'; there are: hotpotwikiqa_mixup"),
        ({"dataset": None}, "no task in the name of rows"),
        ({"answer_keywords": ["Dahl"]}, r"answer_keywords: must be text, not \['Dahl'\]"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        adapt(record(**changes), "rows.jsonl")


def test_every_task_has_a_wording_in_its_language() -> None:
    assert set(WORDINGS) == set(TASKS)
    chinese = {task for task in TASKS if "问题" in "".join(WORDINGS[task].template.parts)}
    assert chinese == {
        "multifieldqa_zh_mixup",
        "factrecall_zh",
        "cmrc_mixup",
        "lic_mixup",
        "dureader_mixup",
    }
    assert WORDINGS["factrecall_en"].max_tokens == 16
