"""What the units of a comparison are split by."""

from pathlib import Path

import pytest

from memray_eval.analysis.comparing import Compared
from memray_eval.analysis.open_runs import compare_runs, pick_candidates
from memray_eval.errors import ConfigError
from tests.build import build_folder
from tests.runs import chat_records


def compared(folder: Path, by: str | None) -> Compared:
    """Two runs whose samples are of three plans, and name their row."""
    paths = []
    for name in ("old", "new"):
        rows = list(chat_records(name, n=60))
        for number, record in enumerate(rows):
            record.sample.metadata.update(plan=f"p{number % 3}", row=str(number))
        paths.append(build_folder(folder / name, rows, {"started": "2026-11-24T00:00:00Z"}).path)
    return compare_runs(pick_candidates(paths), by=by)[0]


def test_units_are_split_by_task_or_any_key_of_the_metadata(tmp_path: Path) -> None:
    comparison = compared(tmp_path, "plan")
    assert {group.group for group in comparison.groups} == {"p0", "p1", "p2"}
    assert sum(group.n for group in comparison.groups if group.metric == "empathy") == 60
    assert compared(tmp_path, None).by == "task"


@pytest.mark.parametrize(
    ("by", "message"), [("row", "60 groups, more than the 50"), ("colour", "no answer names it")]
)
def test_a_split_that_is_none_is_told(tmp_path: Path, by: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compared(tmp_path, by)
