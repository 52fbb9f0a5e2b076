"""LongMemEval's files (oracle, S, M): a list of questions, each with its own haystack of
sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from memray_eval.benchmarks.conversations.conversation import (
    Conversation,
    Fault,
    Session,
    as_text,
    check_sessions,
    find_json,
    find_lacking,
    names_in,
    read_turn,
    require,
    to_context,
)
from memray_eval.ports import PublishedFile, PublishedFiles, PublishedQuestion

TASKS = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
)
ABSTENTION = "_abs"  # in the id of a question that cannot be answered
_PREFIX = "longmemeval_"
_HAYSTACK = ("haystack_sessions", "haystack_session_ids", "haystack_dates")


def find(path: str) -> list[PublishedFile] | None:
    """As `find_json`, and the files that the hub has without an ending, such as longmemeval_s."""
    folder, slash, name = path.rstrip("/").rpartition("/")
    if name.startswith(_PREFIX) and "." not in name and not names_in(path):
        return [PublishedFile(f"{folder}{slash}{name}", "json")]
    bare = [file for file in names_in(path) if file.startswith(_PREFIX) and "." not in file]
    if bare:
        return [PublishedFile(f"{path.rstrip('/')}/{file}", "json") for file in bare]
    return find_json(path)


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The question of one record; of a sample in our own format, that one."""
    if isinstance(raw, Mapping) and "query" in raw:
        yield PublishedQuestion("", raw)
        return
    require(raw, "question of LongMemEval's", ("question_id", "question_type", "question"))
    name = str(raw["question_id"])
    faults = find_lacking(raw, ("answer", "question_date", "answer_session_ids", *_HAYSTACK))
    if raw["question_type"] not in TASKS:
        types = ", ".join(TASKS)
        faults.append(("question_type", f"no type {raw['question_type']!r}; there are: {types}"))
    answer, asked_on = as_text(raw.get("answer")), raw.get("question_date")
    if answer is None and "answer" not in dict(faults):
        faults.append(("answer", f"must be a text or a number, not {raw['answer']!r:.60}"))
    context, evidence = None, list[list[str]]()
    if not faults:
        try:
            sessions, marked = read_haystack(raw)
            context = to_context(sessions)
            evidence = _read_evidence(raw["answer_session_ids"], sessions, marked, faults)
        except ValueError as error:
            faults.append(("haystack_sessions", str(error)))
    metadata: dict[str, Any] = {
        "conversation": name.replace(ABSTENTION, ""),
        "evidence": evidence,
        "unanswerable": ABSTENTION in name,
        "question_date": str(asked_on),
    }
    if "retrieved" in raw:
        metadata["retrieved"] = raw["retrieved"]
    fields = {
        "id": name,
        "task": raw["question_type"],
        "query": raw["question"],
        "context": context,
        "answers": [] if answer is None else [answer],
        "metadata": metadata,
    }
    yield PublishedQuestion(f"question {name}", fields, tuple(faults))


def read_haystack(raw: Mapping[str, Any]) -> tuple[Conversation, set[str]]:
    """The sessions, oldest first as the file has them, and the ids of the turns that are marked as
    evidence. A turn is called SESSION:NUMBER. Raises ValueError for lists that do not fit each
    other, and for what is no session."""
    sessions, ids, dates = (raw[name] for name in _HAYSTACK)
    if not all(isinstance(listed, list) for listed in (sessions, ids, dates)):
        raise ValueError("haystack_sessions, haystack_session_ids, haystack_dates must be lists")
    if not len(sessions) == len(ids) == len(dates):
        raise ValueError(
            f"{len(sessions)} sessions, {len(ids)} ids and {len(dates)} dates do not fit each other"
        )
    haystack, marked, times = [], set[str](), Counter[str]()
    for turns, id_, date in zip(sessions, ids, dates, strict=True):
        times[str(id_)] += 1
        name = str(id_) if times[str(id_)] == 1 else f"{id_}#{times[str(id_)]}"
        if not isinstance(turns, list):
            raise ValueError(f"session {name}: must be a list of turns")
        read = tuple(
            read_turn(turn, f"{name}:{number}", "role", "content")
            for number, turn in enumerate(turns)
        )
        marked |= {
            f"{name}:{number}" for number, turn in enumerate(turns) if turn.get("has_answer")
        }
        haystack.append(Session(name, str(date), read))
    return check_sessions(haystack), marked


def _read_evidence(
    ids: Any, sessions: Conversation, marked: set[str], faults: list[Fault]
) -> list[list[str]]:
    """The marked turns of the sessions that hold the answer; such a session as a whole where none
    of its turns is marked."""
    turns = {part.id: [turn.id for turn in part.turns if turn.id in marked] for part in sessions}
    if not isinstance(ids, list):
        faults.append(("answer_session_ids", "must be a list of ids"))
        return []
    if nowhere := [name for name in map(str, ids) if name not in turns]:
        faults.append(("answer_session_ids", f"{nowhere[0]!r} is no session of the haystack"))
    return [[turn, name] for name in map(str, ids) if name in turns for turn in turns[name] or [""]]


FILES = PublishedFiles(find=find, questions=questions)
