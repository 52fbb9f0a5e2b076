"""Parses YAML strictly (no duplicate keys, limited nesting), and describes what is wrong with a
configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import yaml
from pydantic import ValidationError

from memray_eval.types import Frozen

# Keys that jobs had, and what to do instead
WITHDRAWN = {
    "estimates": "no metric has an estimate that a job must ask for; leave the key out, and name "
    "a judge with `judge: PROVIDER/MODEL` for metrics that need one",
    "emotion_words": "the companion metrics have no rules; leave the key out, and name a judge "
    "with `judge: PROVIDER/MODEL`",
}


def describe(error: ValidationError, model: type[Frozen]) -> Iterable[str]:
    """One line for each problem: the dotted key, what is wrong, and the nearest known key if it
    looks misspelt."""
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if where in WITHDRAWN:
            yield f"{where}: {WITHDRAWN[where]}"
        elif problem["type"] == "extra_forbidden":
            hint = nearest(str(problem["loc"][-1]), known_keys(model))
            yield f"{where}: no such key" + (f"; did you mean {hint!r}?" if hint else "")
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            text = problem["msg"].removeprefix("Value error, ")
            yield f"{where}: {text}" if where else text


def known_keys(model: type[Frozen]) -> set[str]:
    """The field names of a config model and of all models nested in it."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, Frozen) and inner is not model:
                names |= known_keys(inner)
    return names


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that `word` most likely misspells, if any."""
    return next(iter(difflib.get_close_matches(word, sorted(words), n=1, cutoff=0.7)), None)


MAX_YAML_DEPTH, MAX_YAML_VALUES = 32, 100_000


class _StrictLoader(yaml.SafeLoader):
    """Refuses duplicate keys and nesting deeper than MAX_YAML_DEPTH."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_YAML_DEPTH} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and (key.tag, str(key.value)) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice; the first would be lost",
                    problem_mark=key.start_mark,
                )
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, also for a key that stands twice, for
    nesting deeper than MAX_YAML_DEPTH, for numbers that cannot be read, and for aliases that
    multiply to more than MAX_YAML_VALUES values."""
    try:
        value = yaml.load(text, _StrictLoader)
    except ValueError as error:  # a date or a number that Python cannot make
        raise yaml.YAMLError(str(error)) from None
    left = MAX_YAML_VALUES
    waiting = [value]
    while waiting:
        left -= 1
        if left < 0:
            raise yaml.YAMLError(f"its aliases stand for more than {MAX_YAML_VALUES} values")
        part = waiting.pop()
        waiting += (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        )
    return value
