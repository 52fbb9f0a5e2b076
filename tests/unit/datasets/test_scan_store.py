"""Scans in parallel find what a sequential one does, where ids stood first too; a stored scan is
used while its files are the same."""

import json
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import (
    WHOLE,
    FirstPlaces,
    Scan,
    ScanSource,
    SourceScan,
    restore_scan,
    store_scan,
)
from memray_eval.datasets.shards import Shard
from tests.unit.datasets.builders import MEMORY, items_of, read, write_folder

CONTEXTS = SampleReader(suite="longbench", by_context=True)
HOW = {"suite": "memory", "rows": [4, None]}


def at_the_same_time(work: ScanSource, sources: Sequence[Shard]) -> Iterator[SourceScan]:
    """Out of order, and through pickle, as between processes."""

    def apart(source: Shard) -> bytes:
        time.sleep(random.random() / 50)
        return pickle.dumps(work(pickle.loads(pickle.dumps(source))))

    with ThreadPoolExecutor(4) as threads:
        yield from map(pickle.loads, threads.map(apart, sources))


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"S{number}", "query": f"Question {number}?", "memory": {"k": "v"}} | more


def write(folder: Path, files: Mapping[str, list[Any]]) -> Path:
    """JSONL files of rows; a text stands as it is."""
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = (line if isinstance(line, str) else json.dumps(line) for line in rows)
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


def scanned(path: Path, reading: SampleReader = MEMORY, **how: Any) -> tuple[Scan, list[Problem]]:
    result = read(path, reading, rows_per_shard=4, **how)
    return result.scan, result.problems


@pytest.mark.parametrize("reading", [MEMORY, CONTEXTS], ids=["rows", "contexts"])
def test_files_at_once_give_what_one_by_one_do(tmp_path: Path, reading: SampleReader) -> None:
    many: dict[str, list[Any]] = {
        f"part-{n:02}.jsonl": [
            row(n * 10 + at, context=f"Context {at % 3}. " * 5) for at in range(9)
        ]
        for n in range(6)
    }
    many["part-02.jsonl"] += ["no JSON", row(21), row(3), {"id": "E"}]  # one of this file, one of 0
    many["part-04.jsonl"].insert(0, row(3))
    many["part-05.jsonl"].append(row(24))
    path = write(tmp_path / "data", many)
    sequential, by_one = scanned(path, reading)
    assert scanned(path, reading, each_source=at_the_same_time) == (sequential, by_one)
    one_of_two, _ = scanned(path, reading, engines=2)
    assert scanned(path, reading, engines=2, each_source=at_the_same_time)[0] == one_of_two
    assert sequential.fingerprint.startswith(WHOLE)
    assert (sequential.n_samples, sequential.n_invalid) == (54, 6)
    doubles = [problem.message for problem in by_one if "second sample" in problem.message]
    assert [text.rpartition("line ")[2] for text in doubles] == ["2", "4", "4", "5"]


def test_the_fingerprint_is_of_the_samples_in_their_order(tmp_path: Path) -> None:
    rows = [row(number) for number in range(6)]
    base = scanned(write(tmp_path / "a", {"a.jsonl": rows[:2], "b.jsonl": rows[2:]}))[0]
    others = {
        "another order": {"a.jsonl": rows[2:], "b.jsonl": rows[:2]},
        "one less": {"a.jsonl": rows[:2], "b.jsonl": rows[2:5]},
        "another text": {"a.jsonl": [row(0, query="Why?"), rows[1]], "b.jsonl": rows[2:]},
    }
    for name, files in others.items():
        assert scanned(write(tmp_path / name, files))[0].fingerprint != base.fingerprint
    in_one = scanned(write(tmp_path / "one file", {"c.jsonl": rows}))[0]
    assert in_one.fingerprint == base.fingerprint


def settled(path: Path) -> float:
    """Files as if they were written a minute ago; now."""
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 60, time.time() - 60))
    return time.time()


def test_a_stored_scan_is_the_scan(tmp_path: Path) -> None:
    rows = [row(number) for number in range(9)] + ["broken"]
    path = write(tmp_path / "data", {"a.jsonl": rows, "b.jsonl": [row(20)]})
    now = settled(path)
    result, _ = scanned(path)
    stored = json.loads(json.dumps(store_scan(result, str(path), HOW, now)))
    kept = restore_scan(stored, str(path), HOW)
    assert kept == result
    expected = [*(f"S{number}" for number in range(9)), "S20"]
    assert [sample.id for sample in items_of(kept)] == expected
    assert restore_scan(stored, str(path), HOW | {"rows": [8, None]}) is None
    for nothing in (None, {}, [], {**stored, "shards": 3}, "x"):
        assert restore_scan(nothing, str(path), HOW) is None


