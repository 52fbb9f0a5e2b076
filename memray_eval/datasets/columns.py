"""Which column of one's own data is which field of a sample: as the job says, or by names that are
common elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any

from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.answers import (
    ANSWERS_FIELDS,
    GOLD_FIELDS,
    MODEL_FIELDS,
    QUERY_FIELDS,
    ROW_FIELDS,
    TEXT_FIELDS,
    is_gold,
    is_missing,
    read_gold,
)
from memray_eval.datasets.conversations import (
    OfTexts,
    add_conversation,
    is_conversation,
    is_foreign_history,
    split_plain,
)
from memray_eval.datasets.dotted import look_up
from memray_eval.datasets.exports import Form, form_of
from memray_eval.datasets.parsing import LISTS, Fault, InvalidSample, id_text, invalid, parse_json
from memray_eval.datasets.sources import entries, prepared, whole
from memray_eval.errors import DataError, nearest
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import Sample

LOOKED_AT = 20  # rows whose columns are those of a dataset
RESPONSE = "response"
_FIELDS = frozenset(Sample.model_fields)
_JOIN = "Name the dataset that has the queries, by the same ids: --dataset FILE"
PROBLEM = "_problem"  # of a row that was joined to its sample: why that cannot be
OBJECTS = ("memory", "traits", "emotion", "metadata", "user")
TEXTS = frozenset(
    ("id", "query", "task", "context", "language", "scenario", "prompt_type", RESPONSE)
)
# What others call a field, the likeliest first; a column is taken once.
COMMON_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": (
            *QUERY_FIELDS,
            *"input instruction user_input user_message message utterance".split(),
        ),
        RESPONSE: (
            *TEXT_FIELDS,
            "completion",
            "generation",
            "reply",
            "model_output",
            *"hypothesis bot_message assistant_message".split(),
        ),
        "answers": (
            *ANSWERS_FIELDS,
            *"correct_answer correct_answers ideal targets target solution answer label".split(),
            "expectedoutput",
        ),
        "memory": ("memories", "profile", "user_profile", "user_memory"),
        "context": (
            *"document passage article retrieved_contexts retrieval_context contexts".split(),
        ),
        "history": ("chat_history", "conversation", "turns"),
        "id": ("_id", "uuid", "sample_id", "question_id", "row_id"),
    }
)


@dataclass(frozen=True)
class ColumnMap:
    """Which column a field is taken from. A column that no field is taken from keeps its name: one
    of a sample's fields, or metadata."""

    sources: Mapping[str, ColumnSource] = field(default_factory=dict)
    has_cells: bool = False  # a CSV's, in which all is text
    form: Form | None = None  # in which another tool wrote the rows
    of_texts: OfTexts = ""  # which queries and responses may be conversations

    def apply(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A row with a sample's fields. What a table holds as text becomes what the field is: JSON
        text an object or a list, a plain text a list of one or, in memory, a value under its
        column's name; a conversation becomes query, history and response. Raises InvalidSample for
        JSON text that is none, and for a conversation without a query."""
        if self._plain_chat and (fields := self._read_plain(raw)) is not None:
            return fields
        if PROBLEM in raw:
            raise invalid(str(raw[PROBLEM]), sample_id=str(raw.get("id") or ""))
        if self.form is None or not self.form.marks_of(raw):
            fields, of_texts = self._take(raw, raw), "query" if self.form else self.of_texts
        else:
            fields, of_texts = self._take(self.form.read(raw), raw), self.of_texts
        add_conversation(fields, of_texts)
        return fields

    @cached_property
    def _used(self) -> frozenset[str]:
        return frozenset(source["from"] for source in self.sources.values())

    @cached_property
    def _plain_chat(self) -> str:
        """The column of conversations, where no other column has to be looked at."""
        is_strict = self.form is not None and self.form.is_strict and not self.has_cells
        return self.form.chats[0] if self.form and is_strict and not self.sources else ""

    def _read_plain(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        """The fields of a row of text and plain turns, as most are; None for any other."""
        messages, fields = raw.get(self._plain_chat), dict[str, Any]()
        if type(messages) is not list:
            return None
        for name, value in raw.items():
            if type(value) is str and (name in TEXTS or name not in _FIELDS):
                fields[name] = value
            elif value is not messages:
                return None
        if self.form is None or not self.form.lacks or fields.keys().isdisjoint(self.form.lacks):
            return fields if split_plain(messages, fields) else None
        return None

    def _take(self, row: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a row, as its form has them; dotted columns are those of the whole."""
        used, metadata, fields = self._used, dict[str, Any](), dict[str, Any]()
        for name, value in row.items():
            if name in self.sources and self.sources[name]["from"] != name:
                metadata[name] = value
            elif name not in used and not is_missing(value):
                is_text = type(value) is str and name in TEXTS
                fields[name] = value if is_text else self._to_field(name, value, name, None)
            elif name == RESPONSE and name not in used:
                fields[name] = None  # no answer
        for name, source in self.sources.items():
            value = row.get(source["from"])
            if value is None:
                value = look_up(whole, source["from"])
            if not is_missing(value):
                fields[name] = self._to_field(name, value, source["from"], source.get("parse"))
            elif name == RESPONSE and source["from"] in row:
                fields[name] = None
        if metadata:
            own = fields.get("metadata")
            fields["metadata"] = metadata | (own if isinstance(own, dict) else {})
        return fields

    def _to_field(self, name: str, value: Any, column: str, parse: str | None) -> Any:
        if name == "answers" and parse is None:
            return read_gold(value, column, self.has_cells)
        return _to_field(name, value, column, parse)


def _to_field(name: str, value: Any, column: str, parse: str | None) -> Any:
    if name == "id":
        return id_text(value)
    if name in TEXTS and isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        if name == "memory" and isinstance(value, list | tuple):
            return {f"{column}_{at}": _remembered(item) for at, item in enumerate(value, 1)}
        if name == "context" and isinstance(value, list | tuple):
            return "\n\n".join(map(str, value))
        return [value] if name in LISTS and isinstance(value, int | float) else value
    if parse == "lines":
        lines = [line.strip() for line in value.splitlines() if line.strip()]
        return _to_field(name, lines, column, None)
    looks_like_json = value.lstrip()[:1] in ("{", "[") and name not in TEXTS
    if parse == "json" or (looks_like_json and name in (*OBJECTS, *LISTS, "history")):
        try:
            return _to_field(name, parse_json(value.encode("utf-8", "surrogatepass")), column, None)
        except InvalidSample as error:
            faults = [Fault(field=column, message=fault.message) for fault in error.faults]
            raise InvalidSample(faults) from None
    if name == "memory":
        return {column: value}
    return [value] if name in LISTS else value


def _remembered(item: Any) -> Any:
    """The text of a memory, as Mem0 has it in an object."""
    if not isinstance(item, dict):
        return item
    texts = (item.get(key) for key in ("memory", "text", "content"))
    return next((text for text in texts if isinstance(text, str)), item)


@dataclass(frozen=True)
class FoundColumns:
    """The columns of a dataset's first rows. `guessed` says which field was taken for which column
    because its name is common elsewhere, `other_golds` which columns that may hold the right
    answers, too, say something else, `fields` what is not metadata, and `first` the fields of the
    first row that can be read."""

    columns: tuple[str, ...]
    map: ColumnMap | None
    guessed: Mapping[str, str]
    other_golds: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset(Sample.model_fields)
    first: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_told(self) -> bool:
        """Whether something was taken that nobody named."""
        return bool(self.guessed) or (self.map is not None and self.map.form is not None)

    def tell(self, dataset: str) -> str:
        """What was taken as which field, and the first row, in a line."""
        form = self.map.form if self.map else None
        taken = ", ".join(f"{field} is {column!r}" for field, column in self.guessed.items())
        taken = "; ".join(filter(None, (f"read as {form.name}" if form else "", taken)))
        used = {*self.guessed.values()} | {
            source["from"] for source in (self.map.sources.values() if self.map else ())
        }
        rest = [name for name in self.columns if name not in used | self.fields]
        kept = f"; kept as metadata: {', '.join(rest)}" if rest and form is None else ""
        if self.other_golds:
            taken += f" (not {', '.join(map(repr, self.other_golds))}, which says otherwise)"
        return (
            f"Columns of {dataset}: {taken}{kept}.{self._first_row(form is not None)} "
            "`--map FIELD=COLUMN` or `columns:` decides."
        )

    def _first_row(self, is_chat: bool) -> str:
        shown = []
        for name in ("query", "history", RESPONSE):
            value = self.first.get(name)
            if isinstance(value, str):
                shown.append(f"{name} {shorten(value)}")
            elif name == "history" and (is_chat or value):
                n_turns = len(value) if isinstance(value, list) else 0
                shown.append(f"history of {n_turns} turns" if n_turns else "no history")
        return f" Row 1: {', '.join(shown)}." if shown else ""


def shorten(text: str, most: int = 48) -> str:
    """A text in quotes on one line, cut off where it is longer."""
    line = escape_controls(" ".join(text.split()))
    return repr(line if len(line) <= most else f"{line[: most - 1]}…")


def find_columns(
    dataset: str,
    by_job: Mapping[str, ColumnSource],
    has_responses: bool,
    may_guess: bool,
    encoding: str = "",
    is_joined: bool = False,
) -> FoundColumns:
    """How a dataset's rows become samples: by `by_job`, and where the first rows lack a field that
    is needed, by the form that another tool wrote them in, or common names. Rows that are joined to
    a dataset lack the query.

    Raises DataError, with the columns that there are and a mapping to paste, where a column that is
    named is not there, or nothing looks like the query (or the response, where there must be
    one)."""
    sources = whole(dataset)
    each = (entry.raw for source in sources for entry in entries(prepared(source, encoding)))
    raws = [as_row(raw) for raw in islice(each, LOOKED_AT)]
    whole_rows = [row for row in raws if isinstance(row, Mapping)]
    has_query = any("query" in row for row in whole_rows)
    form = None if has_query or "query" in by_job else form_of(whole_rows)
    if form is not None and not (may_guess or (has_responses and form.is_strict)):
        form = None  # the suite knows its records
    if form is not None and "query" not in form.fields and not is_joined:
        raise DataError(f"{dataset}: {form.name}, which hold no queries. {_JOIN}")
    of_texts: OfTexts = "" if form is None else form.of_texts
    if form is None and not has_query:
        of_texts = "chats" if "query" in by_job else "query"
    rows = [_fields_of(row, form) for row in whole_rows]
    columns = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    needed = (*([] if is_joined else ["query"]), *([RESPONSE] if has_responses else []))
    is_table = all(source.kind in ("csv", "parquet", "arrow") for source in sources)
    if rows:
        for name, source in by_job.items():
            at = source["from"]
            is_there = at in columns or any(look_up(row, at) is not None for row in whole_rows)
            if not is_there and (is_table or name in needed):
                raise DataError(_explain_lack(dataset, whole_rows, name, at))
    guessed: dict[str, str] = {}
    if rows and may_guess:
        guessed = _guess(columns, by_job, has_responses, rows, form is not None)
        named = {*columns, *by_job, *guessed}
        if by_job.keys() & {"turns", "user"} or any(map(_is_session, rows)):
            named.add("query")  # its first message
        for name in needed:
            # A row without either says so; an error stands in the place of a response
            at = guessed.get("query") or (by_job["query"]["from"] if "query" in by_job else "")
            is_chat = form is not None or any(is_conversation(row.get(at)) for row in rows)
            if name not in named and not is_chat and not (name == RESPONSE and "error" in named):
                raise DataError(_explain_lack(dataset, whole_rows, name, None))
    elif not {*columns, *by_job} & {"answer", *ANSWERS_FIELDS[:1]}:
        golds = [name for gold in GOLD_FIELDS for name in columns if name.lower() == gold]
        guessed = {"answers": golds[0]} if golds else {}
    has_cells = any(source.kind == "csv" for source in sources)
    chosen = {**by_job, **{name: ColumnSource({"from": at}) for name, at in guessed.items()}}
    is_foreign = any(is_foreign_history(row.get("history")) for row in rows)
    is_mapped = bool(chosen or has_cells or form or is_joined or is_foreign)
    mapped = ColumnMap(chosen, has_cells, form, of_texts) if is_mapped else None
    return FoundColumns(
        columns,
        mapped,
        guessed,
        _other_golds(columns, rows, guessed),
        frozenset(Sample.model_fields)
        | (ROW_FIELDS if has_responses else frozenset())
        | (frozenset() if may_guess else {*columns}),  # the suite knows them
        _first_read(mapped, whole_rows),
    )


def as_row(raw: Any) -> Any:
    """A row that is a list of turns as one that holds it; any other as it is."""
    return {"messages": raw} if isinstance(raw, list) and is_conversation(raw) else raw


def _fields_of(row: Mapping[str, Any], form: Form | None) -> Mapping[str, Any]:
    """A row's columns once its form is read; those that it has where that fails."""
    try:
        return row if form is None else ColumnMap(form=form, of_texts=form.of_texts).apply(row)
    except InvalidSample:
        return row


def _first_read(mapped: ColumnMap | None, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if mapped is None:
        return {}
    for row in rows:
        try:
            return mapped.apply(row)
        except InvalidSample:
            continue
    return {}


def _other_golds(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], guessed: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns that may hold the right answers, too, and differ from the one that was taken."""
    golds = [name for name in columns if name.lower() in COMMON_NAMES["answers"]]
    others = (
        [name for name in golds if name not in guessed.values()] if "answers" in guessed else []
    )
    taken = [read_gold(row.get(guessed["answers"]), "") for row in rows] if others else []
    read = {name: [read_gold(row.get(name), "") for row in rows] for name in others}
    return tuple(
        name
        for name, values in read.items()
        if any(other not in ([], gold) for other, gold in zip(values, taken, strict=True))
    )


def _guess(
    columns: Sequence[str],
    chosen: Mapping[str, ColumnSource],
    has_responses: bool,
    rows: Sequence[Mapping[str, Any]],
    has_form: bool,
) -> dict[str, str]:
    """Which column is which field, by COMMON_NAMES in any case. A row that has the field by its own
    name needs no guess, and one with a query of its own is in our format: its other columns are
    what they are called, but for the right answers."""
    by_name = {column.lower().replace(" ", "_"): column for column in reversed(columns)}
    taken = {source["from"] for source in chosen.values()} | (
        set(columns) & (Sample.model_fields.keys() | {RESPONSE})
    )
    if any(isinstance(turn, Mapping) for row in rows for turn in _listed(row.get("turns"))):
        taken.discard("turns")  # of both speakers: a history
    guessed: dict[str, str] = {}
    for name, common in COMMON_NAMES.items():
        if name in chosen or name in columns or (name == RESPONSE and not has_responses):
            continue
        for alias in (name, *common):
            column = by_name.get(alias)
            if column is None or column in taken:
                continue
            values = [row.get(column) for row in rows]
            if alias == "label":  # a list of numbers is a published benchmark's own
                values = [value for value in values if isinstance(value, str | int)]
            if name != "answers" or any(map(is_gold, values)):
                guessed[name] = column
                taken.add(column)
                break
    is_ours = not (has_form or guessed.keys() & {"query", RESPONSE})
    return {name: guessed[name] for name in guessed if name == "answers" or not is_ours}


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _is_session(row: Mapping[str, Any]) -> bool:
    """Whether a row has turns or a simulated user, as objects or as JSON text."""
    return str(row.get("turns") or "").lstrip()[:1] in ("[", "(") or (
        str(row.get("user") or "").lstrip()[:1] == "{"
    )


def _explain_lack(
    dataset: str, rows: Sequence[Mapping[str, Any]], name: str, wanted: str | None
) -> str:
    """What is not there, the columns that are, and a mapping that works, where there is one."""
    names = list(dict.fromkeys(str(column) for row in rows for column in row))
    hint, slips = (
        None,
        {column: nearest(column, ("turns", "user")) for column in names if column not in _FIELDS},
    )
    slip = next((column for column, meant in slips.items() if meant), None)
    if wanted is not None:
        hint = nearest(wanted, names)
        what = f"columns: {name} is to come from the column {wanted!r}, and there is none" + (
            f"; did you mean {hint!r}?" if hint else ""
        )
    elif name == "query" and slip is not None:  # a session has its first query there
        what, hint = f"no column is called query; did you mean {slips[slip]!r} by {slip!r}?", slip
        name = str(slips[slip])
    else:
        what = f"no column is called {name}, and none looks like it"
    what += "" if what.endswith("?") else "."
    lines = [f"{dataset}: {what} Its columns: {', '.join(names)}."]
    if wanted is None and {"role", "content"} <= set(names):
        lines.append("Each row is a turn; put a conversation's turns into one row's `messages`.")
    elif wanted is None and name == "query" and {"id", RESPONSE} <= set(names):
        lines.append(_JOIN)
    elif example := hint or _likely_column(rows, names):
        lines[0] += " Say which is which:"
        lines.append(
            f"  --map {name}={example}\nor in the job:\n  columns:\n    {name}: {example}\n"
            f"or from Python:\n  map={{{name!r}: {example!r}}}"
        )
    else:
        lines.append(f"None of them holds text that could be the {name}.")
    return "\n".join(lines)


def _likely_column(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """The first column of text that no field needs."""
    taken = {*Sample.model_fields, RESPONSE, "role", *MODEL_FIELDS}
    free = (name for name in names if name not in taken)
    return next((name for name in free if any(_is_said(row, name) for row in rows)), None)


def _is_said(row: Mapping[str, Any], column: str) -> bool:
    return isinstance(row.get(column), str) or is_conversation(row.get(column))
