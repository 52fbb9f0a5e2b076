"""The user's own texts: a haystack, or questions over documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from memray_eval.errors import DataError
from memray_eval.storage.paths import locate, open_reader
from memray_eval.types import Frozen, Name

LONGEST_LINE = 600  # characters; longer paragraphs are cut at the ends of sentences
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|[。！？]|$)\s*")


class QuestionedText(Frozen):
    """A question over documents: `gold` are those that hold the answer, `documents` others that are
    about the same."""

    question: Name
    answers: Annotated[tuple[Name, ...], Field(min_length=1)]
    gold: Annotated[tuple[Name, ...], Field(min_length=1)]
    documents: tuple[Name, ...] = ()

    @field_validator("answers", "gold", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("gold", "documents")
    @classmethod
    def _on_one_line(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" ".join(text.split()) for text in texts)


def read_haystack(path: str) -> list[str]:
    """A text file (UTF-8) as lines of up to about LONGEST_LINE characters, each ending with a
    newline. Raises DataError."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in read_text(path).splitlines())
    lines = [line for paragraph in paragraphs for line in _cut_paragraph(paragraph)]
    if not lines:
        raise DataError(f"{path} has no text")
    return lines


def _cut_paragraph(paragraph: str) -> Iterator[str]:
    """Cuts a paragraph into lines of up to about LONGEST_LINE characters, at ends of sentences."""
    line = ""
    for sentence in _SENTENCE.findall(paragraph):
        if line and len(line) + len(sentence) > LONGEST_LINE:
            yield line.rstrip() + "\n"
            line = ""
        line += sentence
    if line:
        yield line.rstrip() + "\n"


def read_questions(path: str) -> list[QuestionedText]:
    """A JSONL file of QuestionedText. Raises DataError that names line and field."""
    found = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            try:
                found.append(QuestionedText.model_validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                field = ".".join(str(part) for part in first["loc"])
                raise DataError(
                    f"{path}, line {number}: {field + ': ' if field else ''}{first['msg']}"
                ) from None
    if not found:
        raise DataError(f"{path} has no questions")
    return found


def read_text(path: str) -> str:
    """A text file (UTF-8). Raises DataError."""
    filesystem, inner = locate(path)
    try:
        with open_reader(filesystem, inner) as file:
            return file.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
