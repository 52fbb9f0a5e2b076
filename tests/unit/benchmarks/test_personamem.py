from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.personamem import prompt
from memray_eval.datasets.reading import SampleReader
from memray_eval.types import Candidate
from tests.build import write_lines
from tests.unit.benchmarks.records import read_folder, record
from tests.unit.datasets.builders import write_rows

SUITE = get_suite("personamem")
READER = SampleReader(suite="personamem", adapt=SUITE.adapt, files=SUITE.files)
MESSAGES = [
    {"role": "system", "content": "Persona: Mila."},
    {"role": "user", "content": "I sing alto."},
    {"role": "system", "content": "Persona: Mila."},
    {"role": "user", "content": "LATER"},
]


def row(**changes: Any) -> dict[str, Any]:
    about = {"persona_id": 0, "topic": "music", "shared_context_id": "ctx1"}
    place = {"end_index_in_shared_context": 2}
    return record("personamem", model_response=..., **about | place | changes)


def read(tmp_path: Path, *rows: dict[str, Any], contexts: bool = True) -> list[Any]:
    write_rows(tmp_path / "questions_32k.csv", rows)
    if contexts:
        contents = [{name: MESSAGES} for name in ("ctx0", "ctx1")]
        write_lines(tmp_path / "shared_contexts_32k.jsonl", contents)
    return read_folder(tmp_path, READER)


def test_a_row_and_its_context_up_to_its_place_become_a_sample(tmp_path: Path) -> None:
    [sample] = read(tmp_path, row())
    assert sample.answers == ("(b)", "(b) Alto\nof course")
    assert sample.metadata["choices"]["c"] == "Tenor"
    assert (sample.metadata["bucket"], sample.metadata["conversation"]) == ("32k", "ctx1")
    text = prompt(sample, Candidate(name="a", model="m")).messages[0].content
    assert "user: I sing alto." in text
    assert "LATER" not in text
    assert "(b) Alto\nof course" in text


def test_the_right_letter_and_the_type_are_in_no_prompt(tmp_path: Path) -> None:
    [first, second] = read(tmp_path, row(), row(question_id="q2", correct_answer="(d)"))
    for arm in ("full", "none", "retrieved"):
        candidate = Candidate(name="a", model="m", context=arm)  # type: ignore[arg-type]
        text = prompt(first, candidate).messages[0].content
        assert text == prompt(second, candidate).messages[0].content
        assert "recall_user" not in text


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
