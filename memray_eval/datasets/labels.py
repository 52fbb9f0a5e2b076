"""Reads labelled files (JSON, JSONL, CSV, TSV, Parquet): responses that people have scored, as rows
to evaluate with the labels beside them. report/CALIBRATION.md says how columns are mapped."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from memray_eval.config.sections import NEXT_PAIR
from memray_eval.datasets.columnar_files import read_csv
from memray_eval.datasets.conversations import add_conversation, is_conversation
from memray_eval.datasets.fields import is_missing
from memray_eval.datasets.parsing import MISSING, InvalidSample, find_at, names_in, parse_printed
from memray_eval.datasets.shards import Kind, Shard
from memray_eval.datasets.sources import entries, prepared
from memray_eval.errors import ConfigError, DataError, nearest, reason_of
from memray_eval.types import Frozen
from memray_eval.types.samples import CRITERIA

# in column names: the part that names one of several systems whose answers stand in one row
STAR = "*"
# Beside human, human2, ...
FIELDS = tuple(
    "response query answers context memory history task criterion cluster skip judge raters".split()
)
TRUTH = {"true": 1.0, "false": 0.0}
_SKIPPED = ("true", "yes", "1")
_KINDS: Mapping[str, Kind]
_KINDS = {".json": "json", ".jsonl": "jsonl", ".csv": "csv", ".tsv": "csv"}
# 4 stars, 4 - good, 4/5
_WITH_WORDS = re.compile(
    r"(\d+(?:[.,]\d{1,2})?)(?:\s*(?:/|out of|of|von|sur|de)\s*(\d+)|\W+[^\W\d]\D*)"
)
_DECIMAL_COMMA = re.compile(r"^(-?\d+),(\d{1,2})$")
KNOWLEDGE = "knowledge"  # the memory key of a column that is no object


class Labelling(Frozen):
    """Which columns hold what: FIELDS by column names (nested ones dotted, `*` for any system), the
    label columns of `people` (one of lists, with a column of `raters`), numbers of labels that are
    `words`, and the `separator` of several right answers."""

    columns: dict[str, str]
    people: tuple[str, ...] = ()
    words: dict[str, float] = Field(default_factory=dict)
    separator: str | None = None


class LabelledResponse(Frozen):
    """A response with people's labels (None: empty): `fields` as `evaluate` takes them, a
    `judge`'s score on the labels' scale if a column has it, and who labelled it if known."""

    id: str
    fields: dict[str, Any]
    people: tuple[float | None, ...]
    cluster: str
    judge: float | None = None
    raters: tuple[str, ...] = ()


def map_columns(pairs: Sequence[str], onto: Labelling) -> Labelling:
    """Lays FIELD=COLUMN settings over a labelling. Raises ConfigError for an unknown field."""
    columns, people = dict(onto.columns), dict[str, str]()
    for pair in (part.strip() for text in pairs for part in NEXT_PAIR.split(text)):
        field, _, column = pair.partition("=")
        if not column:
            raise ConfigError(f"--map {pair}: write FIELD=COLUMN, such as response=answer")
        if field.rstrip("0123456789") == "human":
            people[field] = column
        elif field in FIELDS:
            columns[field] = column
        else:
            hint = _hint(field, ("human", *FIELDS), f"human, human2, ..., {', '.join(FIELDS)}")
            raise ConfigError(f"--map {pair}: no field {field!r}{hint}")
    return onto.model_copy(
        update={"columns": columns, "people": tuple(people.values()) or onto.people}
    )


def read_labelled(
    path: Path,
    labelling: Labelling,
    scale: tuple[float, float],
    limit: int | None = None,
    skip_unlabelled: bool = False,
    encoding: str = "",
) -> list[LabelledResponse]:
    """The labelled responses of the first `limit` rows that are not skipped, one for each system of
    a row. Raises ConfigError for a missing field or column, DataError for a file that cannot be
    read, a response without a label, and a label that is not on `scale`."""
    for field in ("response", "query"):  # a judge's scores that exist need neither
        if "judge" not in labelling.columns and field not in labelling.columns:
            raise ConfigError(f"no column for {field}; name it with --map {field}=COLUMN")
    if not labelling.people:
        how = "name people's scores with --map human=COLUMN (and human2=COLUMN, ...)"
        raise ConfigError(f"no column for human; {how}")
    read = (row for _, row in read_placed_rows(path, encoding))
    rows = list(_open_cells(read, labelling))
    if not rows:
        raise DataError(f"{path} holds no row")
    names = [*dict.fromkeys(name for row in rows for name in names_in(row))]
    systems = _find_systems(labelling, names)
    for column in (*labelling.columns.values(), *labelling.people):
        for name in (_name_of(column, system) for system in systems):
            if name not in names and all(find_at(row, name) is MISSING for row in rows):
                raise ConfigError(
                    f"{path} has no column {name!r}{_hint(name, names, ', '.join(names))}"
                )
    skip = labelling.columns.get("skip")
    marks = (_column_value(row, skip) if skip else None for row in rows)
    kept = [
        (number, row)
        for number, (row, mark) in enumerate(zip(rows, marks, strict=True), 1)
        if not (mark.strip().lower() in _SKIPPED if isinstance(mark, str) else mark)
    ]
    responses = [
        _parse_row(path, number, row, system, labelling, scale)
        for number, row in kept[:limit]
        for system in systems
    ]
    labelled = [row for row in responses if any(label is not None for label in row.people)]
    if not skip_unlabelled and len(labelled) < len(responses):
        first = next(row for row in responses if row not in labelled)
        raise DataError(
            f"{path}, {first.id}: no label in {', '.join(map(repr, labelling.people))}; leave such "
            "responses out with --skip-unlabelled (in Python skip_unlabelled=True)"
        )
    if not labelled:
        raise DataError(f"{path} holds no labelled response")
    most = max(len(row.people) for row in labelled)  # where raters differ by row
    return [
        row.model_copy(update={"people": row.people + (None,) * (most - len(row.people))})
        for row in labelled
    ]


def _hint(name: str, names: Sequence[str], listed: str) -> str:
    close = nearest(name, names)
    return f"{f'; did you mean {close!r}?' if close else '.'} There are: {listed}"


def _parse_row(
    path: Path,
    number: int,
    row: Mapping[str, Any],
    system: str,
    labelling: Labelling,
    scale: tuple[float, float],
) -> LabelledResponse:
    cells = {
        field: _column_value(row, _name_of(name, system))
        for field, name in labelling.columns.items()
    }
    named = f"row-{number:06d}" + (f"-{system}" if system else "")
    where, filled = f"{path}, {named}", {name for name in cells if cells[name] is not None}
    turns = _from_json(cells.get("query"), list)
    is_chat = isinstance(turns, list) and (turns is cells["query"] or is_conversation(turns))
    query, response = _to_text(cells.get("query")).strip(), _said(where, cells.get("response"))
    fields: dict[str, Any] = {"id": named, "query": query or "(none)"}
    fields |= {name: _to_text(cells[name]) for name in ("context", "task") if name in filled}
    if is_chat:
        fields["query"] = turns
        try:
            add_conversation(fields)
        except InvalidSample as error:
            raise DataError(f"{where}: {error}") from None
        if "response" in fields:
            raise DataError(f"{where}: the conversation must end with the user")
        query = fields["query"]
    fields["response"] = response
    if "criterion" in filled:
        fields[CRITERIA] = [{"criterion": _to_text(cells["criterion"]), "points": 1}]
    if "answers" in filled:
        answers = _from_json(cells["answers"], list)
        if labelling.separator and not isinstance(answers, list | tuple):
            parts = map(str.strip, _to_text(answers).split(labelling.separator))
            answers = [part for part in parts if part]
        answers = answers if isinstance(answers, list | tuple) else [answers]
        fields["answers"] = [*map(_to_text, answers)]
    if "history" in filled:
        fields["history"] = _from_json(cells["history"], list)
    if "memory" in filled:
        memory = _from_json(cells["memory"], dict)
        fields["memory"] = memory if isinstance(memory, dict) else {KNOWLEDGE: _to_text(memory)}
    raters = _from_json(cells.get("raters"), list)
    columns = (_name_of(name, system) for name in labelling.people)
    labels = [(name, _column_value(row, name)) for name in columns]
    if isinstance(raters, list):
        labels = _label_by_rater(where, labels, raters)
    cluster = cells.get("cluster")
    parse = partial(parse_label, where, words=labelling.words, scale=scale)
    judge = _name_of(labelling.columns.get("judge", ""), system)
    return LabelledResponse(
        id=named,
        fields=fields,
        people=tuple(parse(cell, name) for name, cell in labels),
        cluster=(query if "query" in cells else named) if cluster is None else _to_text(cluster),
        judge=parse(cells["judge"], judge) if judge else None,
        raters=tuple(map(str, raters)) if isinstance(raters, list) else (),
    )


def _label_by_rater(
    where: str, labels: Sequence[tuple[str, Any]], raters: Sequence[Any]
) -> list[tuple[str, Any]]:
    """The labels in a column of lists, one a rater. Raises DataError if there are more or less."""
    by_column = [(name, _from_json(cell, list)) for name, cell in labels]
    split = [(name, label) for name, cell in by_column if isinstance(cell, list) for label in cell]
    if len(by_column) != 1 or len(split) != len(raters):
        raise DataError(
            f"{where}: {len(split)} labels of {len(raters)} raters; the one label column must hold "
            "a list with a label for each rater"
        )
    return split


def parse_label(
    where: str, cell: Any, column: str, words: Mapping[str, float], scale: tuple[float, float]
) -> float | None:
    """The label in a column as a number on `scale`; None if it is empty. Raises DataError."""
    if is_missing(cell) or (isinstance(cell, str) and not cell.strip()):
        return None
    (low, high), bare = scale, _only_in(cell)
    number = parse_number(bare, words)
    if number is None and isinstance(bare, str):
        match = _WITH_WORDS.fullmatch(bare.strip())
        is_on_it = match is not None and match[2] in (None, f"{high:g}")
        number = parse_number(match[1], {}) if match is not None and is_on_it else None
    if number is None and isinstance(bare, list):
        how = "name who gave each with --map raters=COLUMN, or take one by its number (.0)"
        raise DataError(f"{where}: {column!r} holds {cell!r}, several labels; {how}")
    if number is None:
        raise DataError(
            f"{where}: {column!r} holds {cell!r}, not a number from {low:g} to {high:g}; give "
            "words one with --label WORD=NUMBER"
        )
    if not low <= number <= high:
        raise DataError(
            f"{where}: {column!r} holds {cell!r}, outside {low:g} to {high:g}; set "
            "--human-scale LOW,HIGH"
        )
    return number


def _open_cells(rows: Iterable[dict[str, Any]], labelling: Labelling) -> Iterator[dict[str, Any]]:
    """The rows with objects or lists for cells of JSON, fenced or not, that dotted columns need."""
    names = [name.split(".") for name in (*labelling.columns.values(), *labelling.people)]
    heads = {re.escape(".".join(parts[:n])) for parts in names for n in range(1, len(parts))}
    pattern = re.compile("|".join(heads).replace(re.escape(STAR), ".+") or r"(?!)")
    for row in rows:
        for name, cell in row.items():
            if isinstance(cell, str) and pattern.fullmatch(name):
                opened = _from_json(cell.strip("` \r\n").removeprefix("json"), (dict, list))
                row[name] = opened if isinstance(opened, dict | list) else cell
        yield row


def _only_in(cell: Any) -> Any:
    """A label that is alone in lists and objects, also of JSON, as tools for labels write it."""
    cell = _from_json(cell, (list, dict))
    while isinstance(cell, list | dict) and len(cell) == 1:
        (cell,) = cell.values() if isinstance(cell, dict) else cell
    return cell


def _said(where: str, cell: Any) -> str:
    """The text of a response, also of a message. Raises DataError for an object without one."""
    fields = {"query": "(none)", "response": cell}
    if isinstance(cell, list | dict):
        try:
            add_conversation(fields)
        except InvalidSample as error:
            raise DataError(f"{where}: {error}") from None
    return _to_text(fields["response"])


def parse_number(cell: Any, words: Mapping[str, float]) -> float | None:
    """The number in a cell, also with a spreadsheet's decimal comma; None if it is none."""
    if isinstance(cell, bool | int | float):
        return float(cell)
    if not isinstance(cell, str):
        return None
    word = cell.strip().lower()
    named = {**TRUTH, **{name.strip().lower(): number for name, number in words.items()}}
    if word in named:
        return named[word]
    try:
        return float(_DECIMAL_COMMA.sub(r"\1.\2", word))
    except ValueError:
        return None


