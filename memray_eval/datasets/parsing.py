"""Parses one raw object of a dataset into a Sample, or collects everything wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from memray_eval.errors import cut, nearest
from memray_eval.text_processing.denials import read_expectations
from memray_eval.text_processing.judge_prompts import has_criteria, read_criteria
from memray_eval.text_processing.values import escape_controls, read_literal
from memray_eval.types import Frozen, Sample
from memray_eval.types.json_text import LARGE, read_large
from memray_eval.types.samples import CRITERIA, DEFAULTS, EXPECTS, SAMPLE_LISTS, plain_sample

SAVE_SO = "save it so, or say which --encoding, such as cp1252"
MISSING: Any = object()  # at a dotted path
MAX_NESTING = 64  # of lists and objects; pydantic reads JSON of up to about 200
MAX_DIGITS = 1000
_MOST_PRINTED = 1_000_000  # characters of a text that is looked at as JSON
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_LONG_NUMBER = re.compile(rb"\d{%d,}" % MAX_DIGITS)
_STEPS = dict(zip(b"[{]}", (1, 1, -1, -1), strict=True))
_NO_BRACKETS = bytes({*range(256)} - _STEPS.keys())
LISTS = (*SAMPLE_LISTS, "turns")
_NAMES = DEFAULTS.keys() - {"turns", "user"}  # which are fields whatever they hold
_EXPECTED = frozenset((EXPECTS, CRITERIA))


Escaped = Annotated[str, BeforeValidator(escape_controls)]


class Problem(Frozen):
    """What is wrong with a dataset, and where; what cannot be printed is escaped."""

    path: Escaped
    place: Escaped = ""
    sample_id: Escaped = ""
    field: Escaped = ""
    message: Escaped

    def __str__(self) -> str:
        where = f"{self.path}, {self.place}" if self.place else self.path
        what = ": ".join(
            part for part in (self.sample_id and f"sample {self.sample_id}", self.field) if part
        )
        return f"{where}: {what}: {self.message}" if what else f"{where}: {self.message}"


class Fault(Frozen):
    """A problem without its place: a field ("" for the whole sample) and what is wrong with it."""

    field: str = ""
    message: str


_NO_QUERY = Fault(field="query", message="missing")


class InvalidSample(Exception):
    """A raw object is not a sample; `faults` says everything that is wrong with it."""

    def __init__(self, faults: list[Fault], sample_id: str = "") -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = faults
        self.sample_id = sample_id

    def renamed(self, field: str, sample_id: str = "") -> InvalidSample:
        """The same faults, of this field."""
        faults = [Fault(field=field, message=fault.message) for fault in self.faults]
        return InvalidSample(faults, sample_id)


def invalid(message: str, field: str = "", sample_id: str = "") -> InvalidSample:
    """An InvalidSample with one fault."""
    return InvalidSample([Fault(field=field, message=message)], sample_id)


def parse_json(data: bytes) -> Any:
    """Parses one JSON text, with null for NaN. Raises InvalidSample if it is not UTF-8 or not JSON,
    has a key twice in one object, a number that is too large, or more than MAX_NESTING."""
    if len(data) >= LARGE and (value := read_large(data)) is not None:
        return value
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start}: 0x{data[error.start]:02x}"
        raise invalid(f"not UTF-8 ({byte}); {SAVE_SO}") from None
    if data.count(b"[") + data.count(b"{") > MAX_NESTING:  # seldom
        Nesting().feed(data)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise invalid(f"broken JSON at {where}: {error.msg}") from None
    except ValueError:  # Python converts no more than 4,300 digits
        raise invalid("broken JSON: a number has more digits than can be read") from None


def json_or_fault(data: bytes) -> Any:
    """What `parse_json` gives, or why it gives nothing."""
    try:
        return parse_json(data)
    except InvalidSample as fault:
        return fault


def parse_printed(text: str) -> tuple[Any, bool]:
    """What a text holds that is JSON (True), or as Python prints it; else raises ValueError."""
    if text.lstrip()[:1] not in ("[", "{") or len(text) > _MOST_PRINTED:
        raise ValueError("no list and no object")
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        return read_literal(text), False


class Answers(list[Any]):
    """Several values, that a path with a `*` leads to."""


def look_up(row: Mapping[str, Any], path: str) -> Any:
    """What is at a dotted path, or the texts at several, or items of a list whose numbers are at
    another path (`choices.@gold`); None if nothing is."""
    if "+" in path:
        parts = [part for part in (look_up(row, name) for name in path.split("+")) if part != ""]
        glue = "\n\n" if all(isinstance(part, str) for part in parts) else "-"
        return glue.join(str(part) for part in parts if part is not None) or None
    path, _, numbers = path.partition(".@")
    value = find_at(row, path)
    if numbers and isinstance(value, list):
        number = look_up(row, numbers)
        wanted = number if isinstance(number, list) else [number]
        return [value[at] for at in wanted if isinstance(at, int) and 0 <= at < len(value)]
    return None if value is MISSING else value


def find_at(row: Any, path: str) -> Any:
    """What is at a dotted path, with numbers in lists, or `*` for all items; else MISSING."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    head, _, inner = path.partition(".")
    value = MISSING
    if isinstance(row, Mapping):
        if inner and head not in row:  # a name with a point in it
            head = next((name for name in row if path.startswith(f"{name}.")), head)
            inner = path[len(head) + 1 :]
        value = row.get(head, MISSING)
    elif isinstance(row, list | tuple) and head == "*":
        values = [find_at(item, inner) if inner else item for item in row]
        values = [value for value in values if value is not MISSING]
        return values[0] if len(values) == 1 else Answers(values) if values else MISSING
    elif isinstance(row, list | tuple) and head.isdigit() and int(head) < len(row):
        value = row[int(head)]
    return find_at(value, inner) if inner and value is not MISSING else value


