"""Batches: calls packed into files, the journal in a run's folder, what a provider's errors say,
and how results are read whatever a model wrote."""

import json
from pathlib import Path

import pytest

from memray_eval.errors import DataError, JudgeError
from memray_eval.judges.batches.journal import (
    BatchedCall,
    BatchEntry,
    BatchJournal,
    PackedFile,
    Spool,
    spent_in_batches,
)
from memray_eval.judges.batches.openai import OpenAIBatches
from memray_eval.judges.batches.port import read_objects, refuses_batches, to_line
from memray_eval.judges.limits.budget import Spending
from memray_eval.results.run_folder import RunFolder


def most_of(tokens: int) -> Spending:
    return Spending(usd=tokens / 1000, tokens=2 * tokens)


def spool_of(calls: int = 100, n_bytes: int = 10**6) -> Spool:
    return Spool(calls, n_bytes, most_of)


def add(spool: Spool, n: int) -> None:
    for number in range(n):
        spool.add(b"123456789\n", BatchedCall(f"k{number}", f"u{number}", "m", 5))


def sizes(spool: Spool) -> list[int]:
    return [len(packed.calls) for packed in spool.waiting]


def n_lines(packed: PackedFile) -> int:
    return len(packed.path.read_bytes().splitlines())


@pytest.mark.parametrize(
    ("most", "n_calls", "files"),
    [
        ({"calls": 4}, 10, [4, 4, 2]),
        ({"n_bytes": 25}, 5, [2, 2, 1]),
        ({"n_bytes": 5}, 2, [1, 1]),  # one call at least
    ],
)
def test_a_file_holds_so_many_calls_or_bytes(
    most: dict[str, int], n_calls: int, files: list[int]
) -> None:
    spool = spool_of(**most)
    add(spool, n_calls)
    assert sizes(spool) == [n_lines(packed) for packed in spool.waiting] == files


def test_a_file_says_what_it_may_cost_and_is_deleted_if_it_is_not_sent() -> None:
    spool = spool_of()
    add(spool, 3)
    (packed,) = spool.waiting
    most = spool.most(packed)
    assert (most.usd, most.tokens) == (pytest.approx(0.015), 30)
    assert packed.path.exists()
    spool.discard()
    assert not packed.path.parent.exists()


def test_half_of_a_file_keeps_calls_and_requests_together() -> None:
    spool = spool_of(calls=5)
    add(spool, 6)
    whole = spool.waiting.popleft()
    first = spool.halve(whole)
    assert ([call.key for call in first.calls], n_lines(first)) == (["k0", "k1"], 2)
    assert sizes(spool) == [3, 1]
    assert n_lines(spool.waiting[0]) == 3
    assert not whole.path.exists()


CALLS = [BatchedCall(f"key{n}", f"unit{n}", "helpfulness", 7) for n in range(3)]


@pytest.fixture
def journal(tmp_path: Path) -> BatchJournal:
    return BatchJournal(RunFolder(str(tmp_path / "run")))


def entry(tag: str, created_s: float = 1.0, **changes: object) -> BatchEntry:
    fixed = BatchEntry(
        tag=tag,
        judge="openai/m",
        provider="openai",
        n_calls=3,
        most=Spending(usd=2.0, tokens=50),
        created_s=created_s,
    )
    return fixed.model_copy(update=changes)


def test_what_was_written_is_read_in_order_of_time(journal: BatchJournal) -> None:
    assert journal.load() == []
    late, early = entry("b", 2.0), entry("a", 1.0)
    for batch in (late, early):
        journal.begin(batch, CALLS)
    journal.write(late.model_copy(update={"state": "submitted", "batch_id": "batch_1"}))
    batches = journal.load()
    expected = [("a", "intent", ""), ("b", "submitted", "batch_1")]
    assert [(batch.tag, batch.state, batch.batch_id) for batch in batches] == expected
    assert list(journal.read_calls("b")) == CALLS


def test_tags_differ_and_fit_every_provider(journal: BatchJournal) -> None:
    tags = {journal.new_tag() for _ in range(100)}
    assert len(tags) == 100
    assert all(len(tag) <= 40 and tag.replace("-", "").isalnum() for tag in tags)


def test_a_broken_entry_is_no_batch_that_never_was(journal: BatchJournal, tmp_path: Path) -> None:
    journal.begin(entry("a"), ())
    (tmp_path / "run" / "batches" / "a.json").write_text("{")
    with pytest.raises(DataError, match="put it back"):
        journal.load()


def test_a_batch_of_an_earlier_version_is_read(journal: BatchJournal, tmp_path: Path) -> None:
    journal.begin(entry("a"), ())
    path = tmp_path / "run" / "batches" / "a.json"
    earlier = {"model": "m", "round": 2, "n_bytes": 30, "tokens": 21, "state": "uploaded"}
    path.write_text(json.dumps(json.loads(path.read_text()) | earlier))
    (batch,) = journal.load()
    assert (batch.state, batch.is_open) == ("uploaded", True)


def test_broken_calls_are_an_error(journal: BatchJournal, tmp_path: Path) -> None:
    journal.begin(entry("a"), ())
    (tmp_path / "run" / "batches" / "a.calls.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="cannot be read"):
        list(journal.read_calls("a"))


def test_the_money_of_batches_is_that_of_ended_ones() -> None:
    ended = entry("a", state="collected", spent=Spending(usd=1.0, tokens=9))
    entries = [ended, entry("b", state="submitted"), entry("c", state="dropped")]
    assert spent_in_batches(entries) == Spending(usd=1.0, tokens=9)


@pytest.mark.parametrize(
    ("status", "refuses"),
    [
        *((status, True) for status in (400, 403, 404)),
        *((status, False) for status in (429, 413, 500, None)),
    ],
)
def test_an_error_says_never_or_later(status: int | None, refuses: bool) -> None:
    assert refuses_batches(JudgeError("no", status=status)) is refuses


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    lines = [{"text": "a\u2028b\x85c\x0bd"}, {"text": "e"}]
    path = tmp_path / "results"
    path.write_bytes(b"".join(map(to_line, lines)) + b"{broken\n[1]\n\n")
    assert list(read_objects(path)) == lines


def test_an_error_in_the_body_is_one_whatever_the_status_says() -> None:
    body = {"error": {"message": "no", "type": "invalid_request_error"}}
    for status in (200, 400):
        line = {"custom_id": "k", "response": {"status_code": status, "body": body}, "error": None}
        result = OpenAIBatches.read_result(line)
        assert result is not None
        assert (result.kind, result.status) == ("error", 400)


@pytest.mark.parametrize("line", [{}, {"custom_id": 3}, {"custom_id": None, "response": {}}])
def test_a_line_without_a_key_is_no_result(line: dict[str, object]) -> None:
    assert OpenAIBatches.read_result(line) is None
