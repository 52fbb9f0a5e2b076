"""Describes the faults of a configuration."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import is_typeddict

from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, nearest, reason_of
from memray_eval.types import Frozen
from memray_eval.withdrawn import what_instead

# The values that are wanted, by pydantic's type of error; a union's branches are joined by "or"
_WANTED = {
    **dict.fromkeys(("string_type", "string_sub_type"), "text"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a mapping of keys"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "finite_number": "a finite number",
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
    "literal_error": "{expected}",
}
# The branch of a union in the place of an error, which is no key of the user's
_BRANCH = re.compile(
    r"str|int|float|bool|constrained-\w+|[\w-]+\[.*|[A-Z]\w*(Metric|Template|Range)"
)


def describe(error: ValidationError, model: type[Frozen]) -> Iterable[str]:
    """A line for each problem: the dotted key, what is wrong, and a misspelt key's nearest."""
    for problem in _merge_branches(error):
        where = ".".join(str(part) for part in problem["loc"])
        key = re.sub(r"(^|\.)\d+(?=\.|$)", "", where)  # without the places in lists
        name = key if problem["type"] == "extra_forbidden" else f"{key}={problem['input']}"
        if instead := what_instead(name):
            yield instead
        elif problem["type"] == "extra_forbidden":
            *section, last = map(str, problem["loc"])
            hint = nearest(last, _keys_at(model, section)) or nearest(last, known_keys(model))
            advice = f"; did you mean {hint!r}?" if hint else ""
            if hint == key:
                advice = f" of a job; it is one of its parts, as in candidates: [{{{key}: ...}}]"
            yield f"{where}: no such key{advice}"
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            text = _words(problem)
            yield f"{where}: {text}" if where else text


def _merge_branches(error: ValidationError) -> Iterator[Any]:
    """The errors by place. For a union the deepest branch counts, or what all of them want; errors
    that follow from another one are left out."""
    by_place: dict[tuple[Any, ...], list[Any]] = {}
    for problem in error.errors():
        *parents, last = problem["loc"] or ("",)
        is_key = problem["type"] == "extra_forbidden"  # which may look like a branch
        loc = tuple(part for part in parents if not _is_branch(part))
        loc += (last,) if problem["loc"] and (is_key or not _is_branch(last)) else ()
        by_place.setdefault(loc, []).append({**problem, "loc": loc, "branch": problem["loc"]})
    for loc, problems in by_place.items():
        is_union = any(_is_branch(part) for part in problems[0]["branch"])
        deeper = [other for other in by_place if len(other) > len(loc) and other[: len(loc)] == loc]
        if deeper and (is_union or problems[0]["type"] == "too_short"):
            continue
        of_values = [problem for problem in problems if problem["type"] == "value_error"]
        words = (_WANTED.get(it["type"], "").format(**it.get("ctx", {})) for it in problems)
        wanted = dict.fromkeys(filter(None, words))
        yield {**(of_values or problems)[0], "wanted": "" if of_values else " or ".join(wanted)}


def _is_branch(part: Any) -> bool:
    return isinstance(part, str) and _BRANCH.fullmatch(part) is not None


def _words(problem: Any) -> str:
    """The fault of a value. The value is shown only if it is a number: a text may be a key."""
    value = problem["input"]
    if problem["type"] == "too_short":
        return f"at least {problem['ctx']['min_length']} must be named"
    if not problem["wanted"]:
        return str(problem["msg"]).removeprefix("Value error, ")
    kinds = {str: "text", list: "a list", tuple: "a list", dict: "a mapping", type(None): "empty"}
    shown = kinds.get(type(value), repr(value) if isinstance(value, int | float) else "")
    text = f"must be {problem['wanted']}"
    if problem["type"] == "literal_error" and isinstance(value, str):
        hint = nearest(value, re.findall(r"'([^']*)'", problem["wanted"]))
        return text + (f"; did you mean {hint!r}?" if hint else "")
    return text + (f", not {shown}" if shown and shown != problem["wanted"] else "")


def known_keys(model: type[BaseModel]) -> set[str]:
    """The field names of a config model and of all models nested in it."""
    names = set(model.model_fields)
    for field in model.model_fields.values():
        names = names.union(*map(known_keys, models_in(field.annotation)))
    return names


def _keys_at(model: Any, section: Iterable[str]) -> set[str]:
    """The keys of the section at a place in a config; names that a user gave, as of servers, are
    skipped."""

    def fields_of(kind: Any) -> Mapping[str, Any]:
        if is_typeddict(kind):
            return cast(Mapping[str, Any], kind.__annotations__)
        fields = kind.model_fields.items() if kind in models_in(kind) else ()
        return {name: field.annotation for name, field in fields}

    def kinds_in(annotation: Any) -> list[Any]:
        parts = [it for part in get_args(annotation) for it in kinds_in(part)]
        return parts or [annotation]

    here = [model]
    for part in section:
        inner = [fields_of(kind)[part] for kind in here if part in fields_of(kind)]
        here = [kind for annotation in inner for kind in kinds_in(annotation)] or here
    return {name for kind in here for name in fields_of(kind)}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that the type of a field names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


Tier: TypeAlias = Literal["must", "may"]


class PolicyGate(Frozen):
    """A metric that is not to fall by more than `margin`, shown on `least_n` units or more. What
    `may` fail changes no exit code."""

    metric: str
    margin: float = Field(ge=0, allow_inf_nan=False)
    tier: Tier = "must"
    least_n: int = Field(default=0, ge=0)


class Policy(Frozen):
    """The gates; a judge gates if one of `calibrations` (files, from the policy's folder) is of it
    and the run's rubric and says that it may be used, or with `allow_uncalibrated`."""

    gates: tuple[PolicyGate, ...] = Field(min_length=1)
    allow_uncalibrated: bool = False
    calibrations: tuple[str, ...] = ()


def read_policy(path: Path) -> Policy:
    """Reads a policy's YAML. Raises ConfigError, one line, for anything else."""
    try:
        return Policy.model_validate(parse_yaml(path.read_text("utf-8")))
    except ValidationError as error:
        raise ConfigError(f"{path}: {'; '.join(describe(error, Policy))}") from None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = " ".join(reason_of(error).split())
        raise ConfigError(f"--policy {path} cannot be read: {reason}") from None
