"""What a row asks beside its query: choices in columns of their own, a system prompt, and what no
model here is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from memray_eval.datasets.conversations import text_of
from memray_eval.datasets.fields import NAMES, TABLE, plain_name, words_of
from memray_eval.datasets.parsing import invalid, look_up, parse_printed
from memray_eval.types.samples import CHOICES, NOT_SHOWN, SYSTEM

_ENDS = "|".join(words_of("not_shown_ends"))
_NOT_SHOWN = re.compile(
    "|".join(
        rf"(?P<{kind}>(?:{'|'.join(words.split())})s?(?:_(?:{_ENDS}|\d+))?)"
        for kind, words in TABLE[NOT_SHOWN].items()
    )
)
_LETTERED = re.compile(
    r"(?:(?:option|choice|opt|op|ending|answer|ans|alternative|sol)[ _]?)?([a-j]|\d)", re.I
)
_WRONG = re.compile(r"(?:distractor|(?:incorrect|wrong)[ _]answer)[ _]?\d", re.I)
_LETTER = re.compile(r"(?:.*\b(?:answer|option|choice)\b(?: is)?)?\W*[A-J]\W*", re.DOTALL | re.I)
_ITEM = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
# As numpy prints one in pandas
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
_OWN_LABEL = re.compile(r"\s*\(?([A-Ja-j])[).:]\s*(.+)", re.DOTALL)
_PARTS = re.compile(r"\s*[\n|;]\s*")
_KEYS, _TEXTS = ("label", "key", "letter", "id"), ("text", "value", "content", "option")
_MOST = 10  # choices with a letter by which an answer may name them


def read_choices(value: Any) -> tuple[list[str], list[str]]:
    """The texts of choices and the labels that they have, if any: of a list, an object by label,
    lists of texts and labels, or such a thing in a cell, also as numpy prints it, or parted by
    lines, strokes or semicolons. Else none."""
    if isinstance(value, str):
        text = _ARRAY.sub(r"\1", value)
        try:
            value = parse_printed(text)[0]
        except ValueError:
            value = _PARTS.split(text.strip())
        if isinstance(value, list) and len(value) == 1:  # numpy parts them by spaces alone
            value = [single or double for single, double in _ITEM.findall(text)]
    labels: Any = ()
    if isinstance(value, Mapping):
        labels, value = value.get("label"), value.get("text") or value.get("choices") or value
        if isinstance(value, Mapping):
            labels, value = [*value], [*value.values()]
    if not isinstance(value, list | tuple) or len(value) < 2:
        return [], []
    if all(isinstance(item, Mapping) for item in value):
        labels = [next((item[key] for key in _KEYS if key in item), None) for item in value]
        value = [next((item[key] for key in _TEXTS if key in item), None) for item in value]
    if not all(isinstance(text, str | int | float) for text in value):
        return [], []
    texts = [str(text) for text in value]
    marked = [mark for text in texts if (mark := _OWN_LABEL.fullmatch(text))]
    if [mark[1].upper() for mark in marked] == [*ascii_uppercase[: len(texts)]]:
        texts, labels = [mark[2] for mark in marked], [mark[1] for mark in marked]
    return texts, [str(label) for label in labels or ()]


def has_parts(row: Mapping[str, Any]) -> bool:
    """Whether a row asks something beside its query."""
    is_plain = isinstance(row.get(SYSTEM), str | None)
    has_wrong = any(map(_WRONG.fullmatch, row))
    return has_wrong or any(_choices_in(row)) or any(_not_shown_in(row)) or not is_plain


def counted_from(rows: Sequence[Mapping[str, Any]], column: str) -> int:
    """The first choice's number, 0 or 1, by the right answers, or by what columns are called."""
    found = [(str(row.get(column)).removesuffix(".0"), *_choices_in(row)) for row in rows]
    numbers = [
        (int(number), len(choices))
        for number, choices, labels in found
        if number.isdecimal() and choices and number not in labels
    ]
    if any(number in (0, n_choices) for number, n_choices in numbers):
        return int(all(number for number, _ in numbers))
    ends = {match[1] for row in rows for name in row if (match := _LETTERED.fullmatch(name))}
    is_by_name = column != "label" and "1" in ends and "0" not in ends
    return int(column == "gold_label" or is_by_name or any("answerA" in row for row in rows))


