"""What a provider's errors say of its batches, and how results are read whatever a model wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.errors import JudgeError
from memray_eval.judges.batches.openai import OpenAIBatches
from memray_eval.judges.batches.port import is_passing, read_objects, refuses_batches, to_line


@pytest.mark.parametrize(
    ("status", "refuses", "passes"),
    [
        (400, True, False),
        (403, True, False),
        (404, True, False),
        (429, False, True),
        (413, False, True),
        (500, False, True),
        (None, False, True),
    ],
)
def test_an_error_says_never_or_later(status: int | None, refuses: bool, passes: bool) -> None:
    error = JudgeError("no", status=status)
    assert (refuses_batches(error), is_passing(error)) == (refuses, passes)


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    lines = [{"text": "a\u2028b\x85c\x0bd"}, {"text": "e"}]
    path = tmp_path / "results"
    path.write_bytes(b"".join(map(to_line, lines)) + b"{broken\n[1]\n\n")
    assert list(read_objects(path)) == lines


def test_an_error_in_the_body_is_one_whatever_the_status_says() -> None:
    body = {"error": {"message": "no", "type": "invalid_request_error"}}
    for status in (200, 400):
        line = {"custom_id": "k", "response": {"status_code": status, "body": body}, "error": None}
        result = OpenAIBatches.read_result(line)
        assert result is not None
        assert (result.kind, result.status) == ("error", 400)


@pytest.mark.parametrize("line", [{}, {"custom_id": 3}, {"custom_id": None, "response": {}}])
def test_a_line_without_a_key_is_no_result(line: dict[str, object]) -> None:
    assert OpenAIBatches.read_result(line) is None