def _from_json(cell: Any, kind: type | tuple[type, ...]) -> Any:
    """What a cell holds, where it is JSON of such a kind; else the cell."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("[", "{")):
        return cell
    try:
        parsed = parse_printed(cell)[0]
    except ValueError:
        return cell
    return parsed if isinstance(parsed, kind) else cell


def _to_text(cell: Any) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else str(cell)


def _find_systems(labelling: Labelling, names: Sequence[str]) -> list[str]:
    """The systems that `*` stands for in the response's column, or without it in the judge's and
    people's; one empty name if it has no `*`. Raises ConfigError if no column fits."""
    response = labelling.columns.get("response") or labelling.columns["judge"]
    patterns = [response] if "response" in labelling.columns else [response, *labelling.people]
    if STAR not in response:
        columns = (*labelling.columns.values(), *labelling.people)
        if starred := next((name for name in columns if STAR in name.replace(".*", "")), None):
            why = f"has a {STAR}, and the response's, {response!r}, has none to go with it"
            raise ConfigError(f"column {starred!r} {why}")
        return [""]
    forms = [
        re.escape(text).replace(re.escape(STAR), "(.+)", 1) for text in patterns if STAR in text
    ]
    fitting = [match[1] for form in forms for name in names if (match := re.fullmatch(form, name))]
    if not fitting:
        raise ConfigError(f"no column fits {response!r}; there are: {', '.join(names)}")
    return list(dict.fromkeys(fitting))


