"""The forms of forms.yaml in which other tools write down questions and answers: by what a row is
recognised, and where its fields are. And what a row asks beside its query: choices in columns of
their own, a system prompt, and what no model here is shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import Any

from memray_eval.datasets.conversations import (
    TURNS_KEYS,
    OfTexts,
    is_conversation,
    said_in,
    text_of,
)
from memray_eval.datasets.fields import (
    ITEM_NAMES,
    NAMES,
    ROW_NAMES,
    TABLE,
    ends_in_null,
    is_gold,
    is_missing,
    likely_columns,
    plain_name,
    words_of,
)
from memray_eval.datasets.parsing import MISSING, find_at, invalid, look_up, parse_printed
from memray_eval.types import EXISTING
from memray_eval.types.samples import CHOICES, NOT_SHOWN, SYSTEM

Paths = tuple[str, ...]
_GOLDS = [name for name in NAMES["answers"] if name != "label"]  # of people
_ASKED = words_of("asked_heads")
_GOLD_HEADS = frozenset(words_of("gold_heads"))
_SAID = words_of("said_heads")
_BESIDE = {*("system", "choices", "context"), *NAMES["system"], *NAMES["choices"]}
_HEADS = _GOLD_HEADS.union(_ASKED, _SAID)
_IN_REPLY = "choices.0.message choices.0.finish_reason candidates.0.content output.0.type".split()
_SHORT = 40  # characters of what tells a model's answers apart
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
    is_training: bool = False  # its answer is the reference beside a response
    left_out: Paths = ()
    once: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    apart: Paths = ()
    is_apart: bool = False
    nulls: Paths = ()  # those of the response, where null is no answer as other rows have one

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

    def told_apart(self, rows: Sequence[Mapping[str, Any]]) -> ExportForm:
        """The form of rows, in some of which one model answers one question."""
        read = (self.read(row) for row in rows if self.apart and self.marks_of(row))
        answers = Counter((str(row.get("id")), str(row.get("model"))) for row in read)
        return replace(self, is_apart=max(answers.values(), default=1) > 1)

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row's fields by our names. Raises InvalidSample for one that is not to be read."""
        for path, why in self.refused.items():
            if look_up(row, path) is not None:
                raise invalid(why, "response")
        fields: dict[str, Any] = {}
        used = {*self.left_out}
        for name, paths in self.fields.items():
            for path in paths:
                value = look_up(row, path)
                value = _opened(_unquoted(value)) if self.is_json else value
                if not is_missing(value) and value != "":
                    fields[name] = value
                    used |= {part.partition(".")[0] for part in path.split("+")}
                    break
        if self.is_apart:
            texts = [str(look_up(row, path)) for path in self.apart]
            own = next((text for text in texts if len(text) <= _SHORT), texts[-1])
            fields["candidate"] = f"{fields.get('model', EXISTING)}, {own}"
        if self.is_export and "answers" not in fields:  # a column of the user's own beside it
            named = _named_golds([name for name in row if name not in used])
            if gold := next((name for name in named if is_gold(row[name])), None):
                fields["answers"] = row[gold]
                used.add(gold)
        if fields.get("response") and "error" in fields:  # of the tool's own check
            used.discard("error")
            del fields["error"]
        self._mark_unanswered(fields, row)
        rest = {name: row[name] for name in row if name not in used and name not in fields}
        if not self.is_export:
            return fields | rest
        own = rest.pop("metadata", None)
        kept = {name: value for name, value in rest.items() if value is not None}
        fields["metadata"] = kept | (own if isinstance(own, dict) else {})
        return fields

    def _mark_unanswered(self, fields: dict[str, Any], row: Mapping[str, Any]) -> None:
        """Makes the response None if the row says that there is none."""
        if "response" in fields:
            fields.pop("finish_reason", None)  # it says no more
        elif "finish_reason" in fields or any(ends_in_null(row, path) for path in self.nulls):
            fields["response"] = None


