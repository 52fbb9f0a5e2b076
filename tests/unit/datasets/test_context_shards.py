"""Samples on one context stay together, for one of several engines too where each has enough."""

from collections import Counter

import pytest

from memray_eval.datasets import shards as sharding
from memray_eval.datasets.shards import ContextSharder, Entry, Shard

ROWS = 4


def cut(contexts: list[int], engines: int, size: int = 100) -> list[list[int]]:
    """The number of the context of each entry, shard by shard, if the entries on contexts of so
    many entries come in turn."""
    numbers = [
        n for _, n in sorted((turn, n) for n, rows in enumerate(contexts) for turn in range(rows))
    ]
    sharder = ContextSharder(Shard(kind="jsonl", path="d.jsonl"), ROWS, engines)
    for at, number in enumerate(numbers):
        sharder.add(Entry(at, at + 1, "d.jsonl", "", {}, size), True, f"context {number}")
    shards = sharder.finish()
    taken = sorted(position for shard in shards for position in shard.take)
    assert taken == list(range(len(numbers)))
    assert all(shard.rows == len(shard.take) for shard in shards)
    return [[numbers[position] for position in shard.take] for shard in shards]


def n_shards_of_each(shards: list[list[int]]) -> set[int]:
    return set(Counter(number for shard in shards for number in set(shard)).values())


def test_one_engine_computes_a_context_whatever_the_shards() -> None:
    shards = cut([10] * 20, engines=1)
    assert max(map(len, shards)) == ROWS


def test_of_several_engines_one_gets_all_samples_on_a_context() -> None:
    shards = cut([10] * 20, engines=2)
    assert n_shards_of_each(shards) == {1}
    assert {len(shard) for shard in shards} == {10}


def test_small_contexts_are_packed_as_ever() -> None:
    contexts = [1, 3, 2, 4] * 10
    assert cut(contexts, engines=2) == cut(contexts, engines=1)


def test_a_large_context_between_small_ones_is_a_shard_of_its_own() -> None:
    shards = cut([2, 10, 2, *[4] * 30], engines=2)
    assert shards[:3] == [[0, 0], [1] * 10, [2, 2]]


@pytest.mark.parametrize("engines", [2, 3, 8])
def test_no_engine_is_idle_for_it(engines: int) -> None:
    """One context only: each engine still has several shards."""
    shards = cut([200], engines)
    assert len(shards) >= engines * sharding.SHARDS_AN_ENGINE
    assert max(map(len, shards)) == ROWS


def test_a_shard_has_no_more_rows_or_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(len, cut([40] * 20, engines=2))) == ROWS  # above CONTEXT_ROWS_FACTOR times
    assert max(map(len, cut([32] * 20, engines=2))) == 32
    monkeypatch.setattr(sharding, "SHARD_BYTES", 3000)
    assert max(map(len, cut([32] * 20, engines=2))) == ROWS
