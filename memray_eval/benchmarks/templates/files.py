"""A benchmark's own prompts, in the files that the user has of it: templates of how it asks, and
texts out of its Python code, which is parsed and never run."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml
from pyarrow import fs

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.templates import (
    PromptByTask,
    Template,
    Values,
    Wording,
    check_places,
    parse_braces,
)
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, reason_of
from memray_eval.storage.paths import locate, open_reader


def find_beside(path: str, name: str) -> str | None:
    """The file `name` in the folder `path`, in its folder `config` or `prompts`, or next to the
    file `path`; None if there is none."""
    folder = (
        path.rstrip("/") if _kind(path) == fs.FileType.Directory else path.rpartition("/")[0] or "."
    )
    candidates = (f"{folder}/{inner}{name}" for inner in ("", "config/", "prompts/"))
    return next((file for file in candidates if _kind(file) == fs.FileType.File), None)


def is_file(path: str) -> bool:
    """Raises ConfigError if there is neither a file nor a folder."""
    kind = _kind(path)
    if kind == fs.FileType.NotFound:
        raise ConfigError(f"templates: nothing at {path}")
    return bool(kind == fs.FileType.File)


def read_text(path: str) -> str:
    """Raises ConfigError for a file that cannot be read or is not UTF-8."""
    try:
        with open_reader(*locate(path)) as file:
            return str(file.read().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"templates: cannot read {path}: {reason_of(error)}") from None


def read_mapping(path: str, tasks: Collection[str]) -> dict[str, Any]:
    """A JSON or YAML object with values for tasks. Raises ConfigError: broken, an unknown task."""
    text = read_text(path)
    try:
        mapping = parse_yaml(text) if path.endswith((".yaml", ".yml")) else json.loads(text)
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"templates: {path} is broken: {error}") from None
    if not isinstance(mapping, dict) or not mapping:
        raise ConfigError(f"templates: {path} must map each task to its value")
    for task in mapping:
        if task not in tasks:
            raise ConfigError(f"templates: {path}: no task {task!r}; there are: {', '.join(tasks)}")
    return mapping


def read_templates(path: str, tasks: Collection[str], places: Sequence[str]) -> dict[str, Template]:
    """Templates by task, in Python's format syntax. Raises ConfigError naming file and task."""
    out = {}
    for task, text in read_mapping(path, tasks).items():
        if not isinstance(text, str):
            raise ConfigError(f"templates: {path}: {task}: must be text, not {type(text).__name__}")
        try:
            out[task] = check_places(parse_braces(text), places)
        except ValueError as error:
            raise ConfigError(f"templates: {path}: {task}: {error}") from None
    return out


def read_lengths(path: str, tasks: Collection[str]) -> dict[str, int]:
    """Output lengths in tokens by task. Raises ConfigError naming file and task."""
    lengths = read_mapping(path, tasks)
    for task, length in lengths.items():
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ConfigError(
                f"templates: {path}: {task}: must be a number of tokens above 0, not {length!r}"
            )
    return lengths


def ask_with_templates(
    suite: Suite, path: str, wordings: Mapping[str, Wording], values: Values
) -> Suite:
    """The suite that asks with these wordings, and has these tasks only: asking the others in our
    words would mix what cannot be compared."""
    read = suite.adapt

    def adapt(raw: Mapping[str, Any], dataset: str) -> Mapping[str, Any]:
        fields = read(raw, dataset)
        if fields.get("task") not in wordings:
            raise ValueError(
                f"{path} has no template for task {fields.get('task')!r}; it has: "
                f"{', '.join(sorted(wordings))}"
            )
        return fields

    return replace(
        suite,
        prompt=PromptByTask(wordings=wordings, values=values),
        adapt=adapt,
        tasks=tuple(task for task in suite.tasks if task in wordings),
    )


def find_file(path: str, names: Sequence[str]) -> str:
    """The file itself, or the first of these in the folder. Raises ConfigError if there is none."""
    if is_file(path):
        return path
    prompt_file = next((file for name in names if (file := find_beside(path, name))), None)
    if prompt_file is None:
        raise ConfigError(f"templates: {path} has none of {', '.join(names)}")
    return prompt_file


def parse_python(path: str) -> ast.Module:
    """The syntax of a file. Raises ConfigError for what is no Python."""
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"templates: {path} is no Python code: {error}") from None


def assigned_text(code: ast.AST, name: str) -> str | None:
    """The text that is assigned to a name anywhere, the first where there are several."""
    return next(_texts(ast.walk(code), name), None)


def texts_by_condition(code: ast.AST, name: str) -> dict[str, str]:
    """The texts that are assigned to a name in branches, by the words that the branch's condition
    compares with; that of the other branch of `if not X` by the name X."""
    texts: dict[str, str] = {}
    for node in ast.walk(code):
        if not isinstance(node, ast.If):
            continue
        if text := next(_texts(node.body, name), None):
            words = (part.value for part in ast.walk(node.test) if isinstance(part, ast.Constant))
            texts |= dict.fromkeys((word for word in words if isinstance(word, str)), text)
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        if negated and (text := next(_texts(node.orelse, name), None)):
            names = (part.id for part in ast.walk(node.test) if isinstance(part, ast.Name))
            texts |= dict.fromkeys(names, text)
    return texts


def _texts(nodes: Iterable[ast.AST], name: str) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        ):
            yield node.value.value


def _kind(path: str) -> Any:
    filesystem, inner = locate(path)
    return filesystem.get_file_info(inner).type
