"""The journal of batches in a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memray_eval.errors import DataError
from memray_eval.judges.batches.journal import (
    BatchedCall,
    BatchEntry,
    BatchJournal,
    spent_in_batches,
)
from memray_eval.judges.limits.budget import Spending
from memray_eval.results.run_folder import RunFolder

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


def test_a_run_without_batches_has_an_empty_journal(journal: BatchJournal) -> None:
    assert journal.load() == []


def test_what_was_written_is_read_in_order_of_time(journal: BatchJournal) -> None:
    late, early = entry("b", 2.0), entry("a", 1.0)
    for batch in (late, early):
        journal.begin(batch, CALLS)
    journal.write(late.model_copy(update={"state": "submitted", "batch_id": "batch_1"}))
    batches = journal.load()
    assert [(batch.tag, batch.state, batch.batch_id) for batch in batches] == [
        ("a", "intent", ""),
        ("b", "submitted", "batch_1"),
    ]
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
