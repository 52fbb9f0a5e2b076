"""A conversation in sessions and turns, and the text that stands for it as a sample's context."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

_KEPT = 2  # conversations at hand; questions on one stand together


class Turn(NamedTuple):
    """What one speaker said. `id` is unique in its conversation."""

    id: str
    speaker: str
    text: str


class Session(NamedTuple):
    """Turns of one sitting, with its date in the benchmark's own words ("" where it names none)."""

    id: str
    date: str
    turns: tuple[Turn, ...]


Conversation: TypeAlias = tuple[Session, ...]


def to_context(sessions: Iterable[Session]) -> str:
    """A sample's context: the conversation as JSON, and nothing else of its record."""
    return json.dumps(
        [[one.id, one.date, [list(turn) for turn in one.turns]] for one in sessions],
        ensure_ascii=False,
        separators=(",", ":"),
    )


@lru_cache(_KEPT)
def from_context(context: str) -> Conversation:
    """The conversation that a context stands for. Raises ValueError where it stands for none."""
    try:
        return tuple(
            Session(str(name), str(date), tuple(Turn(*map(str, turn)) for turn in turns))
            for name, date, turns in json.loads(context)
        )
    except (TypeError, ValueError):
        raise ValueError(
            "context: is no conversation; it is the JSON of a list of sessions "
            "[id, date, [[turn id, speaker, text], ...]]"
        ) from None


def check_sessions(sessions: Sequence[Session]) -> Conversation:
    """The conversation that has turns. Raises ValueError where there are none, or two have one
    id."""
    found = tuple(one for one in sessions if one.turns)
    if not found:
        raise ValueError("the conversation has no sessions with turns")
    seen: set[str] = set()
    for one in found:
        for turn in one.turns:
            if turn.id in seen:
                raise ValueError(f"the conversation has two turns with the id {turn.id!r}")
            seen.add(turn.id)
    return found


def read_turn(raw: Any, id_: str, speaker_field: str, text_field: str) -> Turn:
    """A published turn. Raises ValueError where speaker or text are no text."""
    if not isinstance(raw, dict):
        raise ValueError(f"turn {id_} is no object")
    speaker, text = raw.get(speaker_field), raw.get(text_field)
    if not isinstance(speaker, str) or not isinstance(text, str):
        which = speaker_field if not isinstance(speaker, str) else text_field
        raise ValueError(f"turn {id_}: {which} is no text")
    return Turn(id_, speaker, text)
