"""The user's own texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.benchmarks.generator.pools import insert_sentence
from memray_eval.benchmarks.generator.resources import LONGEST_LINE, read_haystack, read_questions
from memray_eval.errors import DataError


def test_a_text_becomes_lines_that_lose_no_word(tmp_path: Path) -> None:
    text = (
        "One  two. Three!\n\n\n"
        + "A sentence of some length. " * 80
        + "\n"
        + "很长的一句话。" * 200
        + "\r\nEnd"
    )
    (tmp_path / "t.txt").write_text(text, "utf-8")
    lines = read_haystack(str(tmp_path / "t.txt"))
    assert lines[0] == "One two. Three!\n"
    assert lines[-1] == "End\n"
    assert max(map(len, lines)) <= LONGEST_LINE + 1
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "has no text"), (b" \n\n", "has no text"), (b"\xff\xfe", "not UTF-8")]
)
def test_what_is_no_text(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "t.txt").write_bytes(data)
    with pytest.raises(DataError, match=text):
        read_haystack(str(tmp_path / "t.txt"))
    with pytest.raises(DataError, match="cannot read"):
        read_haystack(str(tmp_path / "absent.txt"))


def test_questions(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"question": "Who?", "answers": "Ann", "gold": ["Ann\\ndid. "], "documents": ["Bob did '
        'not."]}\n\n'
    )
    (result,) = read_questions(str(path))
    assert (result.answers, result.gold, result.documents) == (
        ("Ann",),
        ("Ann did.",),
        ("Bob did not.",),
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"question": "Who?", "answers": [], "gold": "x"}', "line 2: answers"),
        ('{"question": "", "answers": "a", "gold": "x"}', "line 2: question"),
        ('{"question": "Who?", "answers": "a"}', "line 2: gold"),
        ('{"question": "Who?", "answers": "a", "gold": "x", "docs": []}', "line 2: docs"),
        ("broken", "line 2: Invalid JSON"),
    ],
)
def test_bad_questions_are_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Who?", "answers": "Ann", "gold": "Ann did."}\n' + line + "\n")
    with pytest.raises(DataError, match=text):
        read_questions(str(path))


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("One is here. Two follows.\n", "One is here. KEY. Two follows.\n"),
        ("一句。两句。\n", "一句。KEY.两句。\n"),
        ("No second sentence.\n", "KEY.\n"),
        ("no end\n", "KEY.\n"),
        ("Pi is 3.14 or so. Two.\n", "Pi is 3.14 or so. KEY. Two.\n"),
    ],
)
def test_a_needle_stands_between_sentences(paragraph: str, expected: str) -> None:
    assert insert_sentence(paragraph, "KEY.") == expected
