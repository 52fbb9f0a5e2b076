"""Which column of one's own data is which field of a sample: as the job says, or by its name."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.conversations import (
    OfTexts,
    add_conversation,
    is_conversation,
    is_foreign_history,
    is_transcript,
    said_in,
)
from memray_eval.datasets.fields import (
    JOIN_IDS,
    MAYBE_TEXT,
    MODEL_FIELDS,
    NAMES,
    ROW_FIELDS,
    ROW_NAMES,
    SAID,
    SAID_BY,
    SAID_IN,
    TEXT_FIELDS,
    ends_in_null,
    is_gold,
    is_missing,
    likely_columns,
    plain_name,
    read_gold,
    words_of,
)
from memray_eval.datasets.forms import (
    ExportForm,
    counted_from,
    form_of,
    has_parts,
    open_row,
    read_choices,
    settle_parts,
)
from memray_eval.datasets.parsing import (
    LISTS,
    InvalidSample,
    invalid,
    is_field,
    look_up,
    names_in,
    parse_json,
    parse_printed,
)
from memray_eval.datasets.shards import WRITTEN_FROM
from memray_eval.datasets.sources import entries, prepared, sources_of
from memray_eval.errors import DataError, nearest
from memray_eval.text_processing.values import quoted
from memray_eval.types import Sample, id_text
from memray_eval.types.samples import CRITERIA, EXAMPLE_TAGS, SAMPLE_JSON, SAMPLE_KEYS, SAMPLE_TEXT

LOOKED_AT = 20  # rows whose columns are those of a dataset
RESPONSE = "response"
_FIELDS = frozenset(Sample.model_fields)
_JOIN = "Name the dataset that has the queries, by the same ids: --dataset FILE"
_ALIASES = ("answer_aliases", "alt_ans", "alternative_answers")
# Of a row that was written again: why it cannot be read
PROBLEM = "_problem"
_AS_JSON = (*SAMPLE_JSON, "user", *LISTS, CRITERIA, EXAMPLE_TAGS)
_TEXTS = {"id", "context", RESPONSE, *SAMPLE_TEXT} - {"suite"}
_LIKE = 0.85  # of a misspelt field; `retrieved_keys` are another's
_PARTED = re.compile(r"\s*[,;|\n]\s*")  # keys of a cell
_CHOICE_GOLDS = words_of("choice_golds")
_NOT_ASKED = re.compile(
    r"(?:.*_)?(?:id|name|date|time|timestamp|status|state|type|kind|category|model|session|version|lang"
    r"|language|split|source|url|hash|tags?|path|verdict|score|rating|backend|object|created|created_at|confidence)"
)


@dataclass(frozen=True)
class ColumnMap:
    """Which column a field is taken from; any other column keeps its name."""

    sources: Mapping[str, ColumnSource] = field(default_factory=dict)
    has_cells: bool = False  # a CSV's, in which all is text
    form: ExportForm | None = None  # in which another tool wrote the rows
    of_texts: OfTexts = ""  # which queries and responses may be conversations
    is_opened: bool = False  # rows of a tracker's table, of which cells and columns are objects
    has_parts: bool = False  # choices and the like beside the query
    first_choice: int = 0  # the number of it
    is_table: bool = False  # which leaves out empty cells

    def apply(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A row with a sample's fields, its conversation taken apart. Raises InvalidSample."""
        if PROBLEM in raw:
            raise invalid(str(raw[PROBLEM]), sample_id=str(raw.get("id") or ""))
        raw = open_row(raw) if self.is_opened else raw
        if self.form is None or not self.form.marks_of(raw):
            fields, of_texts = self._take(raw, raw), "query" if self.form else self.of_texts
        else:
            fields, of_texts = self._take(self.form.read(raw), raw), self.of_texts
        if isinstance(golds := fields.get("answers"), list) and not fields.keys().isdisjoint(
            _ALIASES
        ):
            more = (read_gold(fields.get(name), name, self.has_cells) for name in _ALIASES)
            lists = (found for found in more if isinstance(found, list))
            fields["answers"] = [*dict.fromkeys(map(str, chain(golds, *lists)))]
        add_conversation(fields, of_texts, RESPONSE in self.sources)
        if self.has_parts:
            gold = look_up(raw, _column_of("answers", self.sources))
            settle_parts(fields, gold, self.has_cells, self.first_choice)
        fields.pop(WRITTEN_FROM, None)
        memory: Any = fields.get("memory")
        for name in SAMPLE_KEYS if isinstance(memory, Mapping) else ():
            listed = fields.get(name)
            if isinstance(listed, list) and len(listed) == 1 and str(listed[0]) not in memory:
                parts = [*filter(None, _PARTED.split(str(listed[0]).strip()))]
                fields[name] = parts if any(part in memory for part in parts) else listed
        return fields

    def _take(self, row: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a row, as its form has them; dotted columns are those of the whole."""
        used = {source["from"] for source in self.sources.values()}
        of_training = self.form is not None and self.form.is_training
        metadata, fields = dict[str, Any](), dict[str, Any]()
        for name, value in row.items():
            if name in self.sources and self.sources[name]["from"] != name:
                metadata[name] = value
                if of_training and name == RESPONSE and isinstance(value, str):  # the reference
                    fields.setdefault("answers", [value])
            elif name not in used and not is_missing(value):
                is_text = type(value) is str and name in _TEXTS
                fields[name] = value if is_text else self._to_field(name, value, name)
            elif name == RESPONSE and name not in used:
                fields[name] = None  # no answer
        for name, source in self.sources.items():
            value = whole.get(source["from"])  # also by a name of ours, in a form
            if value is None:
                value = row.get(source["from"])
            if value is None:
                value = look_up(whole, source["from"])
            if not is_missing(value):
                fields[name] = self._to_field(name, value, source["from"], source.get("parse"))
            elif name == RESPONSE and (
                self.is_table or of_training or ends_in_null(row, source["from"])
            ):
                fields[name] = "" if self.has_cells else None
        if metadata:
            own = fields.get("metadata")
            fields["metadata"] = metadata | (own if isinstance(own, dict) else {})
        return fields

    def _to_field(self, name: str, value: Any, column: str, parse: str | None = None) -> Any:
        if name == "answers" and parse is None:
            return read_gold(value, column, self.has_cells)
        if name == "id":
            return id_text(value)
        if name in _TEXTS and isinstance(value, int | float):
            return str(value)
        if name == "context" and parse is None:
            return _as_context(value)
        if not isinstance(value, str):
            if name == "memory" and isinstance(value, list | tuple):
                return {f"{column}_{at}": _remembered(item) for at, item in enumerate(value, 1)}
            return _as_list(name, value) if isinstance(value, int | float) else value
        if parse == "lines":
            lines = [line.strip() for line in value.splitlines() if line.strip()]
            return self._to_field(name, lines, column)
        if parse == "json" or (name in _AS_JSON and value.lstrip()[:1] in ("{", "[")):
            try:
                parsed = parse_json(value.encode("utf-8", "surrogatepass"))
                return self._to_field(name, parsed, column)
            except InvalidSample as error:
                if name in ("history", "metadata"):  # as Python prints it; a column of one's own
                    return value if name == "history" else {column: value}
                raise error.renamed(column) from None
        if name == "memory":
            return {column: value}
        return _as_list(name, value)


def _as_list(name: str, value: Any) -> Any:
    """A value of a list's field as its only item; a number of `turns` as it is."""
    return [value] if name in LISTS and is_field(name, value) else value


def _column_of(name: str, sources: Mapping[str, ColumnSource]) -> str:
    return sources[name]["from"] if name in sources else name


def _as_context(value: Any) -> Any:
    """The text of a list of documents, also as Python prints one; anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            parsed = parse_printed(value)[0]
            documents = [_remembered(it) for it in parsed] if isinstance(parsed, list) else []
            if documents and all(isinstance(text, str) for text in documents):
                return "\n\n".join(documents)
        return value
    is_list = isinstance(value, list | tuple)
    return "\n\n".join(str(_remembered(item)) for item in value) if is_list else value


def _remembered(item: Any) -> Any:
    """The text of a memory or document, as Mem0 and LangChain have it in an object."""
    if not isinstance(item, dict):
        return item
    texts = (item.get(key) for key in ("memory", "page_content", "text", "content"))
    return next((text for text in texts if isinstance(text, str)), item)


class FoundColumns(NamedTuple):
    """How columns are mapped (None: as they are); those guessed by their names, by field; the first
    row that can be read; whether all rows have right answers and no question, and any has several
    responses; and a line on what was taken as a field that nobody named, or ""."""

    map: ColumnMap | None
    guessed: Mapping[str, str]
    first: Mapping[str, Any]
    lacks_query: bool
    has_several: bool
    note: str


def find_columns(
    dataset: str,
    by_job: Mapping[str, ColumnSource],
    has_responses: bool,
    may_guess: bool,
    encoding: str = "",
    is_joined: bool = False,
) -> FoundColumns:
    """How a dataset's rows become samples: by `by_job`, and for a field that the first rows lack,
    by the form that another tool wrote them in, or common names. Rows that are joined lack the
    query. Raises DataError with the columns and a mapping to paste, if a column is missing."""
    sources = sources_of(dataset)
    raws = (entry.raw for source in sources for entry in entries(prepared(source, encoding)))
    raw_rows = [row for raw in islice(raws, LOOKED_AT) if isinstance(row := as_row(raw), Mapping)]
    rows = [open_row(row) if may_guess else row for row in raw_rows]
    has_query = any("query" in row for row in rows)
    form = None if has_query or "query" in by_job else form_of(rows)
    if form is not None and not (may_guess or (has_responses and form.is_strict)):
        form = None  # the suite knows its records
    if form is not None and "query" not in form.fields and not is_joined:
        raise DataError(f"{dataset}: {form.name}, which hold no queries. {_JOIN}")
    form = form and form.told_apart(rows)
    of_texts: OfTexts = "" if form is None else form.of_texts
    bare = ColumnMap(form=form, of_texts=of_texts)
    fields = [next(iter(_try_row(bare, row)), row) if form else row for row in rows]
    if form is not None and any(row.get(RESPONSE) for row in fields):
        form = replace(form, nulls=form.fields.get(RESPONSE, ()))
    looked_at = _FirstRows(dataset, by_job, rows, fields, form)
    needed = (*([] if is_joined else ["query"]), *([RESPONSE] if has_responses else []))
    is_table = all(source.kind in ("csv", "parquet", "arrow") for source in sources)
    if rows:
        looked_at.check_named([*by_job] if is_table else needed)
    guessed = looked_at.guess(has_responses, is_joined, may_guess)
    chosen = {**by_job, **{name: ColumnSource({"from": at}) for name, at in guessed.items()}}
    lacks_query = has_responses and not is_joined and looked_at.has_no_query(chosen)
    if rows and may_guess:
        looked_at.check_needed([RESPONSE] if lacks_query else needed, chosen)
    if form is None and not has_query:
        is_answered = RESPONSE in {*looked_at.columns, *chosen}
        texts = [look_up(row, _column_of("query", by_job)) for row in rows if "query" in by_job]
        n_chats = sum(is_transcript(text, is_answered) for text in texts)
        of_texts = "transcript" if n_chats and 2 * n_chats >= len(texts) else "query"
    mapped = ColumnMap(
        chosen,
        any(source.kind == "csv" for source in sources),
        form,
        of_texts,
        any(row is not raw for row, raw in zip(rows, raw_rows, strict=True)),
        may_guess and (bool({"choices", "system"} & {*chosen}) or any(map(has_parts, fields))),
        counted_from(fields, _column_of("answers", chosen)),
        is_table,
    )
    has_odd = mapped.has_cells or mapped.is_opened or mapped.has_parts
    is_mapped = bool(chosen or form or is_joined or has_odd) or any(
        is_foreign_history(row.get("history")) or isinstance(row.get(RESPONSE), list | dict)
        for row in fields
    )
    if is_mapped and may_guess:
        looked_at.check_keys(chosen)
    read = [own for row in raw_rows if is_mapped for own in _try_row(mapped, row)]
    first = read[0] if read else {}
    known = {*_FIELDS, *(ROW_FIELDS if has_responses else ())}
    known |= {source["from"] for source in chosen.values()}
    is_known = form is not None or not may_guess  # to the form, or to the suite
    kept = [name for name in looked_at.columns if not (is_known or name in known)]
    return FoundColumns(
        mapped if is_mapped else None,
        guessed,
        first,
        lacks_query,
        any(isinstance(row.get(RESPONSE), list) for row in read),
        looked_at.describe(guessed, lacks_query, kept, first),
    )


def as_row(raw: Any) -> Any:
    """A row that is a list of turns as one that holds it; any other as it is."""
    return {"messages": raw} if isinstance(raw, list) and is_conversation(raw) else raw


def _try_row(mapped: ColumnMap, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a row; none if it cannot be read."""
    try:
        return [mapped.apply(row)]
    except InvalidSample:
        return []


@dataclass(frozen=True)
class _FirstRows:
    """A dataset's first rows as they are, and their fields once their form is read."""

    dataset: str
    by_job: Mapping[str, ColumnSource]
    rows: Sequence[Mapping[str, Any]]
    fields: Sequence[Mapping[str, Any]]
    form: ExportForm | None

    def describe(
        self,
        guessed: Mapping[str, str],
        lacks_query: bool,
        kept: Sequence[str],
        first: Mapping[str, Any],
    ) -> str:
        """A line on what was taken as which field that nobody named, and the first row, or ""."""
        if self.form is None and not (guessed or lacks_query):
            return ""
        named = [(field, column) for field, column in guessed.items() if field != column]
        taken = ", ".join(f"{field} is {column!r}" for field, column in named)
        no_question = "no question, so only what needs none is scored" if lacks_query else ""
        read_as = f"read as {self.form.name}" if self.form else ""
        taken = "; ".join(filter(None, (read_as, taken, no_question)))
        if others := self._other_golds(guessed.get("answers", "")):
            taken += f" (not {', '.join(map(repr, others))}, which says otherwise)"
        taken += f"; kept as metadata: {', '.join(kept)}" if kept else ""
        shown = []
        for name in ("query", "history", RESPONSE):
            value = first.get(name)
            if isinstance(value, str):
                shown.append(f"{name} {quoted(value)}")
            elif name == "history" and (self.form or value):
                n_turns = len(value) if isinstance(value, list) else 0
                shown.append(f"history of {n_turns} turns" if n_turns else "no history")
            elif name == RESPONSE and isinstance(value, list):
                shown.append(f"{len(value)} responses, one an epoch")
        first_row = f" Row 1: {', '.join(shown)}." if shown else ""
        name = self.dataset.rstrip("/").rpartition("/")[2]
        how = "`--map FIELD=COLUMN` or `columns:` decides."
        return f"Columns of {name}: {taken}.{first_row} {how}"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(name) for row in self.fields for name in row))

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(str(column) for row in self.rows for column in row))

    def check_named(self, needed: Collection[str]) -> None:
        """Raises DataError if a column that the job names for a needed field is not there."""
        for name, source in self.by_job.items():
            at = source["from"]
            has_it = at in self.columns or any(look_up(row, at) is not None for row in self.rows)
            if name in needed and not has_it:
                hint = nearest(at, self._names)
                what = f"columns: {name} is to come from the column {at!r}, and there is none"
                raise self._lack(name, f"{what}; did you mean {hint!r}?" if hint else what, hint)

    def check_keys(self, chosen: Mapping[str, ColumnSource]) -> None:
        """Raises DataError for a column beside a memory that misspells a field of its keys: what
        must not be used would never be looked for."""
        named = {*self.columns, *chosen}
        lacking = [name for name in SAMPLE_KEYS if name not in named]
        own = named - _FIELDS - {source["from"] for source in chosen.values()}
        for column in sorted(own) if "memory" in named else ():
            if meant := nearest(plain_name(column), lacking, _LIKE):
                what = f"there is no field {column!r}; did you mean {meant!r}?"
                raise self._lack(meant, what, column)

    def check_needed(self, needed: Collection[str], chosen: Mapping[str, ColumnSource]) -> None:
        """Raises DataError for a field that no column holds; an error may stand for a response."""
        named, at = {*self.columns, *chosen}, _column_of("query", chosen)
        if chosen.keys() & {"turns", "user"} or any(map(_is_session, self.fields)):
            named.add("query")  # its first message
        if self.form is not None or any(is_conversation(row.get(at)) for row in self.fields):
            return
        if "error" in named:
            named.add(RESPONSE)
        if lacking := next((name for name in needed if name not in named), None):
            raise self._explain_lack(lacking)

    def has_no_query(self, chosen: Mapping[str, ColumnSource]) -> bool:
        """Whether there are right answers, and nothing that may be the question to them."""
        columns = {source["from"] for source in chosen.values()}
        asked = ("query", *NAMES["query"], "turns", "user")
        has_query = any(row.get(name) for row in self.fields for name in asked)
        if has_query or "query" in chosen or self.form is not None:
            return False
        if {*self.columns, *chosen}.isdisjoint(ROW_NAMES["answers"]):
            return False
        is_told = "query" in self.columns  # as a run writes such rows
        return is_told or self._likely_column({*columns, *TEXT_FIELDS, "sample_id"}) is None

    def guess(self, has_responses: bool, is_joined: bool, may_guess: bool) -> dict[str, str]:
        """Which column is which field, by NAMES in any case, each once. A row with its own query
        is in our format: only its right answers, and the id of a join, are guessed. Of a suite's
        records (not `may_guess`) only a column of golds is."""
        names, by_job = [*reversed(self.columns)], self.by_job
        if not may_guess:
            has_gold = {*names, *by_job} & {"answer", "answers"}
            golds = {} if has_gold else {name.lower(): name for name in names}
            found = [n for n in ROW_NAMES["answers"] if n.startswith("gold") and n in golds]
            has_said = not {RESPONSE, *ROW_NAMES[RESPONSE]}.isdisjoint({*names, *by_job})
            responses = likely_columns(RESPONSE, names) if has_responses and not has_said else []
            rows = self.fields
            responses = [
                of for of in responses if any(isinstance(row.get(of), str) for row in rows)
            ]
            if has_responses and not (has_said or responses) and "answer" in names:
                # Of one row, as Zep and MemOS write LoCoMo
                beside = [
                    name for name in names if any({name, "answer"} <= {*row} for row in self.fields)
                ]
                likely = likely_columns("answers", beside)
                return {"answers": likely[0], RESPONSE: "answer"} if likely else {}
            guessed = {"answers": golds[found[0]]} if found else {}
            return {**guessed, RESPONSE: responses[0]} if responses else guessed
        by_name = {name.lower().replace(" ", "_"): name for name in names}
        by_name = {plain_name(name): name for name in names} | by_name
        free = {*self.columns} - {source["from"] for source in by_job.values()}
        # Its own answer may be the reference, and the response a column of its own
        is_reference = RESPONSE in self.columns and bool(self.form and self.form.is_training)
        free -= {*_FIELDS, *([] if is_reference else [RESPONSE])}
        turns = [row["turns"] for row in self.fields if isinstance(row.get("turns"), list | tuple)]
        if any(isinstance(turn, Mapping) for turn in chain.from_iterable(turns)):
            free |= {"turns"} & {*self.columns}  # of both speakers: a history
        guessed = {}
        for name, common in {**NAMES, **dict.fromkeys(SAMPLE_KEYS, ())}.items():
            is_beside = is_reference and name == RESPONSE
            if name in by_job or (name in self.columns and not is_beside):
                continue
            if name == RESPONSE and not has_responses:
                continue
            aliases = (name, *(JOIN_IDS if is_joined and name == "id" else common))
            columns = [by_name[alias] for alias in aliases if by_name.get(alias) in free]
            if name in ("query", "answers", RESPONSE):
                columns += likely_columns(name, filter(free.__contains__, self.columns))
                is_only = not any(map(self._may_be_said, free))
                last = {"answers": _CHOICE_GOLDS, RESPONSE: ("answer",) * is_only}.get(name, ())
                columns += [by_name[alias] for alias in last if by_name.get(alias) in free]
            if is_beside:
                columns = list(filter(self._is_said, [name, *columns]))
            if name == "answers":  # a column of nulls last
                columns.sort(key=lambda c: all(row.get(c) is None for row in self.fields))
            if column := next((c for c in columns if self._can_be(name, c)), None):
                guessed[name] = column
                free.remove(column)
        is_ours = not (self.form or guessed.keys() & {"query", RESPONSE})
        kept = {"answers", "choices", "system", *(["id"] if is_joined else [])}
        kept |= {name for name in guessed if plain_name(guessed[name]) == name}  # in another case
        return {name: guessed[name] for name in guessed if name in kept or not is_ours}

    def _can_be(self, name: str, column: str) -> bool:
        """Whether a column's values may be of a field."""
        values = [row.get(column) for row in self.fields]
        if name == "choices":
            return any(read_choices(value)[0] for value in values)
        if name != "answers":  # a `result` may be a verdict
            is_text = name not in (RESPONSE, "system") or not MAYBE_TEXT.fullmatch(
                plain_name(column)
            )
            texts = [str(value) for value in values if _has_sentence(value)]
            # Of a few bots' names most are there several times
            return is_text or len({*texts}) > len(texts) // 2
        if column.lower() == "correct" and not any(map(has_parts, self.fields)):
            return False
        if column.lower() in ("label", "labels"):  # a list of numbers is a benchmark's own
            values = [value for value in values if isinstance(value, str | int)]
        return any(map(is_gold, (value for value in values if not is_missing(value))))

    def _may_be_said(self, column: str) -> bool:
        """Whether a column of sentences is called like one of responses."""
        is_called = SAID_IN.fullmatch(plain_name(column)) is not None
        return is_called and any(" " in str(row.get(column)).strip() for row in self.fields)

    def _is_said(self, column: str) -> bool:
        """Whether a column beside an answer, which may be the reference, is a model's response."""
        plain = plain_name(column)
        kinds = (str, int, float) if "pred" in plain or "answer" in plain else (str,)
        values = [row[column] for row in self.rows if not is_missing(row.get(column))]
        is_text = any(" " in str(value).strip() for value in values)
        is_called = SAID.fullmatch(plain) or (is_text and SAID_BY.fullmatch(plain))
        return (
            any(values)
            and bool(is_called)
            and all(
                isinstance(item, kinds) or is_conversation(value)
                for value in values
                for item in (value if isinstance(value, list) else [value])
            )
        )

    def _other_golds(self, taken: str) -> list[str]:
        """The columns that may hold the right answers, too, and differ from the one taken."""
        names = [name for name in self.columns if name.lower() in NAMES["answers"]]

        def differs(name: str) -> bool:
            golds = ((read_gold(row.get(at), "") for at in (name, taken)) for row in self.fields)
            return any(gold not in ([], own) for gold, own in golds)

        return [name for name in names if taken and name != taken and differs(name)]

    def _explain_lack(self, name: str) -> DataError:
        """Why a field has no column, with a column that it may be."""
        for column in self._names if name == "query" else ():  # a session has its first there
            meant = None if column in _FIELDS else nearest(column, ("turns", "user"))
            if meant and any(_is_session({meant: row.get(column)}) for row in self.rows):
                what = f"no column is called query; did you mean {meant!r} by {column!r}?"
                return self._lack(meant, what, column)
        what = f"no column is called {name}, and none looks like it"
        advice = ""
        if {"role", "content"} <= {*self._names}:
            advice = "Each row is a turn; put a conversation's turns into one row's `messages`."
        elif name == "query" and self._columns_of("id") and self._columns_of(RESPONSE):
            is_joined = {"id", RESPONSE} <= {*self._names} or self._likely_column() is None
            advice = _JOIN if is_joined else ""
        return self._lack(name, what, advice=advice)

    def _columns_of(self, name: str) -> set[str]:
        """The columns that by their names are of a field."""
        others = {"id": JOIN_IDS, RESPONSE: ("answer",)}.get(name, ())
        names = {name, *NAMES[name], *others}
        likely = likely_columns(name, self._names) if name in ("query", RESPONSE, "answers") else []
        return {column for column in self._names if plain_name(column) in names}.union(likely)

    def _lack(
        self, name: str, what: str, example: str | None = None, advice: str = ""
    ) -> DataError:
        """What is not there, the columns that are, and a mapping that works, if there is one."""
        end = "" if what.endswith("?") else "."
        text = f"{self.dataset}: {what}{end} Its columns: {', '.join(self._names)}."
        if advice:
            return DataError(f"{text}\n{advice}")
        nested = [*dict.fromkeys(chain.from_iterable(map(names_in, self.rows)))]
        used = {source["from"] for source in self.by_job.values()}
        for names in ((), nested):
            example = example or self._likely_column(used, name, names)
        if example is None:
            return DataError(f"{text}\nNone of them holds text that could be the {name}.")
        is_plain = re.fullmatch(r"[^\W\d][\w. ]*", example) is not None
        return DataError(
            f"{text} Say which is which:\n  --map {shlex.quote(f'{name}={example}')}\n"
            f"or in the job:\n  columns:\n"
            f"    {name}: {example if is_plain else json.dumps(example, ensure_ascii=False)}\n"
            f"or from Python:\n  map={{{name!r}: {example!r}}}"
        )

    def _likely_column(
        self, used: Collection[str] = (), name: str = "query", names: Sequence[str] = ()
    ) -> str | None:
        """The first unused column of several words that may be a field; else the first of text."""
        taken, first = {*_FIELDS, RESPONSE, "role", *MODEL_FIELDS, *used}, None
        others = {"id", "query", RESPONSE, "answers"} - {name}
        taken = taken.union(*map(self._columns_of, others))
        for column in names or self._names:
            values = [look_up(row, column) for row in self.rows]
            is_text = any(isinstance(value, str) or is_conversation(value) for value in values)
            is_text = is_text and taken.isdisjoint((column, column.partition(".")[0]))
            if is_text and not _NOT_ASKED.fullmatch(plain_name(column)):
                if all(" " in str(value).strip() for value in values if value):
                    return column
                first = column if first is None else first
        return first


def _has_sentence(value: Any) -> bool:
    """Whether a value is a text of several words, or holds one by a text's usual names."""
    value = said_in(value) if isinstance(value, Mapping) else value
    if isinstance(value, list | tuple):
        return any(map(_has_sentence, value))
    return isinstance(value, str) and " " in value.strip()


def _is_session(row: Mapping[str, Any]) -> bool:
    """Whether a row has turns or a simulated user, as objects or as JSON text."""
    turns, user = (str(row.get(name) or "").lstrip()[:1] for name in ("turns", "user"))
    return turns in ("[", "(") or user == "{"
