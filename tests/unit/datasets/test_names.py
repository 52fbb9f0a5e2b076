"""Golds and responses by their many names, and choices in columns of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.build import write_lines
from tests.unit.datasets.test_conversations import Read, response_of


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        *(("response", gold) for gold in "golden_answer gt expectedAnswer answer_gold".split()),
        *((said, "answer") for said in "model_answer gpt_answer predicted actual_output".split()),
        *(("answer", "golden_answers"), ("predicted_answer", "actual_answer")),
    ],
)
def test_a_gold_is_no_response(response: str, gold: str, tmp_path: Path) -> None:
    row = {"question": "Who?", gold: "Lena", response: "Tomas"}
    (record,) = Read(write_lines(tmp_path / "a.jsonl", [row])).records
    assert (response_of(record).text, record.sample.answers) == ("Tomas", ("Lena",))


@pytest.mark.parametrize(
    "parts",
    [
        {"choices": ["oil", "butter"], "answer": 1},
        {"options": {"A": "oil", "B": "butter"}, "answer": "B"},
        {"choices": {"text": ["oil", "butter"], "label": ["1", "2"]}, "answerKey": "2"},
        {"choices": "['oil' 'butter']", "answer": "butter"},
        {"A": "oil", "B": "butter", "answer": "B"},
        {"opa": "oil", "opb": "butter", "cop": 1},
    ],
)
def test_choices_are_read(parts: dict[str, Any], tmp_path: Path) -> None:
    row = {"question": "Which?", "response": "butter", **parts}
    (record,) = Read(write_lines(tmp_path / "a.jsonl", [row])).records
    assert record.sample.metadata["choices"] == ["oil", "butter"]
    assert record.sample.answers == ("B",)
