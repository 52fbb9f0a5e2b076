"""A benchmark's own prompts, in the files that the user has of it: templates of how it asks, and
texts out of its Python code, which is parsed and never run."""

import ast
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyarrow import fs

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.needles.prose import length_label
from memray_eval.benchmarks.templates import (
    PromptByTask,
    Template,
    Values,
    Wording,
    check_places,
    parse_braces,
)
from memray_eval.errors import ConfigError, cut, reason_of
from memray_eval.storage.paths import locate, open_reader


def find_beside(path: str, name: str) -> str | None:
    """The file `name` in the folder (or its `config`, `prompts`), or beside the file; else None."""
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
    """A JSON object with values for tasks. Raises ConfigError: broken, an unknown task."""
    try:
        mapping = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
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
        try:
            if not isinstance(text, str):
                raise ValueError(f"must be text, not {type(text).__name__}")
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
    """The suite that asks with these wordings, and has no other tasks."""
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
    """The syntax tree of a file. Raises ConfigError if it is not Python."""
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"templates: {path} is no Python code: {error}") from None


def assigned_text(code: ast.AST, name: str) -> str | None:
    """The text that is assigned to a name anywhere; the first if there are several."""
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


_PART = re.compile(r"-\d+(?:-of-\d+)?$")  # train-00000-of-00001.parquet, RULER's vt-0.jsonl
_PATH_PARTS = 3  # TASK.jsonl, TASK/data.parquet, TASK/test/0000.parquet
_NAMES: dict[type, str] = {str: "text", int: "a whole number", list: "a list"}
Row: TypeAlias = Mapping[str, Any]


def is_own_record(raw: Row) -> bool:
    """True if a row is in our own format (a sample, or a row of a run)."""
    return "query" in raw or "sample_id" in raw


@dataclass(frozen=True, kw_only=True)
class Published:
    """The `adapt` of a published benchmark's suite: a row of our own format as it is, a `kind` of
    record as the fields of a Sample. All raise ValueError that says what is wrong.

    `fields` are those of each record, with their types (None: any); what a record has besides
    `fields` and `used` is kept, and its context. `aliases` are fields that a record's response made
    a query of, with fields that no row of ours has. `is_published` tells a record from a row of
    ours; a row that is neither `lacks` something. `tasks` are those that a row of ours may name,
    `check_own` is what else must hold of it."""

    kind: str
    read: Callable[[Row, str], Row]
    fields: Mapping[str, type | None] = field(default_factory=dict)
    used: Collection[str] = ()
    tasks: Collection[str] = ()
    aliases: Sequence[tuple[str, Collection[str]]] = ()
    is_published: Callable[[Row], bool] = lambda raw: not is_own_record(raw)
    lacks: str = ""
    check_own: Callable[[Row], object] = lambda raw: None

    def __call__(self, raw: Row, path: str) -> Row:
        for name, marks in self.aliases:
            if "query" in raw and name not in raw and all(mark in raw for mark in marks):
                raw = {name if key == "query" else key: value for key, value in raw.items()}
        if self.is_published(raw):
            check_record(raw, self.kind, self.fields)
            used = {*self.fields, *self.used} - {"context"}
            kept = {name: raw[name] for name in raw if raw[name] is not None and name not in used}
            return {**kept, **self.read(raw, path)}
        if not is_own_record(raw):
            raise ValueError(f"not a question of {self.kind}'s: it lacks {self.lacks}")
        if self.tasks:
            check_own_record(raw, self.tasks)
        self.check_own(raw)
        return raw


def check_own_record(raw: Row, tasks: Collection[str]) -> Row:
    """A row of our own format as it is. Raises ValueError for a task that the suite lacks."""
    if raw.get("task"):
        known_task(raw["task"], tasks)
    return raw


def check_record(raw: Row, kind: str, fields: Mapping[str, type | None]) -> None:
    """Raises ValueError that says which `fields` a record lacks, or has with a wrong type (None:
    any). A context may be in a file of its own instead (`context_file`)."""
    elsewhere = {"context"} if "context_file" in raw else set()
    if missing := [name for name in fields if raw.get(name) is None and name not in elsewhere]:
        raise ValueError(
            f"not a record of {kind}: it lacks {', '.join(missing)}; a sample in our own format "
            "has id and query"
        )
    for name, wanted in fields.items():
        value = raw.get(name)
        if wanted is None or name not in raw:
            continue
        if not isinstance(value, wanted) or isinstance(value, bool):
            message = f"{name}: must be {_NAMES[wanted]}, not {type(value).__name__} {value!r}"
            raise ValueError(cut(message, 200))


def known_task(name: Any, tasks: Collection[str]) -> str:
    """The name of a task of the suite. Raises ValueError that lists them."""
    if not isinstance(name, str) or name not in tasks:
        raise ValueError(f"no task {name!r}; there are: {', '.join(tasks)}")
    return name


def task_of(raw: Row, path: str, tasks: Collection[str]) -> str:
    """The task that a record, else its file or a folder above, names. Raises ValueError."""
    named = raw.get("dataset") or raw.get("task")
    if named is not None:
        return known_task(named, tasks)
    if task := task_of_path(path, tasks):
        return task
    names = ", ".join(tasks)
    raise ValueError(
        f"no task in the name of {path}; name the file or its folder after one of: {names}"
    )


def task_of_path(path: str, tasks: Collection[str]) -> str | None:
    parts = reversed(path.replace("\\", "/").rstrip("/").split("/")[-_PATH_PARTS:])
    names = (_PART.sub("", part.split(".")[0]) for part in parts)
    return next((name for name in names if name in tasks), None)


def query_of(raw: Row, task: str, statements: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A record's question, and what to note of it: a sample must ask something, so that a task
    whose records ask nothing (summaries, code) is stated in our words, and metadata keeps the empty
    input for the benchmark's own templates. Raises ValueError if the task has no such statement."""
    if raw["input"].strip():
        return raw["input"], {}
    if task not in statements:
        raise ValueError(f"input: empty, but {task} asks a question")
    return statements[task], {"input": raw["input"]}


def chars_bucket(chars: int) -> str:
    """A length's class by characters, such as "up to 32k characters" (powers of two, k = 1024)."""
    upper = 1024
    while upper < chars:
        upper *= 2
    return f"up to {length_label(upper)} characters"
