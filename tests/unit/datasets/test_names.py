"""What a row asks beside its query; cases.jsonl has the many names of golds and responses."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.parsing import InvalidSample
from tests.build import write_lines

USER = {"role": "user", "content": "Who?"}
CHATML = (
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
    "<|im_start|>assistant\n"
)


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
