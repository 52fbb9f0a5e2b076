"""The forms in which other tools write down questions and answers, of forms.yaml: by what a row is
recognised, and where its fields are."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from memray_eval.datasets.answers import is_gold, is_missing
from memray_eval.datasets.conversations import TURNS_KEYS, OfTexts, is_conversation, said_in
from memray_eval.datasets.fields import (
    ITEM_NAMES,
    NAMES,
    ROW_NAMES,
    TABLE,
    likely_columns,
    words_of,
)
from memray_eval.datasets.parsing import MISSING, find_at, look_up, parse_printed

Paths = tuple[str, ...]
_GOLDS = [name for name in NAMES["answers"] if name != "label"]  # of people
_ASKED = words_of("asked_heads")
_GOLD_HEADS = frozenset(words_of("gold_heads"))
_SAID = words_of("said_heads")
_BESIDE = {*("system", "choices", "context"), *NAMES["system"], *NAMES["choices"]}
_HEADS = _GOLD_HEADS.union(_ASKED, _SAID)
_PREFIX = re.compile(r"(?:attributes|dataset_item|evaluation_task)\.")


@dataclass(frozen=True)
class ExportForm:
    """A form of rows; forms.yaml says what its fields mean."""

    name: str
    marks: tuple[Paths, ...]
    fields: Mapping[str, Paths]
    chats: Paths = ()
    lacks: Paths = ()
    is_export: bool = True
    is_strict: bool = False
    is_json: bool = False  # texts too, in quotation marks
    left_out: Paths = ()

    @property
    def of_texts(self) -> OfTexts:
        """Which of its texts may be conversations."""
        return "strict" if self.is_strict else "chats" if self.chats else "json"

    def marks_of(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has the marks."""
        return all(
            any(find_at(row, path) is not MISSING for path in mark) for mark in self.marks
        ) and row.keys().isdisjoint(self.lacks)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has the marks and a conversation, if that is one of them."""
        return self.marks_of(row) and (
            not self.chats or any(is_conversation(look_up(row, path)) for path in self.chats)
        )

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row's fields by our names."""
        fields: dict[str, Any] = {}
        used = {*self.left_out}
        for name, paths in self.fields.items():
            for path in paths:
                value = look_up(row, path)
                if self.is_json and isinstance(value, str) and value[:1] == value[-1:] == '"':
                    with suppress(ValueError):
                        value = json.loads(value)
                if not is_missing(value) and value != "":
                    fields[name] = value
                    used |= {part.partition(".")[0] for part in path.split("+")}
                    break
        if self.is_export and "answers" not in fields:  # a column of the user's own beside it
            named = _named_golds([name for name in row if name not in used])
            if gold := next((name for name in named if is_gold(row[name])), None):
                fields["answers"] = row[gold]
                used.add(gold)
        if "response" in fields and "error" in fields:  # of the tool's own check
            used.discard("error")
            del fields["error"]
        rest = {name: row[name] for name in row if name not in used and name not in fields}
        if not self.is_export:
            return fields | rest
        own = rest.pop("metadata", None)
        kept = {name: value for name, value in rest.items() if value is not None}
        fields["metadata"] = kept | (own if isinstance(own, dict) else {})
        return fields


def _paths_of(text: str) -> Paths:
    """The paths in a text, with the names that `~query` and `~answers` are short for."""
    return tuple(
        f"{before}{name}"
        for path in text.replace("|", " ").split()
        for before, _, names in [path.partition("~")]
        for name in (ITEM_NAMES[names] if names else [""])
    )


def _read_form(raw: Mapping[str, Any]) -> ExportForm:
    return ExportForm(
        name=raw["name"],
        marks=tuple(map(_paths_of, raw["marks"].split())),
        fields={name: _paths_of(text) for name, text in raw["fields"].items()},
        chats=_paths_of(raw.get("chats", "")),
        is_export=raw.get("is_export", True),
        is_json=raw.get("is_json", False),
        left_out=_paths_of(raw.get("left_out", "")),
    )


