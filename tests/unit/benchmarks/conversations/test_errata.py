from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.conversations.errata import read_errata, sample_id
from memray_eval.errors import ConfigError


def erratum(**changes: Any) -> dict[str, Any]:
    return {
        "question_id": "locomo_1_qa4",
        "error_type": "HALLUCINATION",
        "golden_answer": 2022,
        "correct_answer": "2021",
    } | changes


def test_questions_are_found_by_the_numbers_of_the_audit() -> None:
    assert sample_id("locomo_0_qa12") == "conv-26:qa12"
    assert sample_id("locomo_9_qa0") == "conv-50:qa0"
    assert sample_id("locomo_10_qa0") == "locomo_10_qa0"
    assert sample_id("mine-7") == "mine-7"


def test_an_audit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "errata.json"
    citation = erratum(question_id="locomo_0_qa1", error_type="WRONG_CITATION")
    path.write_text(json.dumps([erratum(), citation]))
    result = read_errata(str(path))
    assert (result["conv-30:qa4"].golden, result["conv-30:qa4"].is_answer_wrong) == ("2022", True)
    assert not result["conv-26:qa1"].is_answer_wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}]", "entry 1: question_id is missing"),
        ('[{"question_id": "a"}]', "entry 1: error_type is missing"),
        ("[1]", "entry 1: must be an object"),
        ("{}", "must be a list"),
        ("[", "cannot read"),
        (json.dumps([erratum(), erratum()]), "entry 2: locomo_1_qa4 stands twice"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "errata.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_errata(str(path))
    with pytest.raises(ConfigError, match="no file"):
        read_errata(str(tmp_path / "none.json"))
