"""The origin of responses that exist already: their run, or the suite that their rows name.
`evaluate` judges them by that, and asks if a job says otherwise."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from memray_eval.benchmarks import all_suites
from memray_eval.benchmarks.own import find_suite, suite_name
from memray_eval.config.loading import PATH_FIELDS, leaves, with_settings
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import (
    MEASURED_KEYS,
    ColumnSource,
    RubricMetric,
    SuiteTemplate,
    names_a_text_file,
)
from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.sources import HUB, entries, file_stem, prepared, read_header, sources_of
from memray_eval.errors import ConfigError, DataError, suggest
from memray_eval.extensions import split_reference
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import locate
from memray_eval.types import EXISTING, Frozen
from memray_eval.withdrawn import what_instead

LOOKED_AT = 100  # rows of a file, before all are counted when they are read
# The keys that decide how a run's responses are judged, beside its suite
FOLLOWED = tuple("metrics rubrics criteria text_weights companion_weights transitions".split())


class Origin(Frozen):
    """The origin of responses. `suite` None: unknown; `followed`: a run's keys beside it."""

    what: str
    suite: str | SuiteTemplate | None = None
    followed: dict[str, Any] | None = None


def find_origin(path: str, columns: Mapping[str, ColumnSource] = MappingProxyType({})) -> Origin:
    """The run whose folder this is, else the suite that the first rows of a file name, or that fits
    them with these `columns`. Raises DataError if there is nothing at the path, or a run's config
    cannot be read."""
    if (folder := _run_at(path)) is not None:
        config = read_config(folder)
        followed = {key: getattr(config, key) for key in FOLLOWED}
        return Origin(what=f"run {folder.run_id}", suite=config.suite, followed=followed)
    return Origin(what=path.rstrip("/").rpartition("/")[2], suite=_suite_of_rows(path, columns))


def name_answers(path: str) -> dict[str, str]:
    """The candidate of existing responses: named as their file, or as their run's first one."""
    if (folder := _run_at(path)) is not None:
        return existing_candidate(read_config(folder).candidates[0].name)
    return existing_candidate(file_stem(path) or EXISTING)


def _run_at(path: str) -> RunFolder | None:
    folder = None if path.startswith(HUB) else RunFolder(path)
    is_run = folder is not None and folder.has_manifest() and folder.has_file("run.yaml")
    return folder if is_run else None


def existing_candidate(name: str) -> dict[str, str]:
    """A candidate whose responses exist, as a job has it."""
    return {"name": name, "model": name, "backend": EXISTING}


def _suite_of_rows(path: str, columns: Mapping[str, ColumnSource]) -> str | None:
    """The suite that most of the first rows name; one of ours, if any of them is. Rows that have
    right answers and no question are of LongBench or the suite qa; a CSV, or chats as
    other tools write them, without a memory are of qa if they have right answers, else of chat."""
    sources = sources_of(path)
    header = read_header(sources[0])
    source = prepared(sources[0].model_copy(update={"header": header}))
    first = islice(entries(source), LOOKED_AT)
    rows = [entry.raw for entry in first if isinstance(entry.raw, Mapping)]
    suites = (row.get("suite") for row in rows)
    named = Counter(name for name in suites if isinstance(name, str) and name)
    ranked = sorted(named, key=lambda suite: (suite not in all_suites(), -named[suite], suite))
    if ranked:
        return ranked[0]
    if any("instruction_id_list" in row for row in rows):  # IFEval's: says what to do instead
        return "instruction"
    with suppress(DataError):  # is reported when they are read
        match = find_columns(path, columns, has_responses=True, may_guess=True)
        if match.lacks_query:
            return "longbench" if all("all_classes" in row for row in rows) else "qa"
        is_own = source.kind == "csv" or (match.map is not None and match.map.form is not None)
        if is_own and "memory" not in match.first:
            return "qa" if "answers" in match.first else "chat"
    return None