def _form_of_column(column: str) -> ExportForm:
    """The form of rows with a column of conversations."""
    return ExportForm(
        name=f"conversations in {column!r}",
        marks=((column,),),
        fields={"query": (column,)},
        chats=(column,),
        lacks=() if column in ("messages", "conversations", "contents") else NAMES["query"],
        is_export=False,
        is_strict=True,
    )


_COLUMNS = (*TURNS_KEYS, "chatbot", "chat_history", "transcript", "text", "history")
FORMS = (*map(_read_form, TABLE["forms"]), *map(_form_of_column, _COLUMNS))


def _named_golds(names: Collection[str]) -> list[str]:
    return [*filter(names.__contains__, _GOLDS), *likely_columns("answers", names)]


def open_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a tracker's table as its nested export has it: `inputs.question` and cells of JSON
    as objects, the right answer as a text called `reference`, also from among the inputs, and a
    response from there. Any other row as it is."""
    opened = dict[str, Any]()
    for column, value in row.items():
        name = _PREFIX.sub("", column)
        head, *inner = re.split(r"[./]", name, maxsplit=1)
        if inner and head in _HEADS and head not in row:
            nested = {} if value in (None, "") else {inner[0].removeprefix("example."): value}
            opened.setdefault(head, {}).update(nested)
        else:
            opened[name if name in _HEADS else column] = _opened(value) if name in _HEADS else value
    asked = next((head for head in _ASKED if _holds_text(opened.get(head))), None)
    if asked is None:
        return opened if opened.keys() != row.keys() else row
    for head in [name for name in opened if name in _GOLD_HEADS]:
        if isinstance(gold := opened[head], Mapping) and gold:
            named = (*likely_columns("answers", gold), *(gold if len(gold) == 1 else ()))
            text = next((gold[name] for name in named), None) or said_in(gold)
            if text is not None:
                del opened[head]
                opened["reference"] = text
    said = [head for head in opened if head in _SAID]
    inputs, others = opened[asked], [name for name in opened if name not in said]
    beside = {name: inputs[name] for name in inputs if name in _BESIDE and name not in opened}
    opened, others = {**beside, **opened}, [*beside, *others]
    if said and not _named_golds(others):
        if not any(_holds_text(opened[head]) or is_gold(opened[head]) for head in said):
            for name in [name for name in ROW_NAMES["response"] if name in inputs][:1]:
                opened = {name: opened[name] for name in others} | {"response": inputs[name]}
        for name in _named_golds(inputs)[:1]:
            opened["reference"] = inputs[name]
            left_out = {name, "response"} if "response" not in said else {name}
            opened[asked] = {key: inputs[key] for key in inputs if key not in left_out}
    return opened if opened != row else row


def _opened(cell: Any) -> Any:
    """The object that a cell of JSON holds, if it holds a text by a name of its own, or turns; of
    W&B Weave's objects what is in their `example`."""
    if isinstance(cell, Mapping) and isinstance(cell.get("example"), Mapping):
        return {name: cell[name] for name in cell if name != "example"} | dict(cell["example"])
    if not isinstance(cell, str) or cell.lstrip()[:1] != "{":
        return cell
    try:
        value = parse_printed(cell)[0]
    except ValueError:
        return cell
    return value if _holds_text(value) or likely_columns("answers", value) else cell


def _holds_text(value: Any) -> bool:
    is_object = isinstance(value, Mapping)
    return is_object and (not value.keys().isdisjoint(TURNS_KEYS) or said_in(value) is not None)


def form_of(rows: Sequence[Mapping[str, Any]]) -> ExportForm | None:
    """The first of FORMS that at least half of the rows have, if there are rows."""
    if not rows:
        return None
    return next((form for form in FORMS if 2 * sum(map(form.fits, rows)) >= len(rows)), None)
