"""Reads a RunConfig from a job's YAML and the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from memray_eval.config.problems import describe
from memray_eval.config.schema import DEFAULT_OUT, JobFile, RunConfig
from memray_eval.config.sections import names_a_file, names_a_text_file, split_metric
from memray_eval.config.server_models import choose_model
from memray_eval.config.servers import rename_models
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, reason_of
from memray_eval.extensions import split_reference

PATH_FIELDS = ("dataset", "samples", "ids", "templates", "errata", "out")
RUBRICS = "rubrics"  # some of its values are paths
OWN = ("metrics", "include")  # and of theirs
SUITE = "suite"  # and of its template
CANDIDATES = "candidates"  # and of their prompts and functions
SINKS = "sinks"  # and of their folders
CALIBRATION = "calibration"  # a list of paths
# May name users' code
CODE = ("judge", "judging", "affect", "simulated_user", "servers", "reader")


def load_config(
    path: Path | None, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> RunConfig:
    """Reads a job's YAML (None: the defaults), found by `find_job`, with `overrides` (dotted key ->
    value) and `settings` (key.path=value) over it. Paths in the file are relative to its folder,
    those on the command line to the working directory. Candidates with several temperatures or
    prompts are expanded. Raises ConfigError that names the file, the key and what to do."""
    path = None if path is None else find_job(path)
    data = _read_yaml(path) if path is not None else {}
    data.setdefault("out", str(Path.cwd() / DEFAULT_OUT))
    for key in (*PATH_FIELDS, RUBRICS, *OWN, SUITE, CANDIDATES, SINKS, CALIBRATION, *CODE):
        if key in data:
            data[key] = _resolve_paths(
                key, data[key], path.parent if path is not None else Path.cwd()
            )
    laid_over = dict(overrides or {})
    laid_over.update(_parse_setting(setting) for setting in settings)
    for key, value in laid_over.items():
        if value is not None:
            _put(data, key, _resolve_paths(key, value, Path.cwd()))
    data = rename_models(data, choose_model)
    try:
        return JobFile.model_validate(data).expand()
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in describe(error, JobFile))
        raise ConfigError(f"{path or 'the options'}: invalid configuration:\n{lines}") from None


def read_job_keys(path: Path) -> set[str]:
    """The dotted keys that a job's YAML gives, without those of its defaults."""

    def keys_of(section: Mapping[str, Any], before: str) -> Iterator[str]:
        for name, value in section.items():
            if isinstance(value, dict) and value:
                yield from keys_of(value, f"{before}{name}.")
            else:
                yield f"{before}{name}"

    return set(keys_of(_read_yaml(find_job(path)), ""))


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
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in describe(error, RunConfig))
        raise ConfigError(f"--set: invalid configuration:\n{lines}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no file {path}; the jobs that come with memray_eval go by their names alone: "
            f"{', '.join(shipped_jobs())}"
        ) from None
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
        node = (
            node[_parse_index(node, part, dotted)]
            if isinstance(node, list)
            else node.setdefault(part, {})
        )
        if not isinstance(node, dict | list):
            raise ConfigError(
                f"--set {dotted}: {part!r} holds a plain value, nothing can stand below it"
            )
    if isinstance(node, list):
        node[_parse_index(node, last, dotted)] = value
    else:
        node[last] = value


def _parse_index(node: list[Any], part: str, dotted: str) -> int:
    """An element's index; that after the last one appends."""
    if part == str(len(node)):
        node.append({})
    if not part.isdecimal() or int(part) >= len(node):
        n = len(node)
        raise ConfigError(f"--set {dotted}: {part!r} is not an index of a list of {n}; {n} appends")
    return int(part)


