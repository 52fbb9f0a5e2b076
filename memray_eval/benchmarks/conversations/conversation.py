"""A conversation in sessions and turns, as a sample's context and as published files have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from pyarrow import fs

from memray_eval.ports import PublishedFile, PublishedQuestion
from memray_eval.storage.paths import locate

_KEPT = 2  # conversations at hand; questions on one stand together


class SpokenTurn(NamedTuple):
    """A speaker's words. `id` is unique in its conversation."""

    id: str
    speaker: str
    text: str


class Session(NamedTuple):
    """Turns of one sitting, with its date in the benchmark's own words ("" if it names none)."""

    id: str
    date: str
    turns: tuple[SpokenTurn, ...]


Conversation: TypeAlias = tuple[Session, ...]
Fault: TypeAlias = tuple[str, str]  # a field, and what is wrong with it


def to_context(sessions: Iterable[Session]) -> str:
    """A sample's context: the conversation as JSON, and nothing else of its record."""
    return json.dumps(
        [[part.id, part.date, [list(turn) for turn in part.turns]] for part in sessions],
        ensure_ascii=False,
        separators=(",", ":"),
    )


@lru_cache(_KEPT)
def from_context(context: str) -> Conversation:
    """The conversation that a context stands for. Raises ValueError if it stands for none."""
    try:
        return tuple(
            Session(str(name), str(date), tuple(SpokenTurn(*map(str, turn)) for turn in turns))
            for name, date, turns in json.loads(context)
        )
    except (TypeError, ValueError):
        raise ValueError(
            "context: is no conversation; it is the JSON of a list of sessions "
            "[id, date, [[turn id, speaker, text], ...]]"
        ) from None


def check_sessions(sessions: Sequence[Session]) -> Conversation:
    """The sessions that have turns. Raises ValueError for none, and for a repeated id."""
    conversation = tuple(part for part in sessions if part.turns)
    if not conversation:
        raise ValueError("the conversation has no sessions with turns")
    seen: set[str] = set()
    for part in conversation:
        for turn in part.turns:
            if turn.id in seen:
                raise ValueError(f"the conversation has two turns with the id {turn.id!r}")
            seen.add(turn.id)
    return conversation


def read_turn(
    raw: Any, id_: str, speaker_field: str = "role", text_field: str = "content"
) -> SpokenTurn:
    """A published turn. Raises ValueError if speaker or text are no text."""
    if not isinstance(raw, dict):
        raise ValueError(f"turn {id_} is no object")
    speaker, text = raw.get(speaker_field), raw.get(text_field)
    if not isinstance(speaker, str) or not isinstance(text, str):
        which = speaker_field if not isinstance(speaker, str) else text_field
        raise ValueError(f"turn {id_}: {which} is no text")
    return SpokenTurn(id_, speaker, text)


def find_json(path: str) -> list[PublishedFile] | None:
    """The JSON file at a path, or those of the folder there where it holds nothing else that could
    be read; None if there are none."""
    if path.endswith(".json"):
        return [PublishedFile(path, "json")]
    names = names_in(path)
    files = sorted(name for name in names if name.endswith(".json"))
    others = any(name.endswith((".jsonl", ".parquet", ".csv")) for name in names)
    if not files or others or "manifest.json" in names:
        return None
    return [PublishedFile(f"{path.rstrip('/')}/{name}", "json") for name in files]


def find_named(path: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """The paths of a folder's files whose names are wanted, or the path of a file that is."""
    folder, names = path.rstrip("/"), names_in(path)
    if not names and is_wanted(folder.rpartition("/")[2]):
        return [folder]
    return [f"{folder}/{name}" for name in names if is_wanted(name)]


def names_in(folder: str) -> list[str]:
    """The names of what is in a folder, sorted; none where there is no such folder."""
    filesystem, inner = locate(folder)
    if filesystem.get_file_info(inner).type != fs.FileType.Directory:
        return []
    return sorted(str(info.base_name) for info in filesystem.get_file_info(fs.FileSelector(inner)))


def find_lacking(raw: Mapping[str, Any], names: Collection[str]) -> list[Fault]:
    """A fault for each field that a record lacks."""
    return [(name, "missing") for name in names if raw.get(name) is None]


def require(raw: Any, kind: str, names: Collection[str]) -> None:
    """Raises ValueError that says which of the fields an item lacks that every `kind` has."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"no {kind}: it is {type(raw).__name__}, not an object")
    if missing := [name for name in names if name not in raw]:
        raise ValueError(
            f"no {kind}: it lacks {', '.join(missing)}; has the file another version or benchmark?"
        )


def to_question(
    place: str,
    fields: Mapping[str, Any],
    metadata: Mapping[str, Any],
    faults: Iterable[Fault],
    raw: Mapping[str, Any],
) -> PublishedQuestion:
    """A question with its metadata, to which belongs what a memory system retrieved, by `raw`."""
    retrieved = {"retrieved": raw["retrieved"]} if "retrieved" in raw else {}
    about = {"metadata": {**metadata, **retrieved}}
    return PublishedQuestion(place, {**fields, **about}, tuple(faults))


def as_text(answer: Any) -> str | None:
    """An answer that is a text or a number, as text; None for anything else."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return None
    return str(answer).strip() or None
