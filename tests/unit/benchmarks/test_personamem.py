from pathlib import Path
from typing import Any

import pytest

from tests.build import write_lines
from tests.unit.benchmarks.records import by_arm, read_folder, record, sent
from tests.unit.datasets.builders import write_rows

MESSAGES = [
    {"role": "system", "content": "Persona: Mila."},
    {"role": "user", "content": "I sing alto."},
    {"role": "system", "content": "Persona: Mila."},
    {"role": "user", "content": "LATER"},
]


def row(**changes: Any) -> dict[str, Any]:
    about = {"persona_id": 0, "topic": "music", "shared_context_id": "ctx1"}
    end = {"end_index_in_shared_context": 2}
    return record("personamem", model_response=..., **about | end | changes)


def read(tmp_path: Path, *rows: dict[str, Any], contexts: bool = True) -> list[Any]:
    write_rows(tmp_path / "questions_32k.csv", rows)
    if contexts:
        contents = [{name: MESSAGES} for name in ("ctx0", "ctx1")]
        write_lines(tmp_path / "shared_contexts_32k.jsonl", contents)
    return read_folder(tmp_path, "personamem")


def test_a_row_and_its_context_up_to_its_place_become_a_sample(tmp_path: Path) -> None:
    [sample] = read(tmp_path, row())
    assert sample.answers == ("(b)", "(b) Alto\nof course")
    assert sample.metadata["choices"]["c"] == "Tenor"
    assert (sample.metadata["bucket"], sample.metadata["conversation"]) == ("32k", "ctx1")
    text = sent(sample)
    assert "user: I sing alto." in text
    assert "LATER" not in text
    assert "(b) Alto\nof course" in text


def test_the_right_letter_and_the_type_are_in_no_prompt(tmp_path: Path) -> None:
    first, second = read(tmp_path, row(), row(question_id="q2", correct_answer="(d)"))
    assert by_arm(first) == by_arm(second)
    assert "recall_user" not in str(by_arm(first))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"all_options": "(a) one (b) two"}, "all_options: must be a list of (a), (b), ... texts"),
        ({"all_options": "['(a) x', '(c) y']"}, "all_options: must be a list"),
        ({"all_options": "__import__('os').system('x')"}, "all_options: must be a list"),
        ({"correct_answer": "(f)"}, "correct_answer: '(f)' is not an option"),
        ({"shared_context_id": "gone"}, "has no context 'gone'"),
        ({"end_index_in_shared_context": 9}, "is 9, and the context has 4 messages"),
        ({"end_index_in_shared_context": "x"}, "must be a whole number, not 'x'"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    [problem] = read(tmp_path, row(**changes))
    assert "questions_32k.csv, line" in str(problem)
    assert "question q1: sample q1: " in str(problem)
    assert message in str(problem)


def test_without_its_contexts_a_table_cannot_be_read(tmp_path: Path) -> None:
    [problem] = read(tmp_path, row(), contexts=False)
    assert "shared_contexts_32k.jsonl" in str(problem)
