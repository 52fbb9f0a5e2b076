"""What the suite of companions' sessions reads, and the sessions that come with it."""

import json
from typing import Any

import pytest

from memray_eval.benchmarks.companion_sessions import SUITE, adapt
from memray_eval.datasets.parsing import parse_sample
from tests.conftest import REPOSITORY

DATASET = REPOSITORY / "dataset" / "companion_sessions"


@pytest.mark.parametrize(
    "row",
    [
        {"turns": ["Hi.", "Bye."], "task": "leans"},
        {"user": {"persona": "p", "goal": "g", "opening": "o"}},
        {"query": "q", "response": "r"},
        {"query": "q", "session": "s"},
    ],
)
def test_a_session_of_ours_stays_as_it_is(row: dict[str, Any]) -> None:
    assert adapt(row, "f.jsonl") == row


def test_a_row_that_is_no_session_is_told_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="turns: is missing"):
        adapt({"query": "Hi."}, "f.jsonl")


@pytest.mark.parametrize(
    ("name", "n", "turns"), [("scripted.jsonl", 40, {8, 9}), ("simulated.jsonl", 12, {8, 9, 10})]
)
def test_the_sessions_that_come_with_it(name: str, n: int, turns: set[int]) -> None:
    lines = (DATASET / name).read_text("utf-8").splitlines()
    rows = [adapt(json.loads(line), name) for line in lines]
    sessions = [parse_sample({"id": "s", **row}, "companion_sessions") for row in rows]
    assert len({sample.id for sample in sessions}) == len(rows) == n
    assert {sample.n_turns for sample in sessions} == turns
    assert {sample.task for sample in sessions} <= set(SUITE.tasks)
    assert all((sample.user is None) == (name == "scripted.jsonl") for sample in sessions)
