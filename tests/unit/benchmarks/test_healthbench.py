"""The suite of HealthBench and its samples: ours, published files, rows with criteria, and ids."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.text_processing.judge_prompts import read_criteria, read_example_tags
from memray_eval.types import Record, Sample
from tests.build import build_config, build_sample, write_lines
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import PLAIN, read_folder
from tests.unit.datasets.builders import broken_rows, read

CRITERION = {"criterion": "Asks about fever.", "points": 7, "tags": ["axis:context"]}


def items(path: Path, **keys: Any) -> list[Sample | Record]:
    """What a job reads of a file, which has no problem."""
    spec = resolve_reading(build_config(dataset=str(path), **keys)).with_columns(lambda line: None)
    result = read(Path(spec.dataset), spec.reader)
    assert result.problems == []
    return result.items


def test_ours_are_twenty_conversations_with_two_hundred_criteria() -> None:
    samples = read_folder(REPOSITORY / "dataset" / "criteria", "healthbench")
    criteria = [criterion for sample in samples for criterion in read_criteria(sample.metadata)]
    assert (len(samples), len(criteria)) == (20, 200)
    assert len({sample.id for sample in samples}) == 20
    assert len({criterion.text for criterion in criteria}) > 180
    assert all(-10 <= criterion.points <= 10 for criterion in criteria)
    assert 30 < sum(criterion.points < 0 for criterion in criteria) < 60
    axes = Counter(tag for criterion in criteria for tag in criterion.tags)
    assert sum(axes.values()) == 200
    assert min(axes.values()) >= 15
    for sample in samples:
        assert read_example_tags(sample.metadata) == (f"theme:{sample.task}",)
        assert any(criterion.points > 0 for criterion in read_criteria(sample.metadata))


def test_a_candidate_sees_the_conversation_and_no_criterion() -> None:
    history = [{"role": "user", "content": "Hello."}]
    sample = build_sample(query="Now?", history=history, metadata={"criteria": [CRITERION]})
    prompt = get_suite("healthbench").prompt(sample, PLAIN)
    assert [message.content for message in prompt.messages] == ["Hello.", "Now?"]
    assert prompt.max_tokens == 2048


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("rows.jsonl", json.dumps({"query": "q", "rubrics": [CRITERION]}), {"criteria": "rubrics"}),
        ("rows.jsonl", json.dumps({"query": "q", "criteria": [CRITERION]}), {}),
        ("rows.csv", 'query,mine\nq,"' + json.dumps([CRITERION]).replace('"', '""') + '"',
         {"criteria": "mine"}),
    ],
)  # fmt: skip
def test_any_dataset_has_criteria_in_a_column(
    tmp_path: Path, name: str, text: str, columns: dict[str, str]
) -> None:
    path = tmp_path / name
    path.write_text(text + "\n", "utf-8")
    (sample,) = items(path, suite="chat", columns=columns)
    assert isinstance(sample, Sample)
    (criterion,) = read_criteria(sample.metadata)
    assert criterion == ("Asks about fever.", 7.0, ("axis:context",))


@pytest.mark.parametrize(("criteria", "field", "message"), broken_rows("criteria"))
def test_a_criterion_that_cannot_be_read_is_a_problem_of_its_row(
    tmp_path: Path, criteria: dict[str, Any], field: str, message: str
) -> None:
    rows = [{"id": "a", "query": "q"}, {"id": "b", "query": "q", **criteria}]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    result = read(path, resolve_reading(build_config(dataset=str(path), suite="chat")).reader)
    (problem,) = result.problems
    assert (problem.sample_id, problem.field, problem.place) == ("b", field, "line 2")
    assert message in problem.message


def test_other_columns_of_that_name_stay_metadata(tmp_path: Path) -> None:
    for value in ("be kind", ["be kind", "be short"], 3):
        path = write_lines(tmp_path / "rows.jsonl", [{"query": "q", "criteria": value}])
        (sample,) = items(path, suite="chat")
        assert isinstance(sample, Sample)
        assert sample.metadata == {"criteria": value}


def scanned(ids: Path, limit: int | None = None) -> int:
    """The number of samples that the file of ids names."""
    dataset = str(REPOSITORY / "dataset" / "criteria")
    config = build_config(dataset=dataset, suite="healthbench", ids=str(ids), limit=limit)
    return scan_dataset(resolve_reading(config), []).n_samples


@pytest.mark.parametrize("limit", [None, 5])
def test_ids_name_the_samples_that_are_taken(tmp_path: Path, limit: int | None) -> None:
    (tmp_path / "hard.txt").write_text("C03\n\nC11\nC20\n", "utf-8")
    assert scanned(tmp_path / "hard.txt", limit) == 3


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("C03\nC99\n", DataError, "has 1 of the 2 samples that `ids` names"),
        ("\n", ConfigError, "hard.txt has none; write the samples' ids, one a line"),
        (None, ConfigError, "hard.txt: no such file"),
    ],
)
def test_absent_ids(tmp_path: Path, text: str | None, error: type[Exception], message: str) -> None:
    if text is not None:
        (tmp_path / "hard.txt").write_text(text, "utf-8")
    with pytest.raises(error, match=message):
        scanned(tmp_path / "hard.txt")
