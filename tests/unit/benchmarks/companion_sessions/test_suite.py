"""What the suite of companions' sessions reads, and the sessions that come with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.companion_sessions.suite import SUITE, TASKS, adapt
from memray_eval.datasets.parsing import parse_sample
from memray_eval.types import Sample

DATASET = Path(__file__).parents[4] / "dataset" / "companion_sessions"
PROFILE = {
    "member_attributes": {
        "name": "Ada",
        "age": 34,
        "siblings": ["a sister"],
        "exercise": None,
        "depressive_symptoms": "moderate",
        "likes_small_talk": "no",
        "program_goal": "to sleep through",
    },
    "member_narrative": " Ada bakes at night. ",
}
PROMPT: dict[str, Any] = {
    "prompt_id": 7,
    "category": "spiral_tropes",
    "prompts": ["i dreamt of a spiral"],
}


def adapted(**row: Any) -> Sample:
    return parse_sample({"id": "s", **adapt(row, "f.jsonl")}, "companion_sessions")


def test_a_profile_is_a_session_of_ten_turns_with_its_patient() -> None:
    sample = adapted(**PROFILE)
    user = sample.user
    assert user is not None
    assert (sample.task, sample.query, sample.n_turns) == ("mindeval", "Hello", 10)
    assert user.goal == "to sleep through"
    assert user.persona.startswith("Ada bakes at night.\n\nname: Ada; age: 34; siblings: a sister")
    assert "likes small talk: no" in user.persona
    assert "exercise" not in user.persona
    assert sample.memory == {
        "name": "Ada",
        "age": 34,
        "siblings": ("a sister",),
        "depressive symptoms": "moderate",
    }


def test_a_prompt_is_a_session_of_twenty_turns_with_its_seeker() -> None:
    sample = adapted(**PROMPT)
    assert sample.user is not None
    assert (sample.id, sample.task, sample.n_turns) == ("7", "spiral_bench", 20)
    assert (sample.query, sample.metadata) == (PROMPT["prompts"][0], {"category": "spiral_tropes"})


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


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"query": "Hi."}, "turns: is missing"),
        ({"member_attributes": {"name": "Ada"}}, "member_narrative"),
        ({"member_narrative": "Ada bakes."}, "member_attributes"),
        ({**PROFILE, "member_attributes": ["Ada"]}, r"member_attributes \(an object\)"),
        ({**PROMPT, "prompts": []}, "a list with one message"),
        ({**PROMPT, "prompts": "i dreamt"}, "a list with one message"),
        ({**PROMPT, "prompts": [3]}, "a list with one message"),
        ({**PROMPT, "category": "spirals"}, "category: 'spirals' is none of spiral_tropes"),
        ({"prompt_id": "7"}, "prompts: "),
    ],
)
def test_what_a_row_lacks_is_said(row: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        adapt(row, "f.jsonl")


@pytest.mark.parametrize(
    ("name", "n", "turns"), [("scripted.jsonl", 40, {8, 9}), ("simulated.jsonl", 12, {8, 9, 10})]
)
def test_the_sessions_that_come_with_it(name: str, n: int, turns: set[int]) -> None:
    rows = [json.loads(line) for line in (DATASET / name).read_text("utf-8").splitlines()]
    sessions = [adapted(**row) for row in rows]
    assert len({sample.id for sample in sessions}) == len(rows) == n
    assert {sample.n_turns for sample in sessions} == turns
    assert {sample.task for sample in sessions} <= set(TASKS)
    assert all((sample.user is None) == (name == "scripted.jsonl") for sample in sessions)
    assert set(TASKS) < set(SUITE.tasks)
