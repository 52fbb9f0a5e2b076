"""Parses YAML strictly: no duplicate keys, limited nesting."""

from typing import Any

import yaml

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
                    problem=f"the key {key.value!r} appears twice; the first would be lost",
                    problem_mark=key.start_mark,
                )
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, also for a key given twice, nesting beyond
    MAX_YAML_DEPTH, numbers that cannot be read, and aliases beyond MAX_YAML_VALUES values."""
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
