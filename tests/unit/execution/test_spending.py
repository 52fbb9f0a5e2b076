"""What a resumed run's budget has been spent of already: by the run's book, and by its scores where
no book was kept."""

import time
from pathlib import Path

import pytest

from memray_eval.config.sections import Budget
from memray_eval.execution import waiting as spending
from memray_eval.execution.waiting import (
    SpendingBook,
    killed_sessions,
    resume_command,
    spending_in_scores,
    spending_so_far,
)
from memray_eval.judges.limits.budget import NO_MONEY, Spending
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Usage
from tests.build import build_score


def scored(record: Record, unit: str, *costs: float | None) -> Record:
    usage = Usage(input_tokens=100, output_tokens=10)
    scores = [build_score(f"m{n}", usage=usage, cost_usd=cost) for n, cost in enumerate(costs)]
    return record.model_copy(update={"unit_id": unit, "scores": tuple(scores)})


@pytest.fixture
def folder(folder: RunFolder, record: Record) -> RunFolder:
    """Two finished units, one that waits for the rest of its scores, and one without any."""
    done = [scored(record, "01" * 8, 0.5, 0.25), scored(record, "02" * 8, 0.125)]
    folder.write_part(to_table(done), RECORDS)
    waiting = [scored(record, "03" * 8, 1.0), scored(record, "04" * 8)]
    folder.write_part(to_table(waiting), RESPONSES)
    return folder


def test_the_book_counts_calls_that_left_no_score_and_without_one_the_scores_tell(
    folder: RunFolder, tmp_path: Path
) -> None:
    assert spending_so_far(RunFolder(str(tmp_path)), sessions=1) == Spending()
    scored = Spending(usd=1.875, tokens=440)
    assert spending_in_scores(folder) == spending_so_far(folder, sessions=1) == scored
    paid = Spending(usd=7.5, tokens=9000)
    SpendingBook(folder.path, session=2).write(paid)
    assert spending_so_far(folder, sessions=2) == paid
    assert spending_so_far(folder, sessions=3) == paid, "a session without a budget was killed"
    SpendingBook(folder.path, session=1).write(Spending(usd=1.0, tokens=9000))
    assert spending_so_far(folder, sessions=2) == Spending(usd=1.875, tokens=9000)


def test_a_book_that_cannot_be_read_or_written_costs_no_call(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path(folder.path) / "spending.json"
    file.write_text("{half")
    assert spending_so_far(folder, sessions=1) == Spending(usd=1.875, tokens=440)
    file.unlink()
    file.mkdir()
    with caplog.at_level("WARNING"):
        SpendingBook(folder.path, session=1).write(Spending(usd=1.0))
    assert "cannot be written down for a resumed run" in caplog.text


@pytest.mark.parametrize("paid_usd", [7.0, 0.5])
def test_what_a_killed_session_paid_is_in_the_sum(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, paid_usd: float
) -> None:
    monkeypatch.setattr(spending, "BOOK_S", 0.01)
    file = Path(folder.path) / "spending.json"
    with SpendingBook(folder.path, session=1).kept(lambda: Spending(usd=paid_usd)):
        while not file.exists():
            time.sleep(0.01)
        open_book = file.read_text()
    assert killed_sessions(folder, 1) == 0
    file.write_text(open_book)  # kill -9
    assert killed_sessions(folder, 1) == 1
    spent = max(paid_usd, 1.875)
    assert spending_so_far(folder, 1).usd == spent
    with SpendingBook(folder.path, session=2).kept(lambda: Spending(usd=1.0)):
        pass
    assert spending_so_far(folder, 2).usd == spent + 1.0
    assert killed_sessions(folder, 2) == 1


SPENT = f"the next judge call {NO_MONEY}"


@pytest.mark.parametrize(
    ("budget", "stopped", "options"),
    [
        (Budget(usd=0.5), SPENT, " --set budget.usd=1"),
        (Budget(usd=0.0), SPENT, " --set budget.usd=1"),
        (Budget(usd=2.0, tokens=100), SPENT, " --set budget.usd=4 --set budget.tokens=200"),
        (Budget(usd=2.0), "the judge answers no more", ""),
        (Budget(), None, ""),
    ],
)
def test_the_way_on_from_a_stop(budget: Budget, stopped: str | None, options: str) -> None:
    command = resume_command(RunFolder("my runs/r"), budget, stopped)
    assert command == f"memray-eval resume 'my runs/r'{options}"