def _name_of(column: str, system: str) -> str:
    """The column of a system; without one a star is all items of a list."""
    return column.replace(STAR, system) if system else column


def _column_value(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column; None if this row lacks it."""
    value = find_at(row, column)
    return None if value is MISSING else value


def read_placed_rows(path: Path, encoding: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file by its suffix, each with its place ("line 3"). Raises DataError."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        try:
            for number, row in enumerate(pq.read_table(path).to_pylist(), 1):
                yield f"row {number}", row
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"{path}: cannot be read: {reason_of(error)}") from None
        return
    if kind not in _KINDS:
        kinds = f"{', '.join(_KINDS)}, .parquet"
        raise DataError(f"{path}: not a kind of file that is read; there are: {kinds}")
    try:
        shard = prepared(Shard(kind=_KINDS[kind], path=str(path)), encoding)
        for entry in read_csv(shard, keeps_empty=True) if shard.kind == "csv" else entries(shard):
            if isinstance(entry.raw, InvalidSample):
                line = f", {entry.place}" if entry.place else ""
                raise DataError(f"{path}{line}: {entry.raw}")
            if not isinstance(row := entry.raw, dict):
                raise DataError(f"{path}: must be a list of objects, or an object a line")
            if mark := next((name for name in row if str(name).startswith("\ufeff")), None):
                # Python's csv keeps a byte order mark, and the quotes behind it, in the name
                row = {mark.strip('\ufeff"'): row.pop(mark), **row}
            yield entry.place, row
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from None