def _paths_of(text: str) -> Paths:
    """The paths in a text, with the names that `~query` and `~answers` are short for."""
    return tuple(
        f"{before}{name}"
        for path in text.replace("|", " ").split()
        for before, _, names in [path.partition("~")]
        for name in (ITEM_NAMES[names] if names else [""])
    )


def _read_form(raw: Mapping[str, Any]) -> ExportForm:
    paths = {name: _paths_of(raw.get(name, "")) for name in ("chats", "left_out", "apart")}
    marks = tuple(map(_paths_of, raw["marks"].split()))
    fields = {name: _paths_of(text) for name, text in raw["fields"].items()}
    return ExportForm(**{**raw, **paths, "marks": marks, "fields": fields})


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
        is_training=True,
    )


_COLUMNS = (*TURNS_KEYS, "chatbot", "chat_history", "transcript", "text", "history")
FORMS = (*map(_read_form, TABLE["forms"]), *map(_form_of_column, _COLUMNS))


def _named_golds(names: Collection[str]) -> list[str]:
    return [*filter(names.__contains__, _GOLDS), *likely_columns("answers", names)]


def open_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a tracker's table as its nested export has it: `inputs.question` and cells of JSON
    as objects, the right answer as a text called `reference`, also from among the inputs, and a
    response from there. Any other row as it is, but for an API's reply in a cell."""
    opened = _open_cells(row)
    asked = next((head for head in _ASKED if _holds_text(opened.get(head), "query")), None)
    if asked is None and opened.keys() == row.keys():
        opened = {
            name: value if isinstance(value, str) or _is_reply(value) else row[name]
            for name, value in opened.items()
        }
    if asked is None:
        return opened if opened != row else row
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
        for head in filter(opened.keys().__contains__, _ASKED):
            inputs = opened[head] if isinstance(opened[head], Mapping) else {}
            for name in _named_golds(inputs)[:1]:
                opened["reference"] = inputs[name]
                left_out = {name, "response"} if "response" not in said else {name}
                opened[head] = {key: inputs[key] for key in inputs if key not in left_out}
    return opened if opened != row else row


def _open_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with objects for what is asked, answered and right, in cells of JSON and columns apart.
    If what is asked is JSON, so are the texts."""
    opened = dict[str, Any]()
    for column, value in row.items():
        name = _PREFIX.sub("", column)
        head, *inner = re.split(r"[./]", name, maxsplit=1)
        if inner and head in _HEADS and head not in row:
            nested = {inner[0].removeprefix("example."): _opened(value)}
            nested = _opened(nested) if inner == ["example"] else nested
            opened.setdefault(head, {}).update({} if value in (None, "") else nested)
        else:
            opened[name if name in _HEADS else column] = _opened(value) if name in _HEADS else value
    if any(map(_is_json, map(row.get, _ASKED))):
        opened |= {head: _unquoted(opened[head]) for head in opened if head in _HEADS}
    return opened


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


def _unquoted(cell: Any) -> Any:
    """The text that a cell holds as JSON, in quotation marks; any other as it is."""
    if isinstance(cell, str) and cell[:1] == cell[-1:] == '"':
        with suppress(ValueError):
            return json.loads(cell)
    return cell


def _is_json(cell: Any) -> bool:
    is_object = isinstance(cell, str) and cell.lstrip()[:1] in ("{", "[")
    return is_object or _unquoted(cell) is not cell


def _is_reply(value: Any) -> bool:
    """Whether an object is an API's reply, or a message of it."""
    by_assistant = look_up(value, "role") == "assistant"
    return by_assistant or any(look_up(value, path) is not None for path in _IN_REPLY)


def _holds_text(value: Any, name: str = "") -> bool:
    is_object = isinstance(value, Mapping)
    has_turns = is_object and not value.keys().isdisjoint(TURNS_KEYS)
    return has_turns or (is_object and said_in(value, name) is not None)


