"""Records of published benchmarks: how a suite reads them (`Published`), and their tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from memray_eval.benchmarks.generator.question_order import length_label
from memray_eval.errors import cut

_PART = re.compile(r"-\d+-of-\d+$")  # train-00000-of-00001.parquet
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
    missing = [
        name
        for name in fields
        if raw.get(name) is None and not (name == "context" and "context_file" in raw)
    ]
    if missing:
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
    """The task that a record names (`dataset` or `task`), else that its file or one of the two
    folders above is named after. Raises ValueError that lists the known ones."""
    named = raw.get("dataset") or raw.get("task")
    if named is not None:
        return known_task(named, tasks)
    task = task_of_path(path, tasks)
    if task is None:
        raise ValueError(
            f"no task in the name of {path}; name the file or its folder after one of: "
            f"{', '.join(tasks)}"
        )
    return task


def task_of_path(path: str, tasks: Collection[str]) -> str | None:
    for part in reversed(path.replace("\\", "/").rstrip("/").split("/")[-_PATH_PARTS:]):
        name = _PART.sub("", part.split(".")[0])
        if name in tasks:
            return name
    return None


def query_of(raw: Row, task: str, statements: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A record's question, and what to note of it: a sample must ask something, so that a task
    whose records ask nothing (summaries, code) is stated in our words, and metadata keeps the empty
    input for the benchmark's own templates. Raises ValueError if the task has no such statement."""
    if raw["input"].strip():
        return raw["input"], {}
    if task not in statements:
        raise ValueError(f"input: empty, but {task} asks a question")
    return statements[task], {"input": raw["input"]}


def published_input(query: str, metadata: Row) -> str:
    """The input as the benchmark published it, for its own templates."""
    return str(metadata.get("input", query))


def chars_bucket(chars: int) -> str:
    """A text's class of length where only its characters are known: the next power of two, such as
    "up to 32k characters" (k = 1024)."""
    upper = 1024
    while upper < chars:
        upper *= 2
    return f"up to {length_label(upper)} characters"
