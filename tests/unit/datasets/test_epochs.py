"""Rows with a column `epoch`: several answers to a sample."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.reading import SampleReader
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import unit_id
from tests.build import build_folder, build_record, build_sample, write_lines
from tests.unit.datasets.builders import read

READER = SampleReader(suite="qa", has_responses=True)


def row(sample_id: str = "s", **fields: Any) -> dict[str, Any]:
    return {"id": sample_id, "query": "q", "response": "r"} | fields


@pytest.mark.parametrize("second", [2, 2.0, "2"])
def test_two_epochs_of_a_sample_are_two_units(tmp_path: Path, second: Any) -> None:
    rows = [row(), row(epoch=second), row("t", epoch=None), row("t", epoch=3)]
    scanned, records, problems = read(write_lines(tmp_path / "r.jsonl", rows), READER)
    assert (problems, scanned.n_samples) == ([], 4)
    assert [(record.sample.id, record.epoch) for record in records] == [
        ("s", 1), ("s", 2), ("t", 1), ("t", 3),
    ]  # fmt: skip
    for record in records:
        name = record.sample.id
        assert record.unit_id == unit_id(name, record.candidate, "qa", record.epoch)
        assert "epoch" not in record.sample.metadata
    assert len({record.unit_id for record in records}) == 4
    assert records[0].unit_id == unit_id("s", records[0].candidate, "qa")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(), row()], "a second sample with this id"),
        ([row(), row(epoch=1)], "a second sample with this id"),
        ([row(epoch=2), row(epoch=2)], "a second answer of epoch 2 with this id"),
        ([row(), row(epoch=0)], "epoch: is 0; number a sample's answers by whole numbers from 1"),
        ([row(), row(epoch="last")], "epoch: is 'last'"),
        ([row(), row(epoch=1.5)], "epoch: is 1.5"),
    ],
)
def test_broken_epochs(tmp_path: Path, rows: list[dict[str, Any]], words: str) -> None:
    _, records, problems = read(write_lines(tmp_path / "r.jsonl", rows), READER)
    assert len(records) == 1
    (problem,) = problems
    assert words in str(problem)
    assert problem.place == "line 2"


def test_a_limit_takes_all_answers_to_a_sample_before_the_next(tmp_path: Path) -> None:
    rows = [row(f"s{number}", epoch=epoch) for epoch in (1, 2) for number in range(5)]
    records = read(write_lines(tmp_path / "r.jsonl", rows), READER, limit=4).items
    assert sorted((record.sample.id, record.epoch) for record in records) == [
        ("s0", 1), ("s0", 2), ("s1", 1), ("s1", 2),
    ]  # fmt: skip


def test_a_run_folder_keeps_its_epochs(tmp_path: Path) -> None:
    written = [build_record(build_sample(suite="qa"), "r", epoch=epoch) for epoch in (1, 2)]
    folder = build_folder(tmp_path / "run", written)
    assert [record.epoch for record in RunFolder(folder.path).each()] == [1, 2]
