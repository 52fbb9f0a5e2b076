"""What a store returned, by its content: which pieces of the evidence it holds, and how much of the
right answer. Words are compared by their stems, without stopwords; numbers as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from memray_eval.benchmarks.conversations.arms import evidence_of
from memray_eval.benchmarks.conversations.conversation import Conversation
from memray_eval.benchmarks.conversations.retrieval import word_stems
from memray_eval.stores.port import Entry
from memray_eval.types import Sample

HOLDS = 0.5  # of the words of a piece of evidence, in one entry: that entry tells it


def words_of(text: str) -> set[str]:
    """The stems of a text's words, without stopwords; May is a month."""
    return {*word_stems(text), *(["may"] if "May" in text else [])}


def find_pieces(sample: Sample, sessions: Conversation, entries: Sequence[Entry]) -> list[int]:
    """The pieces of the sample's evidence, by their numbers, that an entry tells: one with the id
    of the turn, or with HOLDS of its words. A piece that is a whole session is told by any entry of
    that session."""
    return [
        number
        for number, piece in enumerate(evidence_texts(sample, sessions))
        if tells_piece(*piece, entries)
    ]


def evidence_texts(sample: Sample, sessions: Conversation) -> list[tuple[str, str, str]]:
    """The pieces of the sample's evidence: turn ("": a whole session), session, and text."""
    texts = {turn.id: turn.text for session in sessions for turn in session.turns}
    texts |= {session.id: " ".join(turn.text for turn in session.turns) for session in sessions}
    return [(turn, part, texts.get(turn or part, "")) for turn, part in evidence_of(sample)]


def tells_piece(turn: str, session: str, text: str, entries: Sequence[Entry]) -> bool:
    """Whether an entry tells a piece of evidence."""
    wanted = words_of(text)
    return any(
        (entry.id == turn if turn else entry.session == session)
        or (wanted and len(wanted & words_of(entry.text)) / len(wanted) >= HOLDS)
        for entry in entries
    )


def completeness(sample: Sample, entries: Sequence[Entry]) -> float | None:
    """The share of the right answer's words that stand somewhere in the entries or their dates, of
    the answer that has most; None of a question that has no answer in the conversation."""
    if sample.metadata.get("unanswerable") is True:
        return None
    words = words_of("\n".join(f"{entry.date} {entry.text}" for entry in entries))
    wanted = [stems for answer in sample.answers if (stems := words_of(answer))]
    return max((len(answer & words) / len(answer) for answer in wanted), default=None)