def follow_origin(
    config: RunConfig, origin: Origin, explicit: Collection[str]
) -> tuple[RunConfig, list[str]]:
    """A job's config with the judging keys of its responses' origin, unless the job or the command
    line (`explicit`) sets them; and each difference, as a line."""
    set_keys, suite = config.model_fields_set, origin.suite
    if suite is None or "suite" in explicit:
        same = config.suite == suite
    elif isinstance(suite, str) and origin.followed is None and suite not in all_suites():
        hint = suggest(suite, all_suites())
        unknown = f"{origin.what} names the suite {suite!r}, which is not one of ours ({hint})"
        return config, [] if "metrics" in explicit else [unknown]
    elif "suite" in set_keys and "metrics" not in explicit and config.suite != suite:
        names = f"{suite_name(suite)}, and the job is of {suite_name(config.suite)}"
        return config, [f"{origin.what} is of the suite {names}"]
    else:
        config, same = config.model_copy(update={"suite": suite}), True
    if not same or origin.followed is None:
        return config, []
    differences, of_suite = [], find_suite(config.suite).metrics
    for key, value in origin.followed.items():
        own = getattr(config, key)
        # No metrics are the suite's, and their order does not matter
        sets = [frozenset(names or of_suite) for names in (value, own)] if key == "metrics" else []
        theirs, ours = sets or (value, own)
        if key in explicit:
            continue
        if key not in set_keys:
            config = config.model_copy(update={key: value})
        elif theirs != ours:
            differences.append(
                f"{origin.what} has the {key} {_in_words(theirs)}, and the job has {_in_words(own)}"
            )
    chosen = config.metrics or of_suite
    if "rubrics" not in set_keys:
        rubrics = {
            key: rubric for key, rubric in config.rubrics.items() if key.partition("/")[0] in chosen
        }
        config = config.model_copy(update={"rubrics": rubrics})
    return config, differences


def _in_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "of its suite"
    names = (item.name if isinstance(item, RubricMetric) else item for item in value)
    return ", ".join(sorted(names)) or "of its suite"


def count_other_suites(scan: Scan, suite: str) -> str | None:
    """A line on how many responses name another suite than the one judging; None if none does."""
    others = {name: count for name, count in scan.suites.most_common() if name != suite}
    if not others:
        return None
    named = ", ".join(f"{count:,} name the suite {name}" for name, count in others.items())
    return f"of {scan.n_samples:,} responses {named}, and all would be judged as those of {suite}"


PAIRWISE = "pairwise"  # the `kind` in the run.yaml of a pairwise run; others have none
# Withdrawn keys that a run has been judged or heard by, with what they are in one that was not
JUDGED_BY = {
    "servers.*.pool": None,
    "judging.limits_at": None,
    "judging.layout": "auto",
    "judging.on_unparsed": "abstain",
    "affect.tts_model": "gpt-4o-mini-tts",
    "affect.voice": None,
}


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """Writes a run's config to its folder. Raises ConfigError or ResourceError if it keeps calls
    or sounds at a cloud URL that cannot be used, or that holds keys: none is written."""
    for url in (config.judging.cache, config.affect.cache):
        if url is not None and "://" in url:
            locate(url)
    kind = {} if config.pairs is None else {"kind": PAIRWISE}
    folder.write_config({**kind, **config.model_dump(mode="json")})


def read_config(folder: RunFolder) -> RunConfig:
    """The config that a run was started with. Raises DataError if it is missing or unreadable."""
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
    """A stored value without withdrawn keys and pools of servers; `key` is the dotted one."""
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
    """Raises ConfigError if a judge or listener of the run was withdrawn since."""
    for key, value in leaves(folder.read_config()):
        for pattern, otherwise in JUDGED_BY.items():
            if fnmatchcase(key, pattern) and value != otherwise:
                raise ConfigError(f"{folder.path}: {what_instead(key)}; start a new run")


def is_pairwise(folder: RunFolder) -> bool:
    """Tells if the folder is of a pairwise run. Raises DataError as read_config."""
    values = folder.read_config()
    return isinstance(values, dict) and values.get("kind") == PAIRWISE


def apply_resume_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """A config with `key.path=value` settings. Raises ConfigError if it measures differently."""
    new = with_settings(config, settings)
    for key in MEASURED_KEYS:
        if getattr(new, key) != getattr(config, key):
            raise ConfigError(
                f"--set {key}: a resumed run keeps its {', '.join(MEASURED_KEYS)}; start a new "
                "one to change them"
            )
    return new


def check_same_run(before: RunConfig, config: RunConfig) -> RunConfig:
    """A run's config as given again, if it measures the same; its files may be in other folders:
    their content is compared later. Raises ConfigError if it is another run."""
    for key in MEASURED_KEYS:
        if _value_without_folders(key, before) != _value_without_folders(key, config):
            raise ConfigError(
                f"{key} is not what the run of this id began with; give another --run-id, or put "
                "it back"
            )
    return config


def _value_without_folders(key: str, config: RunConfig) -> Any:
    value = config.model_dump(mode="json", include={key})[key]
    return Path(value).name if key in PATH_FIELDS and value else _without_folders(value)


def _without_folders(value: Any) -> Any:
    """A value whose texts may be paths of code, rubrics and templates, by their last parts."""
    if isinstance(value, dict):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    if isinstance(value, str) and (names_a_text_file(value) or split_reference(value)):
        return Path(value).name
    return value
