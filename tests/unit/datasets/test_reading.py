"""Published formats, contexts that samples share, tasks, and the order in which contexts are
read."""

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.sources import fetch_dataset, sources_of
from memray_eval.errors import DataError
from memray_eval.types import Sample
from tests.unit.datasets.builders import items_of, write_rows
from tests.unit.datasets.builders import read as read_dataset

CONTEXTS = ["alpha " * 50, "beta " * 50, "gamma " * 50]
BY_CONTEXT = SampleReader(suite="longbench", by_context=True)
ROWS = [
    {"id": f"q{i}", "query": f"question {i}", "context": CONTEXTS[i % 3], "task": "ab"[i % 2]}
    for i in range(12)
]


def read(
    path: Path, reading: SampleReader = BY_CONTEXT, **options: Any
) -> tuple[list[list[Sample]], list[Problem]]:
    """The samples of every shard."""
    result = read_dataset(path, reading, **options)
    shards = [items_of(Scan(shards=[shard]), reading) for shard in result.scan.shards]
    return shards, result.problems


def write(tmp_path: Path, kind: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    return write_rows(tmp_path / f"data.{kind}", rows, group=5)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow", "folder"])
def test_questions_on_one_context_are_read_side_by_side(tmp_path: Path, kind: str) -> None:
    shards, problems = read(write(tmp_path, kind), rows_per_shard=5)
    assert not problems
    samples = [sample for shard in shards for sample in shard]
    assert {sample.id for sample in samples} == {row["id"] for row in ROWS}
    assert [context for context, _ in groupby(sample.context for sample in samples)] == CONTEXTS
    assert [len(shard) for shard in shards] == [4, 4, 4]  # a shard ends between two contexts


def test_a_context_with_many_questions_is_cut_by_rows(tmp_path: Path) -> None:
    shards, _ = read(write(tmp_path, "jsonl"), rows_per_shard=3)
    assert [len(shard) for shard in shards] == [3, 1, 3, 1, 3, 1]


def test_only_the_wanted_tasks_are_read(tmp_path: Path) -> None:
    wanted = SampleReader(suite="longbench", by_context=True, tasks=frozenset("b"))
    for kind in ("jsonl", "parquet"):
        shards, problems = read(write(tmp_path, kind), wanted)
        assert ({sample.task for shard in shards for sample in shard}, problems) == ({"b"}, [])


def test_broken_rows_are_told_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl")
    path.write_text(path.read_text() + "\n{broken\n" + json.dumps(ROWS[0]))
    shards, problems = read(path)
    assert sum(map(len, shards)) == len(ROWS)
    assert "broken JSON" in str(problems[0])
    assert "a second sample with this id" in str(problems[1])


def test_a_context_stands_in_one_file_however_many_samples_share_it(tmp_path: Path) -> None:
    (tmp_path / "contexts").mkdir()
    (tmp_path / "contexts" / "book.txt").write_text(CONTEXTS[0])
    rows = [{"id": f"q{i}", "query": "?", "context_file": "contexts/book.txt"} for i in range(3)]
    shards, problems = read(write(tmp_path, "jsonl", rows))
    assert ([sample.context for sample in shards[0]], problems) == ([CONTEXTS[0]] * 3, [])


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "absent.txt", 7])
def test_a_context_file_that_is_not_there_is_a_fault(tmp_path: Path, name: Any) -> None:
    row = {"id": "q", "query": "?", "context_file": name}
    shards, problems = read(write(tmp_path, "jsonl", [row]))
    assert not shards
    assert "context_file" in str(problems[0])


def test_a_published_format_is_adapted_and_its_faults_are_told(tmp_path: Path) -> None:
    def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        if "input" not in raw:
            raise ValueError("no field input")
        return {"id": raw["_id"], "query": raw["input"], "task": Path(path).stem}

    rows = [{"_id": "1", "input": "why?"}, {"_id": "2"}]
    reader = SampleReader(suite="longbench", adapt=adapt)
    shards, problems = read(write(tmp_path, "jsonl", rows), reader)
    assert [(sample.id, sample.task) for sample in shards[0]] == [("1", "data")]
    assert str(problems[0]).endswith("sample 2: no field input")


def test_the_files_of_a_hub_dataset_are_found_in_its_folders(tmp_path: Path) -> None:
    for task in ("kv", "passkey"):
        (tmp_path / "set" / task).mkdir(parents=True)
        rows = [row | {"id": f"{task}-{row['id']}"} for row in ROWS]
        write(tmp_path / "set" / task, "parquet", rows)
    (tmp_path / "set" / "dataset_infos.json").write_text("{}")
    shards, problems = read(tmp_path / "set")
    assert (sum(map(len, shards)), problems) == (2 * len(ROWS), [])


@pytest.mark.parametrize(
    ("files", "labels", "left"),
    [
        ("data-0-of-1.arrow cache-1f_00000_of_00002.arrow", [""], ""),
        ("cache-hits.arrow", [""], ""),
        ("data/train-0-of-1.parquet data/validation-0-of-1.parquet", [""], "train"),
        ("Train.csv dev.csv Test-1.csv test-2.csv", ["Test-1", "test-2"], "dev, train"),
        (
            "a/test.csv a/train.csv b/test/0.csv b/auxiliary_train/0.csv",
            2,
            "auxiliary_train, train",
        ),
        ("train-0.csv train-1.csv training.csv", 3, ""),
        ("unit-test.csv bullet-train.csv train.csv", 3, ""),
        ("test_k12.csv train_k12.csv nq-dev-multi.csv", 3, ""),
        ("part.000.jsonl part.001.jsonl", ["part.000.jsonl", "part.001.jsonl"], ""),
    ],
)
def test_only_tests_of_splits_are_read(files: str, labels: Any, left: str, tmp_path: Path) -> None:
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    notes: list[str] = []
    labels_read = [source.label for source in sources_of(str(tmp_path), say=notes.append)]
    assert (len(labels_read) if isinstance(labels, int) else labels_read) == labels
    assert [f"not its splits {left};" in text for text in notes] == [True] * bool(left)


@pytest.mark.parametrize(
    ("path", "wanted", "folder"),
    [("o/n", "*.parquet", "o--n"), ("datasets/o/n/main/a", "main/a/*.parquet", "o--n/main/a")],
)
def test_a_part_of_a_hub_dataset_is_fetched(
    path: str, wanted: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patterns: list[str] = []

    def download(name: str, *, allow_patterns: list[str], **_: object) -> None:
        patterns.extend([name, *allow_patterns])

    monkeypatch.setenv("MEMRAY_EVAL_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert fetch_dataset(f"hf://{path}") == str(tmp_path / "datasets" / folder)
    assert patterns[0] == "o/n"
    assert wanted in patterns


def test_a_hub_without_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMRAY_EVAL_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"hf://not a name cannot be fetched: .*name its folder"):
        fetch_dataset("hf://not a name")
