"""A run's config in its folder: written when it begins, read and compared when it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memray_eval.config.loading import PATH_FIELDS, RUBRICS, with_settings
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import MEASURED_KEYS, names_a_text_file
from memray_eval.errors import ConfigError, DataError
from memray_eval.extensions import split_reference
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import locate
from memray_eval.withdrawn import what_instead

PAIRWISE = "pairwise"  # the `kind` in the run.yaml of a pairwise run; others have none
# Withdrawn keys that a run has been judged or heard by, with what they are in one that was not
JUDGED_BY = {
    "servers.*.pool": None,
    "judging.limits_at": None,
    "judging.layout": "auto",
    "affect.tts_model": "gpt-4o-mini-tts",
    "affect.voice": None,
}
OWN_KEYS = ("suite", "reader", "metrics", "judge")  # may name files of the user's


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """Writes a run's config to its folder. Raises ConfigError or ResourceError if it keeps calls
    or sounds at a cloud URL that cannot be used, or that holds keys: none is written."""
    for url in (config.judging.cache, config.affect.cache):
        if url is not None and "://" in url:
            locate(url)
    kind = {} if config.pairs is None else {"kind": PAIRWISE}
    folder.write_config({**kind, **config.model_dump(mode="json")})


def read_config(folder: RunFolder) -> RunConfig:
    """The config that a run was started with. Raises DataError if there is none, or no config."""
    try:
        values = folder.read_config()
        if isinstance(values, dict):
            values = _without_withdrawn(values, "")
            values.pop("kind", None)
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise DataError(
            f"{folder.path}/run.yaml is not a config of this version: {error}"
        ) from None


def _without_withdrawn(value: Any, key: str) -> Any:
    """A stored value without the keys that are withdrawn since, and without pools of servers; `key`
    is the dotted one."""
    if isinstance(value, list):
        return [_without_withdrawn(item, key) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: f"{key}.{name}".removeprefix(".") for name in value}
    return {
        name: _without_withdrawn(item, inner[name])
        for name, item in value.items()
        if what_instead(inner[name]) is None
        and what_instead(f"{inner[name]}={item}") is None
        and not (isinstance(item, dict) and item.get("pool"))
    }


def check_resumable(folder: RunFolder) -> None:
    """Raises ConfigError if the run was judged or heard by what is withdrawn since."""
    for key, value in _leaves(folder.read_config(), ""):
        for pattern, otherwise in JUDGED_BY.items():
            if fnmatchcase(key, pattern) and value != otherwise:
                raise ConfigError(f"{folder.path}: {what_instead(key)}; start a new run")


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The dotted keys of a stored config with their values."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, item in value.items():
        yield from _leaves(item, f"{key}.{name}".removeprefix("."))


def is_pairwise(folder: RunFolder) -> bool:
    """Tells if the folder is of a pairwise run. Raises DataError as read_config."""
    values = folder.read_config()
    return isinstance(values, dict) and values.get("kind") == PAIRWISE


def apply_resume_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """A config with `key.path=value` settings. Raises ConfigError if it would measure otherwise."""
    new = with_settings(config, settings)
    if other := [key for key in MEASURED_KEYS if getattr(new, key) != getattr(config, key)]:
        raise ConfigError(
            f"--set {other[0]}: a resumed run keeps its {', '.join(MEASURED_KEYS)}; start a new "
            "one to change them"
        )
    return new


def check_same_run(before: RunConfig, config: RunConfig) -> RunConfig:
    """A run's config as given again, if it measures the same; its files may lie in other folders:
    what is in them is compared later. Raises ConfigError if it is another run."""
    if other := [
        key
        for key in MEASURED_KEYS
        if _value_without_folders(key, before) != _value_without_folders(key, config)
    ]:
        raise ConfigError(
            f"{other[0]} is not what the run of this id began with; give another --run-id, or put "
            "it back"
        )
    return config


def _value_without_folders(key: str, config: RunConfig) -> Any:
    """The value of a config's key, its paths by their last parts."""
    value = getattr(config, key)
    if key in PATH_FIELDS and value is not None:
        return Path(value).name
    if key == RUBRICS:
        return {metric: Path(rubric).name for metric, rubric in value.items()}
    if key == "candidates":
        memories = [candidate.memory for candidate in value]
        stores = [m and (m.name, m.model_dump(exclude={"store"})) for m in memories]
        return stores, [candidate.model_copy(update={"memory": None}) for candidate in value]
    if key in OWN_KEYS:
        return _without_folders(config.model_dump(mode="json", include={key})[key])
    return value


def _without_folders(value: Any) -> Any:
    """A value whose texts may be paths of code, rubrics and templates, by their last parts."""
    if isinstance(value, dict):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    if isinstance(value, str) and (names_a_text_file(value) or split_reference(value)):
        return Path(value).name
    return value
