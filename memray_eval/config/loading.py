"""Reads a RunConfig from a job's YAML and the command line. And the reference of a job's keys:
their JSON schema, and a page in Markdown."""

import ast
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memray_eval.config.problems import describe, models_in
from memray_eval.config.schema import CHOOSE, DEFAULT_OUT, JobFile, RunConfig
from memray_eval.config.sections import names_a_file, names_a_text_file
from memray_eval.config.servers import choose_model
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, reason_of, suggest
from memray_eval.extensions import split_reference
from memray_eval.types import Frozen

PATH_FIELDS = ("dataset", "samples", "ids", "templates", "errata", "out")
RUBRICS = "rubrics"


def load_config(
    path: Path | None, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> RunConfig:
    """Reads a job's YAML (None: the defaults), found by `find_job`, with `overrides` (dotted key ->
    value) and `settings` (key.path=value) over it. Paths in the file are relative to its folder,
    those on the command line to the working directory. Candidates with several temperatures or
    prompts are expanded. Raises ConfigError that names the file, the key and what to do."""
    path = None if path is None else find_job(path)
    data = _read_yaml(path) if path is not None else {}
    folder = Path.cwd() if path is None else path.parent
    data = {key: _resolve_paths(str(key), value, folder) for key, value in data.items()}
    data.setdefault("out", str(Path.cwd() / DEFAULT_OUT))
    laid_over = dict(overrides or {}) | dict(map(_parse_setting, settings))
    for key, value in laid_over.items():
        if value is not None:
            _put(data, key, _resolve_paths(key, value, Path.cwd()))
    with _invalid_config(str(path or "the options"), JobFile):
        return JobFile.model_validate(data, context={CHOOSE: choose_model}).expand()


@contextmanager
def _invalid_config(source: str, model: type[RunConfig]) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in describe(error, model))
        raise ConfigError(f"{source}: invalid configuration:\n{lines}") from None


def read_job_keys(path: Path) -> set[str]:
    """The dotted keys that a job's YAML gives, without those of its defaults."""
    return {key for key, _ in leaves(_read_yaml(find_job(path)))}


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a config as it is read from YAML, with their values."""
    if not isinstance(value, dict) or not value:
        yield key, value
        return
    for name, item in value.items():
        yield from leaves(item, f"{key}.{name}".removeprefix("."))


def shipped_jobs() -> dict[str, Path]:
    """The jobs that come with memray_eval, by name: of the package, or its repository."""
    package = Path(__file__).parents[1]
    for folder in (package / "shipped" / "jobs", package.parent / "jobs"):
        if jobs := {path.stem: path for path in sorted(folder.glob("*.yaml"))}:
            return jobs
    return {}


def find_job(path: Path) -> Path:
    """The file of a job: `path`, or if there is no such file, the shipped job of that name."""
    return path if path.exists() else shipped_jobs().get(str(path), path)


def with_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """A config with key.path=value settings laid over it. Raises ConfigError."""
    data = config.model_dump(mode="json")
    for key, value in map(_parse_setting, settings):
        _put(data, key, _resolve_paths(key, value, Path.cwd()))
    with _invalid_config("--set", RunConfig):
        return RunConfig.model_validate(data)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text("utf-8"))
    except FileNotFoundError:
        files = [str(beside) for beside in sorted(path.parent.glob("*.y*ml"))]
        hint = suggest(str(path), [*shipped_jobs(), *files])
        advice = "the jobs that come with memray_eval go by their names alone"
        raise ConfigError(f"no file {path}; {hint} ({advice})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {reason_of(error)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of keys (suite, dataset, candidates, ...)")
    return data


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, separator, text = setting.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {setting!r}: write key.path=value")
    try:
        return key.strip(), parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {setting!r}: the value is not valid YAML: {error}") from None


def _put(data: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets data[a][b][c] for "a.b.c", making mappings on the way; a number steps into a list."""
    *parents, last = dotted.split(".")
    node: Any = data
    for part in parents:
        is_list = isinstance(node, list)
        node = node[_parse_index(node, part, dotted)] if is_list else node.setdefault(part, {})
        if not isinstance(node, dict | list):
            raise ConfigError(
                f"--set {dotted}: {part!r} holds a plain value, nothing can stand below it"
            )
    node[_parse_index(node, last, dotted) if isinstance(node, list) else last] = value


