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
    spool.close_file()
    return [packed.n_calls for packed in spool.waiting]


def lines(packed: PackedFile) -> tuple[int, int]:
    return (
        len(packed.requests.read_bytes().splitlines()),
        len(packed.calls.read_bytes().splitlines()),
    )


def test_a_file_holds_max_calls() -> None:
    spool = spool_of(calls=4)
    add(spool, 10)
    assert sizes(spool) == [4, 4, 2]
    assert [lines(packed) for packed in spool.waiting] == [(4, 4), (4, 4), (2, 2)]


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
    spool.close_file()
    (packed,) = spool.waiting
    assert (packed.tokens, packed.n_bytes) == (15, 30)
    assert packed.most.usd == pytest.approx(0.015)
    assert packed.most.tokens == 30


def test_half_of_a_file_keeps_calls_and_requests_together_while_another_is_filled() -> None:
    spool = spool_of(calls=5)
    add(spool, 6)  # the second file is being filled
    whole = spool.waiting.popleft()
    first = spool.halve(whole)
    assert (first.n_calls, lines(first)) == (2, (2, 2))
    assert first.most.tokens == 20
    add(spool, 1)
    assert sizes(spool) == [3, 2]
    assert not whole.requests.exists()


def test_what_is_not_sent_is_deleted() -> None:
    spool = spool_of()
    add(spool, 3)
    spool.close_file()
    (packed,) = spool.waiting
    assert packed.requests.exists()
    spool.discard()
    assert not packed.requests.parent.exists()