CHANGES: dict[str, Callable[[Path], object]] = {
    "a longer file": lambda path: write(path, {"a.jsonl": [row(1), row(2), row(5)]}),
    "a file as long": lambda path: write(path, {"a.jsonl": [row(1), row(3)]}),
    "a new file": lambda path: write(path, {"c.jsonl": [row(9)]}),
    "a file gone": lambda path: (path / "b.jsonl").unlink(),
    "a context": lambda path: (path / "contexts" / "one.txt").write_text("Another text."),
    "a context gone": lambda path: (path / "contexts" / "one.txt").unlink(),
    "no dataset any more": lambda path: path.rename(path.with_name("elsewhere")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_stale_scan_is_not_used(tmp_path: Path, change: Callable[[Path], object]) -> None:
    context = tmp_path / "data" / "contexts" / "one.txt"
    context.parent.mkdir(parents=True)
    context.write_text("The long text.")
    named = row(2, context_file="contexts/one.txt")
    path = write(tmp_path / "data", {"a.jsonl": [row(1), named], "b.jsonl": [row(4)]})
    now = settled(path)
    result, _ = scanned(path)
    assert result.context_files == {str(context)}
    stored = store_scan(result, str(path), HOW, now)
    assert restore_scan(stored, str(path), HOW) == result
    change(path)
    assert restore_scan(stored, str(path), HOW) is None


def test_samples_in_folders_are_looked_after_too(tmp_path: Path) -> None:
    now = settled(write_folder(tmp_path, *map(row, range(3))))
    result, _ = scanned(tmp_path)
    stored = store_scan(result, str(tmp_path), HOW, now)
    assert restore_scan(stored, str(tmp_path), HOW) == result
    (tmp_path / "s001" / "sample.json").write_text(json.dumps(row(7)))
    assert restore_scan(stored, str(tmp_path), HOW) is None


def test_what_was_written_as_it_was_read_is_not_stored(tmp_path: Path) -> None:
    path = write(tmp_path / "data", {"a.jsonl": [row(1)]})
    result, _ = scanned(path)
    assert store_scan(result, str(path), HOW, time.time()) is None


# Few of the small ones, so that ids meet
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20)
places = st.sampled_from(
    ["row 7", "row 0", "row 007", "line 12", "item 3, question 4", "a/b c.json", "12", "", "row ²"]
) | st.sampled_from(["half \ud800", "nothing \x00 here"])
stood = st.lists(st.tuples(numbers, places), max_size=60)


def collected(rows: list[tuple[int, str]]) -> FirstPlaces:
    table = FirstPlaces()
    for number, label in rows:
        table.find_or_add(number, label)
    return table


@given(stood)
def test_the_first_place_of_each_id_is_found(rows: list[tuple[int, str]]) -> None:
    table, first = FirstPlaces(), dict[int, str]()
    for number, label in rows:
        assert table.find_or_add(number, label) == first.get(number)
        first.setdefault(number, label)


@given(stood, stood)
def test_those_of_two_are_joined_where_they_share_none(
    rows: list[tuple[int, str]], others: list[tuple[int, str]]
) -> None:
    first, second = (dict(reversed(of)) for of in (rows, others))
    left, other = collected(rows), pickle.loads(pickle.dumps(collected(others)))
    is_apart = first.keys().isdisjoint(second)
    assert left.add_all(other) == is_apart
    for number, label in first.items():
        assert left.find_or_add(number, "elsewhere") == label
    for number in second.keys() - first.keys():
        expected = second[number] if is_apart else None
        assert left.find_or_add(number, "elsewhere") == expected


def test_a_hundred_thousand_ids_take_under_48_bytes_each() -> None:
    spread = [number * 0x9E3779B97F4A7C15 % 2**64 - 2**63 for number in range(100_000)]
    table = FirstPlaces()
    for number, key in enumerate(spread):
        assert table.find_or_add(key, f"row {number}") is None
    assert table.find_or_add(spread[5], "row 200000") == "row 5"
    assert len(pickle.dumps(table)) < 48 * 100_000
    assert not table.add_all(collected([(spread[7], "row 1")]))
