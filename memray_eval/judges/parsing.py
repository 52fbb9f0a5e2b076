"""The judgment in a judge's reply. A judgment class may bring `from_text(text) -> judgment | None`,
for a reply that is no JSON."""

from __future__ import annotations

import json
import re

from pydantic import BaseModel, ValidationError

from memray_eval.text_processing.thinking import split_thinking

MOST_OBJECTS = 200  # braces of a reply that are looked at
# In JSON: an escaped backslash, a whole surrogate pair, or (group 1) half of one, which no parser
# takes.
_HALF = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


class InvalidVerdict(Exception):
    """A reply that is no judgment: its text and what was wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(problem)
        self.text, self.problem = text, problem


def parse_judgment(text: str, judgment: type[BaseModel]) -> BaseModel:
    """The judgment in a reply, which may think first, wrap its JSON in a fence or in words, or be
    free text, if the judgment can be read from it. Raises InvalidVerdict."""
    if "\\u" in text:
        text = _HALF.sub(lambda match: "\\ufffd" if match[1] else match[0], text)
    try:
        return judgment.model_validate_json(text)
    except ValidationError as error:
        misfit = error
    text = split_thinking(text).text
    start, end = text.find("{"), text.rfind("}") + 1
    for candidate in dict.fromkeys([text, text[start:end], _last_object(text)]):
        try:
            return judgment.model_validate_json(candidate)
        except ValidationError as error:
            misfit = error if candidate.startswith("{") else misfit
    if misfit.errors()[0]["type"] == "json_invalid" and reads_text(judgment):
        read: BaseModel | None = judgment.from_text(text)  # type: ignore[attr-defined]
        if read is not None:
            return read
    raise InvalidVerdict(text, _describe_problem(misfit)) from None


def reads_text(judgment: type[BaseModel]) -> bool:
    return hasattr(judgment, "from_text")


def _last_object(text: str) -> str:
    """The last JSON object in a text that is in no other one, "" if there is none: a judge may
    draft a verdict, or quote one, before it gives its own."""
    decoder, last, start = json.JSONDecoder(), "", text.find("{")
    for _ in range(MOST_OBJECTS):
        if start < 0:
            break
        try:
            _, end = decoder.raw_decode(text, start)
            last = text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    return last


def _describe_problem(error: ValidationError) -> str:
    """What was wrong, field by field, without the values: they may quote what is judged."""
    problems = error.errors(include_input=False)[:5]
    return (
        "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in problems
        )
        + "."
    )