def _parse_index(node: list[Any], part: str, dotted: str) -> int:
    """An element's index; that after the last one appends."""
    if part == str(len(node)):
        node.append({})
    if not part.isdecimal() or int(part) >= len(node):
        n = len(node)
        raise ConfigError(f"--set {dotted}: {part!r} is not an index of a list of {n}; {n} appends")
    return int(part)


def _resolve_paths(key: str, value: Any, folder: Path) -> Any:
    """The value of a dotted key with the paths in it, at whatever depth, resolved against a folder.
    A list's entries have its key."""
    if isinstance(value, dict):
        return {name: _resolve_paths(f"{key}.{name}", part, folder) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve_paths(key, part, folder) for part in value]
    if isinstance(value, str):
        for keys, is_path in _PATHS.items():
            if re.fullmatch(keys, key):
                return _resolve_path(value, folder) if is_path(value) else value
        if re.fullmatch(_CODE, key):
            module, attribute = split_reference(value) or ("", "")
            if module.endswith(".py"):
                return ":".join(filter(None, (_resolve_path(module, folder), attribute)))
    return value


def _resolve_path(path: str, folder: Path) -> str:
    return path if "://" in path else os.path.abspath(folder / os.path.expanduser(path))


# By a pattern of keys, whether a text there is a path
_PATHS: Mapping[str, Callable[[str], bool]] = {
    rf"{'|'.join(PATH_FIELDS)}|candidates\.lora|sinks\.dir": lambda value: True,
    rf"{RUBRICS}\..+|candidates\.prompts?": names_a_file,
    r"suite\.(prompt|system)|(suite\.)?metrics\.rubric": names_a_text_file,
}
# Keys that may name code, as FILE.py or FILE.py:NAME
_CODE = re.compile(
    r"suite|(suite\.)?metrics|include|candidates(\.\d+)?\.(model|memory|memories)(\.store)?"
    r"|(judge|judging|affect|simulated_user|servers|reader)(\..+)?"
)


_HEAD = """\
# The keys of a job

Made by `memray-eval schema --markdown`. `memray-eval schema > job.schema.json` writes the JSON
schema of the same, by which editors complete a job whose first line is
`# yaml-language-server: $schema=job.schema.json`. `--set KEY=VALUE` sets any of them.

| key | default | what |
|---|---|---|
"""


class Key(NamedTuple):
    """One key of a job: its dotted path, the model that has it, and its field there."""

    path: str
    owner: type[BaseModel]
    name: str
    field: FieldInfo

    @property
    def description(self) -> str:
        """The text below the field in its class."""
        texts = (_texts_below_fields(model).get(self.name) for model in self.owner.__mro__)
        return next((text for text in texts if text), "")


def job_keys(model: type[BaseModel] = JobFile, before: str = "") -> Iterator[Key]:
    """All keys of a job, those of a section after the section's own."""
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        yield Key(f"{before}{name}", model, name, field)
        for section in models_in(field.annotation):
            yield from job_keys(section, f"{before}{name}.")


def job_schema() -> dict[str, Any]:
    """The JSON schema of a job's YAML, with a description of every key."""
    schema = JobFile.model_json_schema()
    homes = {JobFile.__name__: schema, **schema.get("$defs", {})}
    for key in job_keys():
        homes[key.owner.__name__]["properties"][key.name]["description"] = key.description
    for owner in {key.owner for key in job_keys()}:
        for name, field in owner.model_fields.items():
            if field.exclude:  # it follows from another key
                del homes[owner.__name__]["properties"][name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Job"}


def job_reference() -> str:
    """The page of all keys, a row each."""
    rows = [
        f"| `{key.path}` | {_default_of(key.field)} | {key.description} |" for key in job_keys()
    ]
    return _HEAD + "\n".join(rows) + "\n"


@cache
def _texts_below_fields(model: type) -> dict[str, str]:
    """The string below each field of a class, in one line. Pydantic's `use_attribute_docstrings`
    reads them too, but at every import, which then takes a third longer."""
    if not issubclass(model, Frozen) or model is Frozen:
        return {}
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel) or default in ((), {}, PydanticUndefined):
        return ""
    return f"`{json.dumps(default)}`"
