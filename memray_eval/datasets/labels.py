"""Labelled files: responses that people have scored, in whatever columns, as rows to evaluate with
the labels beside them.

JSON (a list of objects), JSONL, CSV, TSV or Parquet. CALIBRATION.md of memray_eval/report says how
columns are mapped."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from memray_eval.config.problems import nearest
from memray_eval.datasets.parsing import InvalidSample, parse_json
from memray_eval.errors import ConfigError, DataError
from memray_eval.types import Frozen

# in column names: the part that names one of several systems whose answers stand in one row
STAR = "*"
FIELDS = (
    "response",
    "query",
    "answers",
    "context",
    "memory",
    "task",
    "cluster",
    "skip",
)  # beside human, human2, ...
TRUTH = {"true": 1.0, "false": 0.0}
KNOWLEDGE = "knowledge"  # the memory key of a column that is no object


class Labelling(Frozen):
    """Which columns hold what, and how labels read. `columns` maps FIELDS to names; nested ones are
    dotted (scores.overall), and a `*` stands for any system (answer_*, judge_*). `people` are label
    columns. `words` gives labels that are words a number; `separator` parts several right answers.
    `scale` is the people's (None: the metric's)."""

    columns: dict[str, str]
    people: tuple[str, ...] = ()
    words: dict[str, float] = Field(default_factory=dict)
    separator: str | None = None
    scale: tuple[float, float] | None = None


class Labelled(Frozen):
    """One labelled response: `fields` as `evaluate` takes them, and what each column of people
    says, None where it is empty."""

    id: str
    fields: dict[str, Any]
    people: tuple[float | None, ...]
    cluster: str


_TOPICAL = {
    "response": "system_output",
    "query": "source",
    "memory": "context",
    "cluster": "source",
}
_BEGIN = {"response": "response", "query": "message", "memory": "knowledge", "cluster": "message"}
_EVOUNA = {
    "response": "answer_*",
    "query": "question",
    "answers": "golden_answer",
    "cluster": "question",
    "skip": "improper",
}

# Preset -> metric -> its labelling; the first metric is the default.
PRESETS: Mapping[str, Mapping[str, Labelling]] = MappingProxyType(
    {
        "evouna": {
            "semantic_correctness": Labelling(
                columns=_EVOUNA, people=("judge_*",), separator="/", scale=(0, 1)
            ),
        },
        "topical_chat": {
            "coherence": Labelling(columns=_TOPICAL, people=("scores.coherence",), scale=(1, 3)),
            "groundedness": Labelling(
                columns=_TOPICAL, people=("scores.groundedness",), scale=(0, 1)
            ),
            "conversational_quality": Labelling(
                columns=_TOPICAL, people=("scores.overall",), scale=(1, 5)
            ),
        },
        "begin": {
            "groundedness": Labelling(
                columns=_BEGIN,
                people=("begin_label",),
                words={"fully attributable": 1.0, "not fully attributable": 0.0},
                scale=(0, 1),
            ),
        },
    }
)


def preset(name: str, metric: str | None) -> tuple[str, Labelling]:
    """A preset's metric (its first, unless one is named) and labelling. Raises ConfigError that
    lists what there is."""
    if name not in PRESETS:
        raise ConfigError(f"--preset {name}: there are {', '.join(PRESETS)}")
    by_metric = PRESETS[name]
    chosen = metric or next(iter(by_metric))
    if chosen not in by_metric:
        raise ConfigError(
            f"--preset {name} has no labels for {chosen}; it has them for {', '.join(by_metric)}"
        )
    return chosen, by_metric[chosen]


def map_columns(pairs: Sequence[str], onto: Labelling) -> Labelling:
    """FIELD=COLUMN settings, several to a text with commas, laid over a labelling. Raises
    ConfigError for an unknown field."""
    columns, people = dict(onto.columns), dict[str, str]()
    for pair in (part.strip() for text in pairs for part in text.split(",")):
        field, _, column = pair.partition("=")
        if not column:
            raise ConfigError(f"--map {pair}: write FIELD=COLUMN, such as response=answer")
        if field.rstrip("0123456789") == "human":
            people[field] = column
        elif field in FIELDS:
            columns[field] = column
        else:
            hint = f"; did you mean {close!r}?" if (close := nearest(field, FIELDS)) else ""
            raise ConfigError(
                f"--map {pair}: no field {field!r}{hint} There are: human, human2, ..., "
                f"{', '.join(FIELDS)}"
            )
    return onto.model_copy(
        update={"columns": columns, "people": tuple(people.values()) or onto.people}
    )


def read_labelled(
    path: Path,
    labelling: Labelling,
    scale: tuple[float, float],
    limit: int | None = None,
    skip_unlabelled: bool = False,
) -> list[Labelled]:
    """The labelled responses of the first `limit` rows that are not to be skipped, one a system of
    a row.

    Raises ConfigError for a field or a column that is not there, DataError for a file that cannot
    be read, a response without any label (unless these are skipped) and a label that is no number
    on `scale`."""
    for field in ("response", "query"):
        if field not in labelling.columns:
            raise ConfigError(f"no column for {field}; name it with --map {field}=COLUMN")
    if not labelling.people:
        raise ConfigError(
            "no column for human; name people's scores with --map human=COLUMN (and "
            "human2=COLUMN, ...)"
        )
    rows = list(_rows(path))
    if not rows:
        raise DataError(f"{path} holds no row")
    known = list(dict.fromkeys(name for row in rows for name in _names(row)))
    systems = _systems(labelling, known)
    for named in (*labelling.columns.values(), *labelling.people):
        for system in systems:
            _check(path, named.replace(STAR, system), known)
    skip = labelling.columns.get("skip")
    kept = [
        (place, row)
        for place, row in enumerate(rows, 1)
        if not (skip and _is_true(_value(row, skip)))
    ][:limit]
    found = [
        _labelled(path, place, row, system, labelling, scale)
        for place, row in kept
        for system in systems
    ]
    if skip_unlabelled:
        found = [one for one in found if any(label is not None for label in one.people)]
    for one in found:
        if all(label is None for label in one.people):
            columns = ", ".join(map(repr, labelling.people))
            raise DataError(
                f"{path}, {one.id}: no label in {columns}; leave such responses out with "
                f"--skip-unlabelled"
            )
    if not found:
        raise DataError(f"{path} holds no labelled response")
    return found


def _labelled(
    path: Path,
    place: int,
    row: Mapping[str, Any],
    system: str,
    labelling: Labelling,
    scale: tuple[float, float],
) -> Labelled:
    given = {
        field: _value(row, name.replace(STAR, system)) for field, name in labelling.columns.items()
    }
    named = f"row-{place:06d}" + (f"-{system}" if system else "")
    query = "" if given["query"] is None else str(given["query"]).strip()
    fields: dict[str, Any] = {
        "id": named,
        "query": query or "(none)",
        "response": _text(given["response"]),
    }
    for field in ("context", "task"):
        if given.get(field) is not None:
            fields[field] = _text(given[field])
    if (answers := given.get("answers")) is not None:
        fields["answers"] = _answers(answers, labelling.separator)
    if (memory := given.get("memory")) is not None:
        fields["memory"] = memory if isinstance(memory, dict) else {KNOWLEDGE: _text(memory)}
    labels = tuple(
        _label(
            path,
            named,
            name.replace(STAR, system),
            _value(row, name.replace(STAR, system)),
            labelling.words,
            scale,
        )
        for name in labelling.people
    )
    cluster = given.get("cluster")
    return Labelled(
        id=named, fields=fields, people=labels, cluster=query if cluster is None else _text(cluster)
    )


def _label(
    path: Path,
    named: str,
    column: str,
    given: Any,
    words: Mapping[str, float],
    scale: tuple[float, float],
) -> float | None:
    if (
        given is None
        or (isinstance(given, str) and not given.strip())
        or (isinstance(given, float) and math.isnan(given))
    ):
        return None
    number = _number(given, words)
    if number is None:
        raise DataError(
            f"{path}, {named}: {column!r} holds {given!r}, not a number; give words one with "
            f"--label WORD=NUMBER"
        )
    low, high = scale
    if not low <= number <= high:
        raise DataError(
            f"{path}, {named}: {column!r} holds {given!r}, outside {low:g} to {high:g}; set "
            f"--human-scale LOW,HIGH"
        )
    return number


def _number(given: Any, words: Mapping[str, float]) -> float | None:
    if isinstance(given, bool | int | float):
        return float(given)
    if not isinstance(given, str):
        return None
    word = given.strip().lower()
    named = {name.strip().lower(): number for name, number in words.items()}
    if word in named or word in TRUTH:
        return named.get(word, TRUTH.get(word))
    try:
        return float(word)
    except ValueError:
        return None


def _answers(given: Any, separator: str | None) -> list[str]:
    if isinstance(given, list | tuple):
        return [_text(one) for one in given]
    text = _text(given)
    return [part.strip() for part in text.split(separator) if part.strip()] if separator else [text]


def _text(given: Any) -> str:
    return "" if given is None else given if isinstance(given, str) else str(given)


def _is_true(given: Any) -> bool:
    return given.strip().lower() in ("true", "yes", "1") if isinstance(given, str) else bool(given)


def _systems(labelling: Labelling, known: Sequence[str]) -> list[str]:
    """What `*` stands for in the response's column; one empty name where it has none. Raises
    ConfigError if it fits nothing."""
    response = labelling.columns["response"]
    if STAR not in response:
        if starred := [
            name for name in (*labelling.columns.values(), *labelling.people) if STAR in name
        ]:
            raise ConfigError(
                f"column {starred[0]!r} has a {STAR}, and the response's, {response!r}, has none "
                f"to go with it"
            )
        return [""]
    before, _, after = response.partition(STAR)
    fitting = [
        name
        for name in known
        if name.startswith(before) and name.endswith(after) and len(name) > len(before + after)
    ]
    if not fitting:
        raise ConfigError(f"no column fits {response!r}; there are: {', '.join(known)}")
    return [name[len(before) : len(name) - len(after)] for name in fitting]


def _check(path: Path, column: str, known: Sequence[str]) -> None:
    if column not in known:
        hint = f"; did you mean {close!r}?" if (close := nearest(column, known)) else ""
        raise ConfigError(f"{path} has no column {column!r}{hint} There are: {', '.join(known)}")


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    """A row's columns, those of nested objects dotted, after the object's own name."""
    for name, value in row.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in _names(value))


def _value(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column; None where this row lacks it."""
    if column in row:
        return row[column]
    before, _, inner = column.partition(".")
    return _value(row[before], inner) if inner and isinstance(row.get(before), dict) else None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            yield from pq.read_table(path).to_pylist()
        elif kind in (".json", ".jsonl"):
            yield from _objects(path, kind)
        elif kind in (".csv", ".tsv"):
            yield from _table(path, kind)
        else:
            raise DataError(
                f"{path}: not a kind of file that is read; there are: .json, .jsonl, .csv, .tsv, "
                f".parquet"
            )
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _objects(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    try:
        parsed = (
            [parse_json(line) for line in data.splitlines() if line.strip()]
            if kind == ".jsonl"
            else parse_json(data)
        )
    except InvalidSample as error:
        raise DataError(f"{path}: {error}") from None
    if not isinstance(parsed, list) or not all(isinstance(row, dict) for row in parsed):
        raise DataError(
            f"{path}: must be {'an object a line' if kind == '.jsonl' else 'a list of objects'}"
        )
    yield from parsed


def _table(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Rows of a CSV (fields may be quoted) or of a TSV (tabs part fields, whatever quotes there
    are)."""
    text = io.StringIO(path.read_text("utf-8-sig"), newline="")
    is_tsv = kind == ".tsv"
    reader = csv.DictReader(
        text,
        delimiter="\t" if is_tsv else ",",
        quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL,
    )
    for row in reader:
        if None in row or None in row.values():
            raise DataError(
                f"{path}, line {reader.line_num}: not as many fields as the "
                f"{len(reader.fieldnames or ())} of its head"
            )
        yield row
