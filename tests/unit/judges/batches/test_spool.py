"""Packing calls into files: limits of calls and bytes, and cutting one in half."""

from __future__ import annotations

import pytest

from memray_eval.judges.batches.journal import BatchedCall
from memray_eval.judges.batches.spool import PackedFile, Spool
from memray_eval.judges.limits.budget import Spending


def most_of(tokens: int) -> Spending:
    return Spending(usd=tokens / 1000, tokens=2 * tokens)


def spool_of(calls: int = 100, n_bytes: int = 10**6) -> Spool:
    return Spool(calls, n_bytes, most_of)


def add(spool: Spool, n: int, size: int = 10, tokens: int = 5) -> None:
    for number in range(n):
        call = BatchedCall(f"k{number}", f"u{number}", "m", tokens)
        spool.add(b"x" * (size - 1) + b"\n", call)


def sizes(spool: Spool) -> list[int]:
    return [len(packed.calls) for packed in spool.waiting]


def n_lines(packed: PackedFile) -> int:
    return len(packed.path.read_bytes().splitlines())


def test_a_file_holds_max_calls() -> None:
    spool = spool_of(calls=4)
    add(spool, 10)
    assert sizes(spool) == [4, 4, 2]
    assert [n_lines(packed) for packed in spool.waiting] == [4, 4, 2]


def test_a_file_holds_max_bytes_and_one_call_at_least() -> None:
    spool = spool_of(n_bytes=25)
    add(spool, 5)
    assert sizes(spool) == [2, 2, 1]
    large = spool_of(n_bytes=5)
    add(large, 2)
    assert sizes(large) == [1, 1]


def test_a_file_says_what_it_may_cost() -> None:
    spool = spool_of()
    add(spool, 3)
    (packed,) = spool.waiting
    assert spool.most(packed).usd == pytest.approx(0.015)
    assert spool.most(packed).tokens == 30


def test_half_of_a_file_keeps_calls_and_requests_together() -> None:
    spool = spool_of(calls=5)
    add(spool, 6)
    whole = spool.waiting.popleft()
    first = spool.halve(whole)
    assert ([call.key for call in first.calls], n_lines(first)) == (["k0", "k1"], 2)
    assert sizes(spool) == [3, 1]
    assert n_lines(spool.waiting[0]) == 3
    assert not whole.path.exists()


def test_what_is_not_sent_is_deleted() -> None:
    spool = spool_of()
    add(spool, 3)
    (packed,) = spool.waiting
    assert packed.path.exists()
    spool.discard()
    assert not packed.path.parent.exists()