def names_in(row: Mapping[str, Any]) -> Iterator[str]:
    """The names of a row's columns; nested ones are dotted and follow the object's own."""
    for name, value in row.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in names_in(value))


class Nesting:
    """Tracks how deep JSON nests that is fed in pieces, which may cut strings and escapes."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_text, self._escape = False, b""

    @property
    def open_text(self) -> bytes:
        """What a text that is not closed yet began with."""
        return (b'"' if self._in_text else b"") + self._escape

    def feed(self, data: bytes) -> None:
        """Takes the next piece. Raises InvalidSample if a number outside strings has more than
        MAX_DIGITS digits, or the depth passes MAX_NESTING."""
        data = _ESCAPED.sub(b"", self._escape + data)
        self._escape = b"\\" if data.endswith(b"\\") else b""
        parts = data.split(b'"')
        outside = b'"'.join(parts[self._in_text :: 2])
        self._in_text ^= len(parts) % 2 == 0
        steps = map(_STEPS.__getitem__, outside.translate(None, _NO_BRACKETS))
        depths = [*accumulate(steps, initial=self.depth)]
        self.depth = depths[-1]
        if max(depths) > MAX_NESTING:
            raise invalid(f"broken JSON: nested more than {MAX_NESTING} deep")
        if _LONG_NUMBER.search(outside):
            raise invalid("broken JSON: a number has more digits than can be read")


def parse_sample(
    raw: Any, suite: str, checks_spelling: bool = True, lacks_query: bool = False
) -> Sample:
    """Parses a raw object into a Sample of `suite`, with unknown fields as metadata, if they are no
    misspelling; without a query only if its dataset `lacks_query`. Raises InvalidSample with every
    fault."""
    if not isinstance(raw, dict):
        raise invalid(f"a sample must be a JSON object, not {_json_type(raw)}")
    sample_id = raw["id"] if isinstance(raw.get("id"), str) else ""
    faults: list[Fault] = []
    fields: dict[str, Any] = {"suite": suite}
    own: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _NAMES or (key in DEFAULTS and is_field(key, value)):
            if value is not None and key != "suite":
                fields[key] = value
        elif key not in DEFAULTS and checks_spelling and (hint := _nearest(str(key), value)):
            faults.append(Fault(field=str(key), message=f"no such field; did you mean {hint!r}?"))
        else:
            own[str(key)] = value
    if own and isinstance(fields.get("metadata", {}), dict):
        fields["metadata"] = {**own, **fields.get("metadata", {})}
    plain = None if faults else plain_sample(fields)
    if plain is not None and not plain.forbidden_keys and _EXPECTED.isdisjoint(plain.metadata):
        return plain
    faults += [  # pydantic would take the keys of a mapping
        Fault(field=name, message=f"must be a list of text, not {_json_type(fields[name])}")
        for name in (() if plain else LISTS)
        if name in fields and not isinstance(fields[name], list | tuple)
    ]
    try:
        sample = plain or Sample.model_validate(fields)
    except ValidationError as error:
        faults += _to_faults(error, {fault.field for fault in faults})
        if session := [field for field in ("turns", "user") if field in fields]:
            # Its first message is its query
            faults = [fault for fault in faults if fault != _NO_QUERY] or [
                Fault(field=session[0], message="the first message is missing; write what is said")
            ]
    else:
        faults += [] if sample.query or lacks_query else [_NO_QUERY]
        faults += _find_wrong_memory(sample)
        if not faults:
            return sample
    raise InvalidSample(faults, sample_id)


def _find_wrong_memory(sample: Sample) -> Iterator[Fault]:
    """Finds expectations and criteria that cannot be read or met."""
    expects, checks = sample.metadata.get(EXPECTS), list[Callable[[Mapping[str, Any]], object]]()
    if expects not in (None, {}) and (isinstance(expects, dict) or sample.suite == "memory"):
        checks.append(read_expectations)
    if has_criteria(sample.metadata):
        checks.append(read_criteria)
    for check in checks:
        try:
            check(sample.metadata)
        except ValueError as error:
            field, _, message = str(error).partition(": ")
            yield Fault(field=field, message=message)


def is_field(name: str, value: Any) -> bool:
    """Whether a value is one of that field. Others call an id `user`, and count `turns`."""
    if name == "user":
        return isinstance(value, dict) and not value.keys().isdisjoint(("persona", "goal"))
    text = value.removesuffix(".0") if isinstance(value, str) else ""
    return name != "turns" or not (isinstance(value, int | float) or text.isdecimal())


def _nearest(name: str, value: Any) -> str | None:
    """The field of a sample that a name looks like a misspelling of, if it could hold the value."""
    hint = _nearest_field(name)
    could_be = isinstance(value, list) if hint == "turns" else is_field(hint or "", value)
    return hint if could_be else None


@lru_cache(100_000)  # more than the columns of a wide table
def _nearest_field(name: str) -> str | None:
    return nearest(name, Sample.model_fields)


def _to_faults(error: ValidationError, seen: set[str]) -> Iterator[Fault]:
    """A fault a field that is not `seen` yet."""
    for problem in error.errors(include_url=False):
        # A value that fits no member of a union is reported once a member; the first two parts name
        # the field and the key.
        path = problem["loc"] if problem["loc"][:1] == ("history",) else problem["loc"][:2]
        is_conflict = problem["type"] == "conflict"
        texts = problem["ctx"]["fields"] if is_conflict else {".".join(map(str, path)): ""}
        for field, text in texts.items():
            if field not in seen:
                seen.add(field)
                yield Fault(field=field, message=text or _describe(problem))


def _describe(problem: Any) -> str:
    kind, value = problem["type"], _json_type(problem["input"])
    if kind in ("missing", "extra_forbidden"):
        return "missing" if kind == "missing" else "no such key"
    wanted = _WANTED.get(kind)
    if problem["loc"][0] == "memory" and len(problem["loc"]) > 1:
        wanted = "text, a number, true/false or a list of these"
    return f"must be {wanted}, not {value}" if wanted else str(problem["msg"])


_WANTED = {"string_type": "text", "dict_type": "an object"}
_WANTED |= dict.fromkeys(("tuple_type", "list_type"), "a list")
_TYPE_NAMES: Mapping[type, str] = {str: "text", list: "a list", tuple: "a list", dict: "an object"}


def _json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    is_number = isinstance(value, int | float)
    name = "the number" if is_number else _TYPE_NAMES.get(type(value), type(value).__name__)
    return cut(f"{name} {value!r}", 60)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise invalid("stands twice in one object; the first would be lost", twice)
    return parsed


def _parse_finite_float(text: str) -> float:
    if math.isinf(number := float(text)):
        raise invalid(f"broken JSON: the number {cut(text, 20)} is too large")
    return number


def _read_constant(name: str) -> None:
    """Null for NaN, as tables write what is missing."""
    if name == "NaN":
        return None
    raise invalid(f"broken JSON: {name} is not a JSON number")


# `json.loads` makes a decoder at each call
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_read_constant, parse_float=_parse_finite_float
)
