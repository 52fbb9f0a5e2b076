"""What the sessions of a run came to: their turns, how they ended, and how much of their prompts
the engine had already."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from memray_eval.types import (
    SESSION,
    SESSION_END,
    TURN,
    TURNS,
    USER_COST,
    USER_MODEL,
    SessionSummary,
)

COLUMNS = ["unit_id", "candidate", "metadata", "error", "prompt_tokens", "cached_tokens", "epoch"]


@dataclass
class _Tally:
    """The sums of one candidate."""

    sessions: set[tuple[str, int]] = field(default_factory=set)
    turns: int = 0
    unasked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    user: Counter[str] = field(default_factory=Counter)
    cost_usd: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int | None = None

    def add(self, row: dict[str, Any], notes: dict[str, Any]) -> None:
        self.sessions.add((str(notes[SESSION]), row["epoch"]))
        self.turns += 1
        if end := notes.get(SESSION_END):
            self.unasked += notes[TURNS] - notes[TURN]
            self.ends[end if row["error"] is None else "failed"] += 1
        if cost := notes.get(USER_COST):
            self.models[str(notes.get(USER_MODEL))] += 1
            self.user.update({name: cost[name] for name in cost if name != "cost_usd"})
            self.cost_usd += cost["cost_usd"]
        if notes[TURN] > 1 and row["cached_tokens"] is not None and row["prompt_tokens"]:
            self.prompt_tokens += row["prompt_tokens"]
            self.cached_tokens = (self.cached_tokens or 0) + row["cached_tokens"]

    def summary(self, candidate: str) -> SessionSummary:
        return SessionSummary(
            candidate=candidate,
            n_sessions=len(self.sessions),
            n_turns=self.turns,
            n_unasked=self.unasked,
            ends=dict(sorted(self.ends.items())),
            later_prompt_tokens=self.prompt_tokens,
            later_cached_tokens=self.cached_tokens,
            user_models=tuple(sorted(self.models)),
            user_calls=self.user["calls"],
            user_input_tokens=self.user["input_tokens"],
            user_output_tokens=self.user["output_tokens"],
            user_cost_usd=self.cost_usd,
            user_unpriced_calls=self.user["unpriced_calls"],
        )


def summarise_sessions(tables: Iterable[pa.Table]) -> tuple[SessionSummary, ...]:
    """The sessions of each candidate, by rows with COLUMNS. A unit that comes twice counts once."""
    tallies, seen = defaultdict[str, _Tally](_Tally), set[str]()
    for table in tables:
        for row, notes in _turns(table):
            if row["unit_id"] not in seen:
                seen.add(row["unit_id"])
                tallies[row["candidate"]].add(row, notes)
    return tuple(tallies[name].summary(name) for name in sorted(tallies))


def _turns(table: pa.Table) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows that are turns of sessions, with their metadata."""
    for row in table.select(COLUMNS).to_pylist():
        notes = json.loads(row["metadata"] or "{}")
        if SESSION in notes and all(isinstance(notes.get(key), int) for key in (TURN, TURNS)):
            yield row, notes
