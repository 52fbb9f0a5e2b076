"""Right answers under their usual names, and in the forms that they have elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.fields import read_gold
from memray_eval.errors import DataError
from tests.build import write_lines

LISTED = "['2', '两个', '二']"
SQUAD = {"text": ["forty minutes", "40 min"], "answer_start": [3, 3]}
QUESTION = {"question": "How long?", "response": "forty"}


@pytest.mark.parametrize(
    ("value", "column", "answers"),
    [
        ("zinc", "answers", ["zinc"]),
        ("", "answers", [""]),
        (None, "answers", []),
        (float("nan"), "answers", []),
        (7, "answers", ["7"]),
        (True, "answers", ["true"]),
        (["a", None, float("nan"), 2], "answers", ["a", "2"]),
        (SQUAD, "answers", ["forty minutes", "40 min"]),
        ({"text": [], "answer_start": []}, "answers", []),
        (str(SQUAD), "answers", ["forty minutes", "40 min"]),
        (json.dumps(SQUAD), "answers", ["forty minutes", "40 min"]),
        ("[1, 2, 3]", "ground_truth", ["[1, 2, 3]"]),
        ("[1, 2, 3]", "answers", ["[1, 2, 3]"]),
        ('["a", "b"]', "ground_truth", ['["a", "b"]']),
        ('["a", "b"]', "answers", ['["a", "b"]']),
        (LISTED, "ground_truth", ["2", "两个", "二"]),
        (LISTED, "answers", ["2", "两个", "二"]),
        (LISTED, "expected_output", [LISTED]),
        ("{'a': 1}", "ground_truth", ["{'a': 1}"]),
        ("[x for x in y]", "ground_truth", ["[x for x in y]"]),
        ("[" * 5000, "ground_truth", ["[" * 5000]),
        ("{broken", "answers", ["{broken"]),
        ({"tone": "warm"}, "answers", {"tone": "warm"}),
    ],
)
def test_right_answers_are_read_in_any_form(value: Any, column: str, answers: Any) -> None:
    assert read_gold(value, column) == answers


def test_a_cell_of_a_csv_may_hold_a_list_of_texts() -> None:
    assert read_gold('["a", "b"]', "answers", is_cell=True) == ["a", "b"]
    assert read_gold('["a", "b"]', "ground_truth", is_cell=True) == ['["a", "b"]']
    assert read_gold("[1, 2, 3]", "answers", is_cell=True) == ["[1, 2, 3]"]
    assert read_gold("NaN", "answers", is_cell=True) == []


def find(tmp_path: Path, rows: list[dict[str, Any]], **columns: str) -> Any:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {name: ColumnSource({"from": column}) for name, column in columns.items()}
    return find_columns(str(path), sources, has_responses=True, may_guess=True)


@pytest.mark.parametrize(
    "name",
    "answers answer gold gold_answer gold_answers target targets expected expected_output "
    "expected_answer reference references ground_truth ideal correct_answer solution label "
    "Gold_Answer".split(),
)
@pytest.mark.parametrize("query", ["query", "question"])
def test_a_column_of_right_answers_is_found_and_said(tmp_path: Path, name: str, query: str) -> None:
    mapping = find(tmp_path, [{query: "How long?", "response": "forty", name: "forty"}])
    row = {query: "How long?", "response": "forty", name: "forty"}
    assert (row if mapping.map is None else mapping.map.apply(row))["answers"] in (
        ["forty"],
        "forty",
    )
    assert (f"answers is {name!r}" in mapping.note) == (name != "answers")
    assert "kept as metadata" not in mapping.note


@pytest.mark.parametrize(
    "name",
    "predictions|responses|completions|hyp|llm_answer_text|Answer by GPT-4|Output (gpt-4o)"
    "|o1-preview|grok-4|chatgpt|output_llama3|AI|actual|Modellantwort|Antwort des Modells"
    "|Réponse générée|出力|模型回复".split("|"),
)
def test_beside_a_column_of_responses_answer_is_the_right_one(tmp_path: Path, name: str) -> None:
    guessed = find(tmp_path, [{"question": "How long?", "answer": "forty", name: "4 days"}]).guessed
    assert (guessed["response"], guessed["answers"]) == (name, "answer")


@pytest.mark.parametrize(
    "name",
    "exact_answer|Correct Answer(s)|gold_ans|gold_truth|expected_final_answer|reference answer 1"
    "|answer_text|Richtige Antwort|Risposta corretta|参考回答|模範解答".split("|"),
)
def test_right_answers_by_their_words(tmp_path: Path, name: str) -> None:
    row = {"question": "How long?", "model_answer": "4 days", name: "forty"}
    assert find(tmp_path, [row]).guessed["answers"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("response_model", "gpt-4o"), ("ai", "yes"), ("gpt4_verdict", "It is right.")],
        *[("bot", "b1"), ("response_time", "3 s"), ("philosophy", "a b"), ("manual_label", "good")],
        *[("bot", "Support Bot"), ("grokking", "a b"), ("glm_mode", "a b"), ("results", {"f1": 1})],
        *[("output_format", "one word"), ("prediction_date", "May 7"), ("gpt4_grade", "B minus")],
    ],
)
def test_what_is_no_response_is_beside_one(tmp_path: Path, name: str, value: Any) -> None:
    columns = find(tmp_path, [{"question": "How long?", "answer": "forty", name: value}] * 3)
    assert columns.guessed == {"query": "question", "response": "answer"}


def test_of_a_suite_an_answer_is_the_response_beside_a_right_one_of_its_row(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"answer": "forty"}, {"ideal_answer": "none"}]  # BEAM's
    for data, guessed in (
        (rows, {}),
        ([rows[0] | rows[1]], {"answers": "ideal_answer", "response": "answer"}),
        ([{"answer": "a", "gpt-4_prediction": "b", "gpt-4_kappa": 1}], "gpt-4_prediction"),
    ):
        path = str(write_lines(tmp_path / "rows.jsonl", data))
        columns = find_columns(path, {}, has_responses=True, may_guess=False).guessed
        assert guessed in (columns, columns.get("response"))


def test_of_two_responses_beside_an_answer_none_is_taken(tmp_path: Path) -> None:
    row = {"question": "How long?", "answer": "forty", "response_a": "4 days", "response_b": "5"}
    with pytest.raises(DataError, match="--map response=response_a"):
        find(tmp_path, [row])


@pytest.mark.parametrize(
    "name",
    "generated|raw_output|response_text|gpt-4o-mini|Answer by GPT-4|Modellantwort|模型回复".split(
        "|"
    ),
)
def test_beside_a_training_answer_a_response_is_read(tmp_path: Path, name: str) -> None:
    alpaca = {"instruction": "How long?", "input": "", "output": "forty", name: "4 days"}
    columns = find(tmp_path, [alpaca])
    assert (columns.first["response"], columns.first["answers"]) == ("4 days", ["forty"])
    turns = [{"from": "human", "value": "How long?"}, {"from": "gpt", "value": "forty"}]
    assert find(tmp_path, [{"conversations": turns, name: "4 days"}]).first["response"] == "4 days"


def test_of_two_columns_the_first_by_order_is_taken_and_the_other_said(tmp_path: Path) -> None:
    rows = [{**QUESTION, "target": "thirty", "gold_answer": "forty"}]
    mapping = find(tmp_path, rows)
    assert mapping.guessed["answers"] == "gold_answer"
    assert "'target'" in mapping.note
    agreeing = find(tmp_path, [{**QUESTION, "target": "forty", "gold_answer": "forty"}])
    assert "'target'" not in agreeing.note


def test_what_cannot_be_an_answer_is_not_taken(tmp_path: Path) -> None:
    rows = [{**QUESTION, "expected": {"tone": "warm"}, "label": [1, 2]}]
    assert "answers" not in find(tmp_path, rows).guessed
