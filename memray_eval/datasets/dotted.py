"""What is at a dotted path of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MISSING: Any = object()


class Answers(list[Any]):
    """Several values, that a path with a `*` leads to."""


def look_up(row: Mapping[str, Any], path: str) -> Any:
    """What is at a dotted path, or the texts at several; None if nothing is."""
    if "+" in path:
        parts = [part for part in (look_up(row, name) for name in path.split("+")) if part != ""]
        glue = "\n\n" if all(isinstance(part, str) for part in parts) else "-"
        return glue.join(str(part) for part in parts if part is not None) or None
    value = find_at(row, path)
    return None if value is MISSING else value


def find_at(row: Any, path: str) -> Any:
    """What is at one dotted path, with numbers in lists, or `*` for all of a list's items; MISSING
    if there is nothing at it."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    head, _, inner = path.partition(".")
    value = MISSING
    if isinstance(row, Mapping):
        value = row.get(head, MISSING)
    elif isinstance(row, list | tuple) and head == "*":
        values = [find_at(item, inner) if inner else item for item in row]
        values = [value for value in values if value is not MISSING]
        return values[0] if len(values) == 1 else Answers(values) if values else MISSING
    elif isinstance(row, list | tuple) and head.isdigit() and int(head) < len(row):
        value = row[int(head)]
    return find_at(value, inner) if inner and value is not MISSING else value
