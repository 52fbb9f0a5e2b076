"""Which column of one's own data is which field of a sample: as the job says, or by names that are
common elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any

from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.answers import (
    ANSWERS_FIELDS,
    GOLD_FIELDS,
    QUERY_FIELDS,
    ROW_FIELDS,
    TEXT_FIELDS,
    is_gold,
    is_missing,
    read_gold,
)
from memray_eval.datasets.parsing import LISTS, Fault, InvalidSample, id_text, parse_json
from memray_eval.datasets.sources import entries, whole
from memray_eval.errors import DataError, nearest
from memray_eval.types import Sample

LOOKED_AT = 20  # rows whose columns are those of a dataset
RESPONSE = "response"
OBJECTS = ("memory", "traits", "emotion", "metadata", "user")
TEXTS = ("id", "query", "task", "context", "language", "scenario", "prompt_type", RESPONSE)
# What others call a field, the likeliest first; a column is taken once.
COMMON_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": (
            *QUERY_FIELDS,
            *"input instruction user_input user_message message utterance".split(),
        ),
        RESPONSE: (*TEXT_FIELDS, "completion", "generation", "reply", "model_output"),
        "answers": (
            *ANSWERS_FIELDS,
            *"correct_answer correct_answers ideal targets target solution answer label".split(),
        ),
        "memory": ("memories", "profile", "user_profile", "user_memory"),
        "context": ("document", "passage", "article"),
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

    def apply(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A row with a sample's fields. What a table holds as text becomes what the field is: JSON
        text an object or a list, a plain text a list of one or, in memory, a value under its
        column's name. Raises InvalidSample for JSON text that is none."""
        used = {source["from"] for source in self.sources.values()}
        metadata: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for name, value in raw.items():
            if name in self.sources and self.sources[name]["from"] != name:
                metadata[name] = value
            elif name not in used and not is_missing(value):
                fields[name] = self._to_field(name, value, name, None)
            elif name == RESPONSE and name not in used:
                fields[name] = None  # no answer
        for name, source in self.sources.items():
            value = raw.get(source["from"])
            if not is_missing(value):
                fields[name] = self._to_field(name, value, source["from"], source.get("parse"))
            elif name == RESPONSE and source["from"] in raw:
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
            return {f"{column}_{number}": item for number, item in enumerate(value, 1)}
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


@dataclass(frozen=True)
class FoundColumns:
    """The columns of a dataset's first rows. `guessed` says which field was taken for which column
    because its name is common elsewhere, `other_golds` which columns that may hold the right
    answers, too, say something else, and `fields` what is not metadata."""

    columns: tuple[str, ...]
    map: ColumnMap | None
    guessed: Mapping[str, str]
    other_golds: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset(Sample.model_fields)

    def tell(self, dataset: str) -> str:
        """What was guessed, in a line."""
        taken = ", ".join(f"{field} is {column!r}" for field, column in self.guessed.items())
        used = {*self.guessed.values()} | {
            source["from"] for source in (self.map.sources.values() if self.map else ())
        }
        rest = [name for name in self.columns if name not in used | self.fields]
        kept = f"; kept as metadata: {', '.join(rest)}" if rest else ""
        if self.other_golds:
            taken += f" (not {', '.join(map(repr, self.other_golds))}, which says otherwise)"
        return f"Columns of {dataset}: {taken}{kept}. `--map FIELD=COLUMN` or `columns:` decides."


def find_columns(
    dataset: str, by_job: Mapping[str, ColumnSource], has_responses: bool, may_guess: bool
) -> FoundColumns:
    """How a dataset's rows become samples: by `by_job`, and where the first rows lack a field that
    is needed, by common names.

    Raises DataError, with the columns that there are and a mapping to paste, where a column that is
    named is not there, or nothing looks like the query (or the response, where there must be
    one)."""
    sources = whole(dataset)
    first = islice((entry.raw for source in sources for entry in entries(source)), LOOKED_AT)
    rows = [row for row in first if isinstance(row, Mapping)]
    columns = tuple(dict.fromkeys(str(name) for row in rows for name in row))
    needed = ("query", RESPONSE) if has_responses else ("query",)
    is_table = all(source.kind in ("csv", "parquet", "arrow") for source in sources)
    if rows:
        for name, source in by_job.items():
            if source["from"] not in columns and (is_table or name in needed):
                raise DataError(_explain_lack(dataset, columns, name, source["from"]))
    guessed: dict[str, str] = {}
    if rows and may_guess:
        guessed = _guess(columns, by_job, has_responses, rows)
        named = {*columns, *by_job, *guessed}
        if by_job.keys() & {"turns", "user"} or any(map(_is_session, rows)):
            named.add("query")  # its first message
        for name in needed:
            # An error stands in the place of a response
            if name not in named and not (name == RESPONSE and "error" in named):
                raise DataError(_explain_lack(dataset, columns, name, None))
    elif not {*columns, *by_job} & {"answer", *ANSWERS_FIELDS[:1]}:
        golds = [name for gold in GOLD_FIELDS for name in columns if name.lower() == gold]
        guessed = {"answers": golds[0]} if golds else {}
    has_cells = any(source.kind == "csv" for source in sources)
    chosen = {**by_job, **{name: ColumnSource({"from": at}) for name, at in guessed.items()}}
    return FoundColumns(
        columns,
        ColumnMap(chosen, has_cells) if chosen or has_cells else None,
        guessed,
        _other_golds(columns, rows, guessed),
        frozenset(Sample.model_fields)
        | (ROW_FIELDS if has_responses else frozenset())
        | (frozenset() if may_guess else {*columns}),  # the suite knows them
    )


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
    is_ours = not guessed.keys() & {"query", RESPONSE}
    return {name: guessed[name] for name in guessed if name == "answers" or not is_ours}


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _is_session(row: Mapping[str, Any]) -> bool:
    """Whether a row has turns or a simulated user, as objects or as JSON text."""
    return str(row.get("turns") or "").lstrip()[:1] in ("[", "(") or (
        str(row.get("user") or "").lstrip()[:1] == "{"
    )


def _explain_lack(dataset: str, columns: Iterable[str], name: str, wanted: str | None) -> str:
    names = list(columns)
    if wanted is not None:
        hint = nearest(wanted, names)
        what = f"columns: {name} is to come from the column {wanted!r}, and there is none" + (
            f"; did you mean {hint!r}?" if hint else ""
        )
    else:
        what = f"no column is called {name}, and none looks like it"
    example = next((column for column in names if column not in Sample.model_fields), "COLUMN")
    slips = {column: nearest(column, ("turns", "user")) for column in names}
    if name == "query" and (meant := slips.get(example)) is not None:  # a session's first query
        name, what = meant, f"{what}; did you mean {meant!r} by {example!r}?"
    return (
        f"{dataset}: {what}. Its columns: {', '.join(names)}. Say which is which:\n"
        f"  --map {name}={example}\nor in the job:\n  columns:\n    {name}: {example}\n"
        f"or from Python:\n  map={{{name!r}: {example!r}}}"
    )
