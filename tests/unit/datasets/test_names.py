"""Golds and responses by their many names, and choices in columns of their own."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.parsing import InvalidSample
from tests.build import write_lines
from tests.unit.datasets.test_conversations import Read, response_of

USER = {"role": "user", "content": "Who?"}
CHECK = {"type": "equals", "value": "Lena"}
CHATML = (
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        *(
            ("response", gold)
            for gold in "golden_answer gt expectedAnswer answer_gold expert_answer 标准答案".split()
        ),
        *((said, "answer") for said in "model_answer gpt_answer predicted actual_output".split()),
        *((said, "answer") for said in ("gpt-4o", "submission", "模型回答")),
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
        {"options": ["(A) oil", "(B) butter"], "answer": "B"},
        {"options": "A. oil\nB. butter", "answer": "B"},
        {"options": [{"key": "A", "value": "oil"}, {"key": "B", "value": "butter"}], "gold": "B"},
        {"option1": "oil", "option2": "butter", "answer": "2"},
        {"answerA": "oil", "answerB": "butter", "label": "2"},
        {"options": ["oil", "butter"], "gold_label": 2},
        {"options": ["oil", "butter"], "label": 2},
        {"mc1_targets": {"choices": ["oil", "butter"], "labels": [0, 1]}},
        {
            "question": {"stem": "Which?", "choices": [{"text": "oil"}, {"text": "butter"}]},
            "answerKey": "B",
        },
        {"Option A": "oil", "Option B": "butter", "Correct": "B"},
        {"premise": "It melts.", "choice1": "oil", "choice2": "butter", "label": 1},
    ],
)
def test_choices_are_read(parts: dict[str, Any], tmp_path: Path) -> None:
    row = {"question": "Which?", "response": "butter", **parts}
    (record,) = Read(write_lines(tmp_path / "a.jsonl", [row])).records
    assert record.sample.metadata["choices"] == ["oil", "butter"]
    assert record.sample.answers == ("B",)


def test_choices_of_no_order_are_told_by_their_texts(tmp_path: Path) -> None:
    row = {
        "question": "Which?",
        "distractor1": "salt",
        "distractor2": "cork",
        "correct_answer": "a",
    }
    path = write_lines(tmp_path / "a.jsonl", [row])
    mapping = find_columns(str(path), {}, has_responses=False, may_guess=True).map
    assert mapping is not None
    asked, answered = mapping.apply(row), mapping.apply({**row, "response": "A"})
    assert (asked["metadata"]["choices"], asked["answers"]) == (["a", "cork", "salt"], ["A"])
    assert ("metadata" in answered, answered["answers"]) == (False, ["a"])
    with pytest.raises(InvalidSample, match="no column tells in which order"):
        mapping.apply({**row, "correct_answer": "oil", "response": "The answer is (B)."})


@pytest.mark.parametrize(
    ("row", "what", "found"),
    [
        *(
            ({"question": "Who?", name: "Be kind."}, "system", "Be kind.")
            for name in ("System Message", "developer_message", "instructions")
        ),
        ({"instructions": "Be kind.", "input": [USER]}, "system", "Be kind."),
        (
            {"systemInstruction": {"parts": [{"text": "Be kind."}]}, "contents": [USER]},
            "system",
            "Be kind.",
        ),
        ({"inputs": {"system": "Be kind.", "question": "Who?"}}, "system", "Be kind."),
        ({"prompt": CHATML}, "system", "Be kind."),
        ({"inputs": {"question": "Who?", "choices": ["a", "b"]}}, "choices", ["a", "b"]),
        ({"question": "Who?", "multiple_choice_options": ["a", "b"]}, "choices", ["a", "b"]),
        *(
            ({"question": "Who?", name: "a.png"}, "not_shown", ["pictures"])
            for name in ("image_1", "imagePaths", "img", "photo_url", "image_base64")
        ),
        ({"question": "Who?", "attachments": [{"path": "a"}]}, "not_shown", ["files"]),
        ({"question": "Who?", "image_caption": "a cat"}, "not_shown", None),
    ],
)
def test_what_a_row_asks_beside_its_query_is_kept(
    row: dict[str, Any], what: str, found: Any, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [row])
    mapping = find_columns(str(path), {}, has_responses=False, may_guess=True).map
    assert mapping is not None
    fields = mapping.apply(row)
    assert fields["query"] == "Who?"
    assert fields.get("metadata", {}).get(what, fields.get(what)) == found


@pytest.mark.parametrize(
    "row",
    [
        {"inputs.question": "Who?", "inputs.expected": "Lena", "output": "Tomas"},
        {"inputs": {"question": "Who?", "answer": "Lena"}, "output": "Tomas"},
        {"inputs": {"query": "Who?", "answer": "Lena", "response": "Tomas"}, "outputs.f1.f1": 1},
        {"dataset_item.input": "Who?", "evaluation_task.output": "Tomas", "expected": "Lena"},
        {"input": {"q": 1, "query": "Who?"}, "output": {"answer": "Tomas"}, "reference": "Lena"},
        {"prompt": "Who?", "text": "Tomas", "meta_info": {"id": "a"}, "label": "Lena"},
        {"input": "Who?", "output": [{"generated_text": "Tomas"}], "target_text": "Lena"},
        {"raw_input": {"question": "Who?", "answer": "Lena"}, "choices": [{"text": "Tomas"}]},
        {"question": "Who?", "answer": "Lena", "result": "Tomas it is"},
        {"traceId": "t", "input": '"Who?"', "output": '"Tomas"', "expectedOutput": '"Lena"'},
        {"input": {"user_question": "Who?"}, "output": "Tomas", "target": {"output": "Lena"}},
        {
            "messages": [{"role": "user", "content": "Who?"}],
            "message": {"role": "assistant", "content": "Tomas"},
            "expected": "Lena",
        },
        {
            "inputRecord": {"prompt": "Who?", "referenceResponse": "Lena"},
            "modelResponses": [{"response": "Tomas"}],
        },
        {
            "instance": {
                "input": {"text": "Who?"},
                "references": [
                    {"output": {"text": "x"}, "tags": []},
                    {"output": {"text": "Lena"}, "tags": ["correct"]},
                ],
            },
            "result": {"completions": [{"text": "Tomas"}]},
        },
        {"input": "Who?", "target": "Lena", "sample_score": {"score": {"prediction": "Tomas"}}},
        {"question": "Who?", "solution": "It is Lena", "answer": "Lena", "response": "Tomas"},
        {"problem": "Who?", "answer": "Lena", "metadata": "{'topic': 'x'}", "response": "Tomas"},
        {"question": "Who?", "answer": {"value": "Lena", "aliases": ["Lena"]}, "response": "Tomas"},
        {"Question": "Who?", "Expected Answer (human)": "Lena", "Response": "Tomas"},
        {"question": [[USER]], "function": [{}], "ground_truth": ["Lena"], "result": "Tomas()"},
        {
            "inputs": {"example": {"question": "Who?", "target": "Lena"}},
            "output": {"model_output": "Tomas"},
        },
        {"vars": {"question": "Who?"}, "assert": [CHECK], "response": "Tomas"},
        {
            "prompt": {"raw": "Who?"},
            "vars": {},
            "testCase": {"assert": [CHECK, {"type": "contains", "value": "x"}]},
            "response": {"output": "Tomas"},
        },
        {
            "doc": {"query": "Who?", "choices": ["Lena", "Tomas"], "gold_index": [0], "id": "a"},
            "model_response": {"text": ["Tomas"]},
        },
    ],
)
def test_a_trackers_row_is_read(row: dict[str, Any], tmp_path: Path) -> None:
    (record,) = Read(write_lines(tmp_path / "a.jsonl", [row])).records
    assert record.sample.query == "Who?"
    assert response_of(record).text.startswith("Tomas")
    assert record.sample.answers == ("Lena",)


def test_a_log_of_openai_evals_is_read(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"spec": {"eval_name": "who"}},
        {"sample_id": "who.0", "type": "sampling", "data": {"prompt": "Who?", "sampled": ["Tom"]}},
        {"sample_id": "who.0", "type": "match", "data": {"sampled": "x", "expected": "Lena"}},
        {"final_report": {"accuracy": 0}},
    ]
    (record,) = Read(write_lines(tmp_path / "a.jsonl", lines)).records
    assert (record.sample.query, response_of(record).text) == ("Who?", "Tom")
    assert record.sample.answers == ("Lena",)