def form_of(rows: Sequence[Mapping[str, Any]]) -> ExportForm | None:
    """The first of FORMS that at least half of the rows have, if there are rows."""
    if not rows:
        return None
    return next((form for form in FORMS if 2 * sum(map(form.fits, rows)) >= len(rows)), None)


_ENDS = "|".join(words_of("not_shown_ends"))
_NOT_SHOWN = re.compile(
    "|".join(
        rf"(?P<{kind}>(?:{'|'.join(words.split())})s?(?:_(?:{_ENDS}|\d+))?)"
        for kind, words in TABLE[NOT_SHOWN].items()
    )
)
_LETTERED = re.compile(
    r"(?:(?:option|choice|opt|op|ending|answer|ans|alternative|sol|antwort|réponse|opción|respuesta"
    r"|resposta|risposta|选项)[ _]?)?([a-j]|\d)\)?",
    re.I,
)
_WRONG = re.compile(r"(?:distractor|(?:incorrect|wrong)[ _]answer)[ _]?\d", re.I)
_LETTER = re.compile(r"(?:.*\b(?:answer|option|choice)\b(?: is)?)?\W*[A-J]\W*", re.DOTALL | re.I)
_ITEM = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
# As numpy prints one in pandas
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
_OWN_LABEL = re.compile(r"\s*\(?([A-Ja-j])[).:]\s*(.+)", re.DOTALL)
_PARTS = re.compile(r"\s*[\n|;]\s*")
_SHORT_PARTS = re.compile(r"(?!.*, *(?:and|or) )[^,={\n]{1,30}(?:,[^,={\n]{1,30}){2,}")
_LETTER_OF_GOLD = re.compile(r"\(?([A-Ja-j])\b[).:]?(.*)", re.DOTALL)
_ENDING = re.compile(
    r"\.(?:(?P<pictures>png|jpe?g|gif|webp|bmp|tiff?)|(?P<recordings>wav|mp3|flac|m4a|ogg)"
    r"|(?P<videos>mp4|mov|avi|mkv|webm)|(?P<files>pdf|docx?|xlsx?|pptx?|zip))\Z"
)
_FILE_NAME = re.compile(r"file(?:_?name|_?path)?")
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
            is_short = _SHORT_PARTS.fullmatch(text.strip()) and not _PARTS.search(text.strip())
            value = re.split(r"\s*,\s*" if is_short else _PARTS, text.strip())
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
    kinds = [
        kind
        for name, value in row.items()
        if value and (match := _NOT_SHOWN.fullmatch(plain_name(str(name))))
        if (kind := str(match.lastgroup))
        if kind != "tools" or isinstance(value, list) or str(value).lstrip()[:1] in ("[", "{")
    ]
    named = (value for name, value in row.items() if _FILE_NAME.fullmatch(plain_name(str(name))))
    found = (_ENDING.search(str(value).lower()) for value in named)
    return [*kinds, *(str(ending.lastgroup) for ending in found if ending)]


def _as_letter(gold: str, choices: list[str], labels: list[str], is_index: bool, first: int) -> str:
    bare = gold.strip().removesuffix(".0")
    same = [at for at, text in enumerate(choices) if text.strip().lower() == bare.lower()]
    labelled = [at for at, label in enumerate(labels) if label.strip().lower() == bare.lower()]
    number = int(bare) - first if bare.isdecimal() else -1
    numbered = [number] if 0 <= number < len(choices) else []
    at = next(iter(labelled or (numbered + same if is_index else same + numbered)), None)
    if at is None and (own := _LETTER_OF_GOLD.fullmatch(bare)):  # (D), d, D. cork
        named = ascii_uppercase.index(own[1].upper())
        is_of = named < len(choices) and own[2].strip().lower() in (
            "",
            choices[named].lower().strip(),
        )
        at = named if is_of else None
    if at is None and len(choices) > _MOST and bare in ascii_uppercase[: len(choices)]:
        at = ascii_uppercase.index(bare)
    return gold if at is None else ascii_uppercase[at] if len(choices) <= _MOST else choices[at]
