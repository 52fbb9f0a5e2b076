"""Conversational continuity: what its rules find, its counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics.assistant.conversational_continuity import (
    METRIC,
    rules,
)
from memray_eval.types import Response, Sample, Turn

TALK = Sample(
    id="T001",
    query="What should I eat for dinner before my climbing class?",
    memory={"city": "Lisbon"},
    history=(
        Turn(
            role="user",
            content="I have a nut allergy. My climbing class starts at 8 pm. Is rice fine?",
        ),
        Turn(role="assistant", content="Rice is a good source of slow energy, so have it often."),
        Turn(role="user", content="I sleep six hours. I don't eat meat."),
    ),
)
CLASS = "My climbing class starts at 8 pm."


def by_rules(text: str) -> float | None:
    return score_by_rules(METRIC, TALK, Response(text=text), {}, RULES).value


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("With your nut allergy, pick lentils, and eat two hours before the class starts.", 5),
        # one fact
        ("Pick a lentil stew. It starts to fill you soon, two hours before the class is best.", 4),
        ("Pick a lentil stew with bread.", 2),  # passes over when the class starts
        ("When does your climbing class start?", 2),  # it was said
        ("Your climbing class starts at 6 pm, so eat lentils.", 1),  # another time
        ("Since you eat meat, have beef two hours before it starts.", 1),  # the reverse
        # said before, and the class forgotten
        ("Rice is a good source of slow energy, so have it often.", 1),
        ("You mentioned a Ferrari. Pick a stew before it starts.", 2),  # never mentioned
        ("You mentioned Lisbon. Pick a stew before it starts.", 3),  # from the memory
        ("", 1),
        (" \t", 1),
    ],
)
def test_the_rules_follow_facts_of_the_history(text: str, score: float) -> None:
    assert by_rules(text) == score


def judged(text: str) -> dict[str, Any]:
    return rules(TALK, Response(text=text), {}).model_dump(
        include={"used_facts", "contradicted_facts", "forgotten_facts"}
    )


@pytest.mark.parametrize(
    ("text", "used", "contradicted", "forgotten"),
    [
        ("With your nut allergy, pick lentils.", ["I have a nut allergy."], [], [CLASS]),
        ("Your climbing class starts at 6 pm.", [], [CLASS], []),
        ("When does your climbing class start?", [], [], [CLASS]),
        ("You sleep nine hours before it starts.", [], ["I sleep six hours."], []),
        ("You sleep six hours; it starts late.", ["I sleep six hours."], [], []),
    ],
)
def test_facts_are_sorted_into_used_contradicted_and_forgotten(
    text: str, used: list[str], contradicted: list[str], forgotten: list[str]
) -> None:
    assert judged(text) == {
        "used_facts": used,
        "contradicted_facts": contradicted,
        "forgotten_facts": forgotten,
    }


def test_leaving_alone_a_history_without_bearing_on_the_query_is_right() -> None:
    sample = TALK.model_copy(update={"query": "How do I treat a burn?"})
    assert (
        score_by_rules(METRIC, sample, Response(text="Cool it under the tap."), {}, RULES).value
        == 4
    )


def test_counts_are_summed_and_averaged_over_samples() -> None:
    columns = {
        "value": np.array([5.0, 2.0]),
        "contradicted": np.array([0.0, 1.0]),
        "forgotten": np.array([1.0, 2.0]),
    }
    assert METRIC.aggregate(columns).extras == {
        "total_contradicted": 1,
        "average_contradicted": 0.5,
        "total_forgotten": 3,
        "average_forgotten": 1.5,
    }


@given(st.text(), st.text())
def test_any_text_gets_a_score_in_the_scale(text: str, told: str) -> None:
    sample = TALK.model_copy(update={"history": (*TALK.history, Turn(role="user", content=told))})
    assert 1 <= rules(sample, Response(text=text), {}).continuity_score <= 5
