"""A limit takes as many samples of each task as of any other, the same ones from every format,
those of a smaller limit among them; and what a limit took before it was spread, a resumed run takes
again."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets import scan as scanning
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.shards import Outline, Spread
from memray_eval.datasets.sources import Entry
from tests.unit.datasets.builders import read, write_rows

FREE = SampleReader(suite="memory")
KNOWN = SampleReader(suite="instruction", known_tasks=("a", "b", "c"))
ANSWERS = SampleReader(suite="memory", has_responses=True)


def rows_of(*names: str, n: int = 20, **fields: Any) -> list[dict[str, Any]]:
    """`n` rows of each name's task, which is its first letter."""
    named = [(name, number) for name in names for number in range(n)]
    return [{"id": f"{a}{n}", "query": "q", "task": a[0], **fields} for a, n in named]


SORTED = rows_of(*"abc")


def write(tmp_path: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    path = tmp_path / f"data.{kind}"
    if kind != "files":
        return write_rows(path, rows, group=7)
    path.mkdir()
    for task in {row["task"] for row in rows}:
        write_rows(path / f"{task}.jsonl", [row for row in rows if row["task"] == task])
    return path


def limited(
    path: Path, limit: int, reading: SampleReader = FREE, **how: Any
) -> tuple[Scan, list[str], list[Problem]]:
    result = read(path, reading, limit=limit, **how)
    if not reading.has_responses:
        return result.scan, result.ids, result.problems
    names = [f"{record.sample.id}/{record.candidate.name}" for record in result.items]
    return result.scan, names, result.problems


@pytest.mark.parametrize("kind", ["folder", "files", "json", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("by_context", [False, True])
def test_formats_give_as_many_of_each_task(tmp_path: Path, kind: str, by_context: bool) -> None:
    path = write(tmp_path, kind, SORTED)
    reading = SampleReader(suite="memory", by_context=by_context)
    result, ids, problems = limited(path, 7, reading, rows_per_shard=2)
    assert (sorted(ids), problems) == (["a0", "a1", "a2", "b0", "b1", "c0", "c1"], [])
    assert result.n_samples == sum(shard.rows for shard in result.shards) == 7
    assert result.fingerprint == limited(path, 7, reading)[0].fingerprint


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reading", [FREE, KNOWN])
def test_a_smaller_limit_is_part_of_more(tmp_path: Path, seed: int, reading: SampleReader) -> None:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"id": f"r{n}", "query": "q", "task": rng.choice("abc "), "scenario": rng.choice("xyz")}
        for n in range(60)
    ]
    for broken in rng.sample(rows, 6):
        broken["query"] = 5
    path, before = write(tmp_path, "jsonl", rows), set[str]()
    for limit in (1, 2, 5, 11, 24, 47, 59):
        _, ids, _ = limited(path, limit, reading)
        assert (len(ids), len(set(ids))) == (min(limit, 54), min(limit, 54))
        assert before <= set(ids)
        before = set(ids)


def test_scenarios_of_a_task_take_turns_and_every_task_comes_first(tmp_path: Path) -> None:
    rows = [row for x in "xyz" for row in rows_of(f"a{x}", n=5, scenario=x)]
    path = write(tmp_path, "jsonl", rows + rows_of("b", n=5))
    assert sorted(limited(path, 2)[1]) == ["ax0", "b0"]
    assert sorted(limited(path, 4)[1]) == ["ax0", "ay0", "az0", "b0"]


def test_where_a_task_runs_out_the_others_fill_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", SORTED[:1] + SORTED[20:])
    assert Counter(identity[0] for identity in limited(path, 9)[1]) == {"a": 1, "b": 4, "c": 4}


def test_samples_without_a_task_come_last_where_a_suite_names_its_tasks(tmp_path: Path) -> None:
    rows = [{"id": f"n{n}", "query": "q"} for n in range(5)] + SORTED[:2] + SORTED[20:22]
    path = write(tmp_path, "jsonl", rows)
    assert sorted(limited(path, 4, KNOWN)[1]) == ["a0", "a1", "b0", "b1"]
    assert sorted(limited(path, 6, KNOWN)[1]) == ["a0", "a1", "b0", "b1", "n0", "n1"]


def test_no_more_is_read_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(rows_of(*"abc", n=200), key=lambda row: int(row["id"][1:]))
    rows[50]["query"] = rows[400]["query"] = 5
    path, seen = write(tmp_path, "jsonl", rows), Counter[str]()
    entries, check = scanning.entries, scanning._check

    def counted(*shard: Any) -> Iterator[Entry]:
        for entry in entries(*shard):
            seen["read"] += 1
            yield entry

    def checked(*arguments: Any) -> Any:
        seen["checked"] += 1
        return check(*arguments)

    monkeypatch.setattr(scanning, "entries", counted)
    monkeypatch.setattr(scanning, "_check", checked)
    assert limited(path, 6, KNOWN)[1:] == (["a0", "b0", "c0", "a1", "b1", "c1"], [])
    assert (seen["checked"], seen["read"] < 20) == (6, True)
    seen.clear()
    assert limited(path, 6)[2] == []  # tasks may come that nobody knows, so it looks through all
    assert (seen["checked"], seen["read"]) == (6, 606)
    with path.open("a") as file:
        file.write("\nno JSON")
    assert limited(path, 6)[2] == []


def test_what_is_held_does_not_grow_with_the_dataset() -> None:
    spread: Spread[int] = Spread(10)
    for number in range(20_000):
        outline = Outline(f"task {number}", f"scenario {number}", str(number), "")
        if (rank := spread.rank(outline)) is not None:
            spread.take(outline, rank, number)
    assert spread.taken() == list(range(10))
    assert len(spread._numbers) == len(spread._scenarios) == len(spread._counts) == 10


def test_the_answers_of_all_candidates_to_one_sample_are_taken_together(tmp_path: Path) -> None:
    one, two = (rows_of(*"abc", response="r", model=model) for model in ("one", "two"))
    random.Random(1).shuffle(two)
    result, ids, problems = limited(write(tmp_path, "jsonl", one + two), 6, ANSWERS)
    assert sorted(ids) == [f"{task}0/{name}" for task in "abc" for name in ("one", "two")]
    assert (result.n_samples, problems) == (6, [])


@pytest.mark.parametrize("tasks", [("b",), ("c", "b")])
def test_of_the_wanted_tasks_alone(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    reading = SampleReader(suite="instruction", known_tasks=("a", "b", "c"), tasks=frozenset(tasks))
    _, ids, _ = limited(write(tmp_path, "jsonl", SORTED), 4, reading)
    assert Counter(identity[0] for identity in ids) == {task: 4 // len(tasks) for task in tasks}
