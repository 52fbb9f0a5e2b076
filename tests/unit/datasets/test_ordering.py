"""The seeded order of a run that may stop early: stratified, groups together, nothing lost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.ordering import SampleOrder, StratifiedOrder
from memray_eval.datasets.scan import Scan
from memray_eval.types import Sample
from tests.unit.datasets.builders import items_of, read, write_rows


def write(path: Path, rows: list[dict[str, Any]], suffix: str = "jsonl") -> str:
    return str(write_rows(path / f"rows.{suffix}", rows))


def ordered(
    path: str, seed: int = 0, rows: int = 8, limit: int | None = None
) -> tuple[Scan, list[Sample], SampleOrder]:
    collected = StratifiedOrder(seed)
    result = read(path, limit=limit, on_taken=collected.entries.append)
    assert not result.problems
    shards, order = collected.finish(rows)
    return result.scan, items_of(Scan(shards=shards)), order


def row(number: int, task: str, **more: Any) -> dict[str, Any]:
    return {"id": f"s{number}", "query": f"Question {number}?", "task": task, "memory": {}} | more


def rows_of(n: int) -> list[dict[str, Any]]:
    """One in four is of the task `rare`, and they stand at the end."""
    return [row(number, "often" if number < 3 * n // 4 else "rare") for number in range(n)]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_every_sample_comes_once_at_its_place(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, rows_of(80), suffix)
    result, samples, order = ordered(path)
    ids = [sample.id for sample in samples]
    assert sorted(ids) == sorted(f"s{number}" for number in range(80))
    places = order.places_of(ids).tolist()
    assert sorted(places) == list(range(80))
    # A JSON is read in its own order within a shard
    assert places == list(range(80)) or suffix == "json"
    assert result.fingerprint == read(path).scan.fingerprint
    assert order.places_of(["unknown"]).tolist() == [-1]


def test_each_beginning_has_each_strata_share(tmp_path: Path) -> None:
    _, samples, _ = ordered(write(tmp_path, rows_of(80)))
    for n in (8, 20, 40, 60):
        rare = Counter(sample.task for sample in samples[:n])["rare"]
        assert abs(rare - n / 4) <= 1


def test_a_seed_says_the_order(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(40))
    first, again, other = ([sample.id for sample in ordered(path, seed)[1]] for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first != [f"s{number}" for number in range(40)]


def test_lengths_are_strata_too(tmp_path: Path) -> None:
    rows = [row(n, "t", query="x" * (10 if n < 30 else 3000)) for n in range(40)]
    _, samples, _ = ordered(write(tmp_path, rows))
    long = sum(len(sample.query) > 1000 for sample in samples[:20])
    assert 4 <= long <= 6


@pytest.mark.parametrize("by", ["context", "user"])
def test_what_shares_a_context_or_a_user_stays_together(tmp_path: Path, by: str) -> None:
    def more(number: int) -> dict[str, Any]:
        name = f"of {number % 10}"
        return {"context": name} if by == "context" else {"metadata": {"user": name}}

    rows = [row(number, "t", **more(number)) for number in range(40)]
    _, samples, order = ordered(write(tmp_path, rows), rows=6)
    named = [sample.context or sample.metadata["user"] for sample in samples]
    assert len([1 for a, b in pairwise(named) if a != b]) == 9
    assert order.largest_group == 4
    assert order.groups.tolist() == sorted(position // 4 for position in range(40))


def test_a_context_of_all_samples_is_no_group(tmp_path: Path) -> None:
    rows = [row(number, "t", context="the same") for number in range(12)]
    _, samples, order = ordered(write(tmp_path, rows))
    assert order.largest_group == 1
    assert len(samples) == 12


def test_a_limit_takes_the_same_samples_in_another_order(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(40))
    _, samples, order = ordered(path, limit=10)
    assert sorted(sample.id for sample in samples) == sorted(read(path, limit=10).ids)
    assert order.positions.size == 10


def test_several_files_are_mixed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        rows = [row(number, "t", id=f"{name}{number}") for number in range(20)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    _, samples, order = ordered(str(tmp_path), rows=10)
    assert len(samples) == 60
    first = sorted(samples, key=lambda sample: int(order.places_of([sample.id])[0]))[:15]
    assert len({sample.id[0] for sample in first}) == 3
