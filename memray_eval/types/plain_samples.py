"""Samples of plain text without pydantic, as most rows are: what it would make of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from memray_eval.types.samples import Sample, Turn, key_conflicts

DEFAULTS: dict[str, Any] = {
    name: "" if field.is_required() else field.get_default(call_default_factory=True)
    for name, field in Sample.model_fields.items()
}
_TEXTS = frozenset(
    ("id", "suite", "task", "query", "context", "language", "scenario", "prompt_type")
)
_TEXT_LISTS = frozenset(("answers", "classes"))
_LISTS = _TEXT_LISTS | {"required_keys", "forbidden_keys", "neutral_keys"}
_TEXT_OBJECTS = frozenset(("memory", "metadata"))
_EMPTY = {
    **dict.fromkeys((*_LISTS, "turns", "history"), list),
    **dict.fromkeys((*_TEXT_OBJECTS, "traits", "emotion"), dict),
}
_ROLES = ("user", "assistant")
_TURN = {"role", "content"}
_STR = {str}
_SCALARS = {str, int, bool}
MANY = 100  # entries of a memory up to which pydantic is faster


def plain_sample(fields: Mapping[str, Any]) -> Sample | None:
    """The sample, if its fields are texts, lists of texts and a large memory of scalars that
    contradict nothing; None if pydantic has to look at them."""
    values = DEFAULTS.copy()
    values["memory"], values["traits"], values["emotion"], values["metadata"] = {}, {}, {}, {}
    for name, value in fields.items():
        kind = type(value)
        if kind is str and name in _TEXTS:
            values[name] = value
        elif (
            kind is list
            and name in _LISTS
            and _STR.issuperset(map(type, value))
            and (name in _TEXT_LISTS or _are_names(value))
        ):
            values[name] = tuple(value)
        elif (
            kind is dict
            and name in _TEXT_OBJECTS
            and _STR.issuperset(map(type, value))
            and (name == "metadata" or _is_plain_memory(value))
        ):
            values[name] = value.copy()
        elif kind is list and name == "history" and all(map(is_plain_turn, value)):
            values[name] = tuple(
                [Turn.trusted({"role": t["role"], "content": t["content"]}, _TURN) for t in value]
            )
        elif value or _EMPTY.get(name) is not kind:
            return None
    if not (_is_name(values["id"]) and _is_name(values["query"])):
        return None
    sample = Sample.trusted(values, set(fields))
    has_keys = sample.required_keys or sample.forbidden_keys
    return None if has_keys and key_conflicts(sample) else sample


def _is_plain_memory(memory: Mapping[str, Any]) -> bool:
    is_plain = len(memory) > MANY and _SCALARS.issuperset(map(type, memory.values()))
    return is_plain and _are_names(memory)


def _are_names(texts: Collection[str]) -> bool:
    return "" not in texts and _is_name("".join(texts))


def is_plain_turn(turn: Any) -> bool:
    """Whether it is an object of a role and a text, and no more."""
    return (
        type(turn) is dict
        and len(turn) == 2
        and type(turn.get("content")) is str
        and turn.get("role") in _ROLES
    )


def _is_name(text: str) -> bool:
    """Whether it is a text that is not empty and that UTF-8 can hold."""
    if text.isascii():
        return text != ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