def settle_parts(fields: dict[str, Any], gold: Any, has_cells: bool, first: int) -> None:
    """Puts the choices among the metadata, and a right answer that is a choice's number from
    `first`, its label or its text as its letter; `gold` is the answer as the row has it. Raises
    InvalidSample for a response that is the letter of a choice in an order that no column tells."""
    kept: dict[str, Any] = {}
    choices, labels = _choices_in(fields)
    texts, said = [*map(str, filter(None, [gold])), *_wrong_in(fields)], fields.get("response")
    is_unordered = not choices and len(texts) > 2 and min(map(len, texts)) > 1
    if is_unordered and isinstance(said, str) and _LETTER.fullmatch(said):
        why = "and no column tells in which order they were asked; list them in `choices`"
        raise invalid(f"names a choice by its letter, {why}", "response")
    if choices:
        kept[CHOICES] = choices
        marks = look_up(fields, f"{CHOICES}.labels")
        if "answers" not in fields and isinstance(marks, list):  # 1 for the right one
            fields["answers"] = [choices[at] for at, mark in enumerate(marks) if mark == 1]
        answers = fields.get("answers")
        is_index = has_cells or type(gold) is int
        if isinstance(answers, list):
            fields["answers"] = [
                _as_letter(text, choices, labels, is_index, first) for text in answers
            ]
    if not isinstance(fields.get(SYSTEM), str | None):
        kept[SYSTEM] = text_of(fields.pop(SYSTEM))
    metadata = fields.get("metadata")
    if hidden := _not_shown_in(fields):
        own = metadata.get(NOT_SHOWN) if isinstance(metadata, Mapping) else None
        kept[NOT_SHOWN] = [*hidden, *(own or ())]
    if kept and isinstance(metadata, dict | None):
        fields["metadata"] = {**(metadata or {}), **kept}
        fields.pop(CHOICES, None)


def _choices_in(row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The choices of a row, of one column or a column each, and their labels, if not numbers."""
    for name in NAMES[CHOICES]:
        if row.get(name) is not None and (found := read_choices(row[name]))[0]:
            return found
    named = {
        match[1].lower(): str(value)
        for name, value in row.items()
        if (match := _LETTERED.fullmatch(name)) and isinstance(value, str | int | float)
    }
    for first in ("a", "0"):
        texts = [named[key] for at in range(_MOST) if (key := chr(ord(first) + at)) in named]
        if len(texts) > 1 and len(texts) == len(named):
            return texts, sorted(named) if first == "a" else []
    wrong = _wrong_in(row)
    if len(wrong) > 1 and row.get("response") is None:  # one's letter is of an unknown order
        right = row.get("answers")
        return sorted([*(right if isinstance(right, list) else ()), *wrong]), []
    return [], []


def _wrong_in(row: Mapping[str, Any]) -> list[str]:
    return [str(value).strip() for name, value in row.items() if _WRONG.fullmatch(name)]


def _not_shown_in(row: Mapping[str, Any]) -> list[str]:
    """The kinds of what a row holds and no model is shown."""
    return [
        kind
        for name, value in row.items()
        if value and (match := _NOT_SHOWN.fullmatch(plain_name(str(name))))
        if (kind := str(match.lastgroup))
        if kind != "tools" or isinstance(value, list) or str(value).lstrip()[:1] in ("[", "{")
    ]


def _as_letter(gold: str, choices: list[str], labels: list[str], is_index: bool, first: int) -> str:
    bare = gold.strip().removesuffix(".0")
    same = [at for at, text in enumerate(choices) if text.strip().lower() == bare.lower()]
    labelled = [at for at, label in enumerate(labels) if label.strip().lower() == bare.lower()]
    number = int(bare) - first if bare.isdecimal() else -1
    numbered = [number] if 0 <= number < len(choices) else []
    at = next(iter(labelled or (numbered + same if is_index else same + numbered)), None)
    if at is None and len(choices) > _MOST and bare in ascii_uppercase[: len(choices)]:
        at = ascii_uppercase.index(bare)
    return gold if at is None else ascii_uppercase[at] if len(choices) <= _MOST else choices[at]