def _resolve_paths(key: str, value: Any, folder: Path) -> Any:
    """Resolves the paths in a key's value against a folder."""
    field = key.partition(".")[0]
    resolve_item = {
        **dict.fromkeys(OWN, _resolve_own),
        CALIBRATION: _resolve_calibration,
        CANDIDATES: _resolve_candidate,
    }.get(key)
    if resolve_item is not None:  # anything else than a list is reported when it is validated
        is_list = isinstance(value, list | tuple)
        return [resolve_item(item, folder) for item in value] if is_list else value
    if key in (SUITE, SINKS):
        return (_resolve_suite if key == SUITE else _resolve_sinks)(value, folder)
    if field in CODE or (field == CANDIDATES and key.endswith(".model")):
        return _resolve_code(value, folder)
    if isinstance(value, dict) and key == RUBRICS:
        return {
            name: _resolve_paths(f"{RUBRICS}.{name}", rubric, folder)
            for name, rubric in value.items()
        }
    if not isinstance(value, str) or not (
        key in PATH_FIELDS or (field == RUBRICS and names_a_file(value))
    ):
        return value
    return _resolve_path(value, folder)


def _resolve_candidate(entry: Any, folder: Path) -> Any:
    """Resolves the prompt files and the code that a candidate names."""
    if not isinstance(entry, dict):
        return entry

    def resolve(prompt: Any) -> Any:
        is_file = isinstance(prompt, str) and names_a_file(prompt)
        return _resolve_path(prompt, folder) if is_file else prompt

    resolved = dict(entry)
    if "prompt" in entry:
        resolved["prompt"] = resolve(entry["prompt"])
    if isinstance(prompts := entry.get("prompts"), list | tuple):
        resolved["prompts"] = [resolve(prompt) for prompt in prompts]
    if isinstance(entry.get("lora"), str):
        resolved["lora"] = _resolve_path(entry["lora"], folder)
    if "model" in entry:
        resolved["model"] = _resolve_own(entry["model"], folder)
    return resolved


def _resolve_sinks(sinks: Any, folder: Path) -> Any:
    """Resolves the folders that sinks name."""
    if isinstance(sinks, list | tuple):
        return [_resolve_sinks(sink, folder) for sink in sinks]
    if isinstance(sinks, dict) and isinstance(path := sinks.get("dir"), str):
        return sinks | {"dir": _resolve_path(path, folder)}
    return sinks


def _resolve_suite(entry: Any, folder: Path) -> Any:
    """Resolves the file of a suite of one's own, or those that its template names."""
    if not isinstance(entry, dict):
        return _resolve_own(entry, folder)
    resolved = _resolve_texts(entry, ("prompt", "system"), folder)
    return resolved | {
        key: _resolve_paths(key, value, folder) for key, value in entry.items() if key in OWN
    }


def _resolve_code(value: Any, folder: Path) -> Any:
    """Resolves the files of code that a judge, a jury, or a server names."""
    if isinstance(value, dict):
        return {key: _resolve_code(part, folder) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_resolve_code(part, folder) for part in value]
    return _resolve_own(value, folder)


def _resolve_texts(entry: dict[str, Any], keys: Sequence[str], folder: Path) -> dict[str, Any]:
    """An entry with the paths of its text files resolved."""
    return entry | {
        key: _resolve_path(text, folder)
        for key in keys
        if isinstance(text := entry.get(key), str) and names_a_text_file(text)
    }


def _resolve_calibration(named: Any, folder: Path) -> Any:
    """Resolves the file of labels, or of METRIC=FILE."""
    if not isinstance(named, str):
        return named
    metric, path = split_metric(named)
    return (f"{metric}=" if metric else "") + _resolve_path(path, folder)


def _resolve_own(entry: Any, folder: Path) -> Any:
    """Resolves the file of an object of one's own, or of a metric's rubric."""
    if isinstance(entry, dict):
        return _resolve_texts(entry, ("rubric",), folder)
    if isinstance(entry, str) and (reference := split_reference(entry)) is not None:
        module, attribute = reference
        if module.endswith(".py"):
            return ":".join(filter(None, (_resolve_path(module, folder), attribute)))
    return entry


def _resolve_path(path: str, folder: Path) -> str:
    return path if "://" in path else os.path.abspath(folder / path)
