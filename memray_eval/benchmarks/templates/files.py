"""A benchmark's own prompt templates, in the files that the user has of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import yaml
from pyarrow import fs

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.templates import Template, Wording, check_places, parse_braces
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError
from memray_eval.storage.paths import locate, open_reader
from memray_eval.types import Candidate, Prompt, Sample

Values = Callable[[Sample], Mapping[str, str]]


def find_beside(path: str, name: str) -> str | None:
    """The file `name` in the folder `path`, in its folder `config` or `prompts`, or next to the
    file `path`; None if there is none."""
    folder = (
        path.rstrip("/") if _kind(path) == fs.FileType.Directory else path.rpartition("/")[0] or "."
    )
    found = (f"{folder}/{inner}{name}" for inner in ("", "config/", "prompts/"))
    return next((file for file in found if _kind(file) == fs.FileType.File), None)


def is_file(path: str) -> bool:
    """Raises ConfigError if there is neither a file nor a folder."""
    kind = _kind(path)
    if kind == fs.FileType.NotFound:
        raise ConfigError(f"templates: nothing at {path}")
    return bool(kind == fs.FileType.File)


def read_text(path: str) -> str:
    """Raises ConfigError for a file that cannot be read or is not UTF-8."""
    filesystem, inner = locate(path)
    try:
        with open_reader(filesystem, inner) as file:
            return str(file.read().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"templates: cannot read {path}: {error}") from None


def read_mapping(path: str, tasks: Collection[str]) -> dict[str, Any]:
    """A JSON or YAML object with a value for some of the tasks. Raises ConfigError: broken, no
    object, an unknown task."""
    text = read_text(path)
    try:
        found = parse_yaml(text) if path.endswith((".yaml", ".yml")) else json.loads(text)
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"templates: {path} is broken: {error}") from None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"templates: {path} must map each task to its value")
    for task in found:
        if task not in tasks:
            raise ConfigError(f"templates: {path}: no task {task!r}; there are: {', '.join(tasks)}")
    return found


def read_templates(path: str, tasks: Collection[str], places: Sequence[str]) -> dict[str, Template]:
    """Templates by task, in Python's format syntax, as the benchmarks have them. Raises ConfigError
    naming file and task."""
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
    found = read_mapping(path, tasks)
    for task, length in found.items():
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ConfigError(
                f"templates: {path}: {task}: must be a number of tokens above 0, not {length!r}"
            )
    return found


def ask_with_templates(
    suite: Suite, path: str, wordings: Mapping[str, Wording], values: Values
) -> Suite:
    """The suite that asks with these wordings, and so has these tasks only: where the user brings
    some of a benchmark's templates, asking the other tasks in our words would mix what cannot be
    compared."""
    return replace(
        suite,
        prompt=partial(_prompt, wordings=dict(wordings), values=values),
        adapt=partial(
            _adapt_with_template, adapt=suite.adapt, tasks=frozenset(wordings), templates=path
        ),
        tasks=tuple(task for task in suite.tasks if task in wordings),
    )


def _prompt(
    sample: Sample, candidate: Candidate, *, wordings: Mapping[str, Wording], values: Values
) -> Prompt:
    return wordings[sample.task].ask(values(sample))


def _adapt_with_template(
    raw: Mapping[str, Any],
    path: str,
    *,
    adapt: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
    tasks: Collection[str],
    templates: str,
) -> Mapping[str, Any]:
    fields = adapt(raw, path)
    if fields.get("task") not in tasks:
        raise ValueError(
            f"{templates} has no template for task {fields.get('task')!r}; it has: "
            f"{', '.join(sorted(tasks))}"
        )
    return fields


def _kind(path: str) -> Any:
    filesystem, inner = locate(path)
    return filesystem.get_file_info(inner).type
