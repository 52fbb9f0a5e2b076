"""The part of a conversation that a candidate is shown, and the prompt that shows it: `full`, all
of it; `oracle`, the sessions that hold the evidence; `none`; `retrieved`, what a retriever of ours
finds, or what the row says that a memory system returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memray_eval.benchmarks.conversations.conversation import (
    Session,
    SpokenTurn,
    from_context,
    retrieve,
)
from memray_eval.types import Candidate, Frozen, Message, Passage, Prompt, Retrieval, Sample

EVIDENCE = "evidence"  # of a sample's metadata: pairs of a turn and its session; "" for no turn
RETRIEVED = "retrieved"
NOTHING = "(No earlier conversation is shown.)"


class Shown(NamedTuple):
    """Sessions to show, in the order of time, and what was retrieved, best first, if the arm does
    so: ids of turns or sessions, "" for a text without one."""

    sessions: Sequence[Session]
    retrieved: list[str] | None = None


def choose(sample: Sample, candidate: Candidate) -> Shown:
    """The part that the candidate's arm shows. Raises ValueError if the sample lacks it."""
    arm = candidate.context or ("retrieved" if candidate.memory is not None else "full")
    if arm == "none":
        return Shown(())
    if arm == "retrieved" and (own := sample.metadata.get(RETRIEVED)) is not None:
        return _show_own(sample, own)
    if candidate.memory is not None:  # its tools show it, if anything
        return Shown((), [])
    if sample.context is None:
        raise ValueError(f"the sample has no context, which context: {arm} shows")
    sessions = from_context(sample.context)
    if arm == "full":
        return Shown(sessions)
    if arm == "oracle":
        wanted = {session for _, session in evidence_of(sample)}
        return Shown([part for part in sessions if part.id in wanted])
    how = candidate.retrieved or Retrieval()
    units = retrieve(sample.context, sample.query, how)
    ids = [part.turns[0].id if how.unit == "turn" else part.id for part in units]
    kept = {turn.id for part in units for turn in part.turns}
    turns = [tuple(turn for turn in part.turns if turn.id in kept) for part in sessions]
    parts = zip(sessions, turns, strict=True)
    return Shown([part._replace(turns=shown) for part, shown in parts if shown], ids)


def evidence_of(sample: Sample) -> list[tuple[str, str]]:
    """The evidence of a sample: (turn, session) pairs; the turn of a whole session is ""."""
    pairs = sample.metadata.get(EVIDENCE) or []
    return [(str(turn), str(session)) for turn, session in pairs]


def retrieved_ids(retrieved: Any) -> list[str]:
    """The ids in what a memory system returned, best first, "" for none. Raises ValueError."""
    if not isinstance(retrieved, list | tuple):
        raise ValueError("retrieved: must be a list of ids, or of objects with text and id")
    ids = []
    for item in retrieved:
        if isinstance(item, str):
            ids.append("" if any(map(str.isspace, item)) else item)
        elif isinstance(item, Mapping):
            ids.append(str(item.get("id") or item.get("session") or ""))
        else:
            raise ValueError(f"retrieved: {item!r:.60} is neither an id nor an object with text")
    return ids


def _show_own(sample: Sample, retrieved: Any) -> Shown:
    """Shows what the row says was retrieved: texts, or the turns and sessions of its ids."""
    ids = retrieved_ids(retrieved)
    sessions = from_context(sample.context) if sample.context is not None else ()
    by_id: dict[str, Session] = {part.id: part for part in sessions}
    by_id |= {turn.id: part._replace(turns=(turn,)) for part in sessions for turn in part.turns}
    shown = []
    for number, (id_, item) in enumerate(zip(ids, retrieved, strict=True), 1):
        about = item if isinstance(item, Mapping) else {} if id_ else {"text": item}
        name = id_ or f"memory {number}"
        if about.get("text") is not None:
            turn = SpokenTurn(name, "", str(about["text"]))
            session = str(about.get("session", "")) or name
            shown.append(Session(session, str(about.get("date", "")), (turn,)))
        elif id_ in by_id:
            shown.append(by_id[id_])
        else:
            raise ValueError(f"retrieved: item {number} has no text, and no turn is called {id_!r}")
    return Shown(shown, ids)


class ConversationPrompt(Frozen):
    """The `prompt` of a benchmark in our words: one message of what all questions share (`before`),
    the conversation, and what differs (`after`, with {question}), for a common prefix. Too long a
    conversation loses whole sessions, or turns, out of its middle."""

    before: str
    after: str
    max_tokens: int

    def __call__(self, sample: Sample, candidate: Candidate) -> Prompt:
        return self.ask(sample, candidate, sample.query)

    def ask(self, sample: Sample, candidate: Candidate, question: str) -> Prompt:
        """The prompt with this question in the place of the sample's query."""
        shown, wanted = choose(sample, candidate), evidence_of(sample)
        text, passages = f"{self.before}\n\n", list[Passage]()
        for session in shown.sessions:
            head = f"[{session.date}]\n" if session.date else ""
            for number, turn in enumerate(session.turns, 1):
                line = f"{turn.speaker}: {turn.text}\n" if turn.speaker else f"{turn.text}\n"
                line = head + line + ("\n" if number == len(session.turns) else "")
                head = ""
                holds = tuple(
                    piece
                    for piece, (turn_id, session_id) in enumerate(wanted)
                    if (turn_id == turn.id if turn_id else session_id == session.id)
                )
                passages.append(Passage(len(text), len(text) + len(line), session.id, holds))
                text += line
        if not passages:
            text += f"{NOTHING}\n\n"
        about: dict[str, Any] = {"evidence_shown": []}
        if shown.retrieved is not None:
            about[RETRIEVED] = shown.retrieved
        content = text + self.after.replace("{question}", question)
        return Prompt(
            messages=(Message(role="user", content=content),),
            max_tokens=self.max_tokens,
            is_cut=True,
            passages=tuple(passages),
            about=about,
        )
