"""Sample, one question with all that metrics need to judge its answer, and the chat before it.
Pair, two answers to one question, as a sample's metadata carries them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from memray_eval.types.base import Frozen, Name, Share

BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")

EMOTION_SUM_TOLERANCE = 1e-3

EXPECTS = "expects"  # the key of what code can tell of an answer: text_processing/expectations.py
# The keys of what a judge checks of an answer, by points, and of the tags of the sample as a whole:
# text_processing/criteria.py
CRITERIA, EXAMPLE_TAGS = "criteria", "example_tags"
# The keys of a row's own system prompt, of the choices of its question, and of what it holds beside
# its text that no model is shown
SYSTEM, CHOICES, NOT_SHOWN = "system", "choices", "not_shown"
MEMORY, WRITES, ASKED_BY = "memory", "writes", "asked_by"  # keys of stores/memories.py
PAIR, PAIRS = "pair", "pairs"  # the key of two answers to one question, the suite of a run of them

# The keys of a turn's metadata: its session, its number from 1 on, the most turns that were
# planned, which model wrote the user's message and what that took, and why it is the last.
SESSION, TURN, TURNS = "session", "turn", "turns"
USER_MODEL, USER_COST, SESSION_END = "user_model", "user_cost", "session_end"
BY_TURN = "by_turn"  # the key of a session's metadata that holds those of each turn
MAX_TURNS = 100

# Metadata keys that group samples; the first that a run has is used.
CLUSTER_KEYS = (
    SESSION,
    "user",
    "user_id",
    "context",
    "context_id",
    "document",
    "document_id",
    "conversation",
    "case",
)

Scalar = StrictStr | StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]

MemoryValue = Scalar | tuple[Scalar, ...]


class Turn(Frozen):
    """One turn of an earlier conversation."""

    role: Literal["user", "assistant"]
    content: StrictStr


class Message(Frozen):
    """One chat message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class SimulatedUser(Frozen):
    """A user whom a model plays: who it is, what it wants, its first message, and when it is done;
    after `max_turns` messages at the latest."""

    persona: Name
    goal: Name
    opening: Name
    stop_when: StrictStr = ""
    max_turns: Annotated[StrictInt, Field(ge=1, le=MAX_TURNS)] = 10


class Sample(Frozen):
    """One question to the model under test, with all that a metric may need to judge its answer. Of
    `memory`, facts about the user, `required_keys` must be used, `forbidden_keys` must not,
    `neutral_keys` may. `traits` are Big Five scores in 0-1; `emotion` sums to 1. A session has
    `turns`, the user's messages in order, or a `user`; its `query` is the first of them. Only what
    is answered already, and has right `answers`, may have an empty query."""

    id: Name
    suite: str = ""
    task: StrictStr = ""
    query: Annotated[StrictStr, Field(min_length=0)]  # with a constraint, UTF-8 must hold it
    memory: dict[Name, MemoryValue] = Field(default_factory=dict)
    required_keys: tuple[Name, ...] = ()
    forbidden_keys: tuple[Name, ...] = ()
    neutral_keys: tuple[Name, ...] = ()
    history: tuple[Turn, ...] = ()
    traits: dict[Name, Share] = Field(default_factory=dict)
    emotion: dict[Name, Share] = Field(default_factory=dict)
    context: StrictStr | None = None
    answers: tuple[StrictStr, ...] = ()
    classes: tuple[StrictStr, ...] = ()
    language: StrictStr = "en"
    scenario: StrictStr = ""
    prompt_type: StrictStr = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    turns: tuple[StrictStr, ...] = ()
    user: SimulatedUser | None = None

    @property
    def is_session(self) -> bool:
        return bool(self.turns) or self.user is not None

    @property
    def n_turns(self) -> int:
        """The most turns of a session; 1 if it is not a session."""
        return len(self.turns) or (self.user.max_turns if self.user is not None else 1)

    @model_validator(mode="before")
    @classmethod
    def _begin_session(cls, values: Any) -> Any:
        """Fills the query of a session in."""
        if not isinstance(values, dict) or values.get("query"):
            return values
        user, turns = values.get("user"), values.get("turns")
        opening = getattr(user, "opening", None) or (isinstance(user, dict) and user.get("opening"))
        first = turns[0] if isinstance(turns, list | tuple) and turns else opening
        return {**values, "query": first} if isinstance(first, str) and first else values

    @model_validator(mode="after")
    def _keys_agree(self) -> Sample:
        if conflicts := key_conflicts(self):
            text = "; ".join(f"{field}: {what}" for field, what in conflicts.items())
            raise PydanticCustomError("conflict", "{text}", {"text": text, "fields": conflicts})
        return self


def key_conflicts(sample: Sample) -> dict[str, str]:
    """Finds contradictions between a sample's own fields: field name -> what is wrong."""
    conflicts: dict[str, str] = {}
    if not (sample.query or sample.answers):
        conflicts["query"] = "missing"
    required, forbidden = set(sample.required_keys), set(sample.forbidden_keys)
    for field, keys, distinct in (
        ("required_keys", sample.required_keys, required),
        ("forbidden_keys", sample.forbidden_keys, forbidden),
    ):
        if len(keys) != len(distinct):
            conflicts[field] = (
                f"lists a key twice: {sorted({key for key in keys if keys.count(key) > 1})}"
            )
    if both := sorted(required & forbidden):
        conflicts["forbidden_keys"] = f"both required and forbidden: {both}; keep each in one list"
    if both := sorted((required | forbidden).intersection(sample.neutral_keys)):
        conflicts["neutral_keys"] = (
            f"neutral and also required or forbidden: {both}; keep each in one list"
        )
    if absent := sorted(key for key in required if key not in sample.memory):
        conflicts["required_keys"] = (
            f"required but absent from memory: {absent}; add them to memory or drop them here"
        )
    if unknown := sorted(set(sample.traits) - set(BIG_FIVE)):
        conflicts["traits"] = f"not Big Five traits: {unknown}; there are: {', '.join(BIG_FIVE)}"
    total = math.fsum(sample.emotion.values())
    if sample.emotion and abs(total - 1.0) > EMOTION_SUM_TOLERANCE:
        conflicts["emotion"] = f"probabilities sum to {total:.4f}, not 1"
    return conflicts | (_session_conflicts(sample) if sample.is_session else {})


def _session_conflicts(sample: Sample) -> dict[str, str]:
    conflicts: dict[str, str] = {}
    by_turn, opening = sample.metadata.get(BY_TURN, []), sample.query
    if sample.user is not None:
        opening = sample.user.opening
        if sample.turns:
            conflicts["user"] = "a session has turns or a simulated user; keep one of them"
    elif empty := [number for number, turn in enumerate(sample.turns, 1) if not turn.strip()]:
        conflicts["turns"] = f"turn {empty[0]} is empty; write what the user says, or drop it"
    elif len(sample.turns) > MAX_TURNS:
        conflicts["turns"] = f"{len(sample.turns)} turns; a session has at most {MAX_TURNS}"
    else:
        opening = sample.turns[0]
    if sample.query != opening and not conflicts:
        conflicts["query"] = "differs from the session's first message; leave it out"
    if not isinstance(by_turn, list) or not all(isinstance(entry, dict) for entry in by_turn):
        conflicts["metadata"] = f"{BY_TURN} must be a list of objects, one for each turn"
    elif len(by_turn) > sample.n_turns:
        conflicts["metadata"] = f"{BY_TURN} has {len(by_turn)} entries for {sample.n_turns} turns"
    return conflicts


def turn_sample(
    sample: Sample, number: int, message: str, before: Iterable[Turn], **noted: Any
) -> Sample:
    """The sample of a session's n-th turn (from 1): the user's `message` after the session's
    history and the turns `before`. A sample that is not a session stays as it is."""
    if not sample.is_session:
        return sample
    by_turn = sample.metadata.get(BY_TURN, ())
    own = {key: value for key, value in sample.metadata.items() if key != BY_TURN}
    of_turn = by_turn[number - 1] if number <= len(by_turn) else {}
    position = {SESSION: sample.id, TURN: number, TURNS: sample.n_turns}
    return sample.model_copy(
        update={
            "id": turn_ids(sample)[number - 1],
            "query": message,
            "history": (*sample.history, *before),
            "metadata": {**own, **of_turn, **position, **noted},
            "turns": (),
            "user": None,
        }
    )


def turn_ids(sample: Sample) -> list[str]:
    """The ids of a session's turns as samples; the sample's own if it is not a session."""
    if not sample.is_session:
        return [sample.id]
    return [f"{sample.id}#{number}" for number in range(1, sample.n_turns + 1)]


def session_of(sample: Sample) -> str:
    """The id of the session that a sample is a turn of; its own id if it is not a turn."""
    session, number = (sample.metadata.get(key) for key in (SESSION, TURN))
    return str(session) if sample.id == f"{session}#{number}" else sample.id


def id_text(value: Any) -> Any:
    """An id as text if it is a number; 7.0, as a table with gaps makes of 7, is 7."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class SessionTurn(NamedTuple):
    """The turn of a session that a sample asks, from 1, of `turns`, and if it is the last."""

    session: str
    turn: int
    turns: int | None
    is_last: bool


def session_turn(metadata: Mapping[str, Any]) -> SessionTurn | None:
    """The turn that metadata names, its numbers also as tables write them; None of a single
    question, or a `turn` below 1 or not whole."""
    turn, turns = (_whole(metadata.get(key)) for key in (TURN, TURNS))
    session = id_text(metadata.get(SESSION))
    if not isinstance(session, str) or turn is None or turn < 1:
        return None
    is_last = turn == turns or bool(metadata.get(SESSION_END))
    return SessionTurn(session, turn, turns, is_last)


def _whole(value: Any) -> int | None:
    """A whole number, or one as a CSV or pandas has it (3.0); None for anything else."""
    with suppress(ValueError, OverflowError):
        if type(value) in (int, float, str) and (number := float(value)).is_integer():
            return int(number)
    return None


class Unanswered(Frozen):
    """A candidate that gave no answer to the question of a pair, and why; `excluded` is an empty
    one under `on_no_answer: exclude`."""

    candidate: str
    kind: Literal["empty", "excluded", "error"]
    why: str = ""


class Pair(Frozen):
    """Two answers to one question, in the order in which a judge is shown them: the record's
    response is that of `first`, `other` that of `second`. `sample_id` and `task` are those of the
    question in the runs that answered. A pair with an `unanswered` side is not judged."""

    sample_id: Name
    task: str = ""
    first: Name
    second: Name
    other: str
    unanswered: tuple[Unanswered, ...] = ()


def pair_of(sample: Sample) -> Pair | None:
    """The pair that a sample carries, or None. Raises ValueError for one that lacks something."""
    pair = sample.metadata.get(PAIR)
    return None if pair is None else Pair.model_validate(pair)


DEFAULTS: dict[str, Any] = {
    name: "" if field.is_required() else field.get_default(call_default_factory=True)
    for name, field in Sample.model_fields.items()
}
# Its fields by what a column of them holds: a text, JSON, or a list of texts, of memory keys first
SAMPLE_TEXT = ("suite", "task", "query", "language", "scenario", "prompt_type")
SAMPLE_JSON = ("memory", "history", "traits", "emotion", "metadata")
SAMPLE_KEYS = ("required_keys", "forbidden_keys", "neutral_keys")
SAMPLE_LISTS = (*SAMPLE_KEYS, "answers", "classes")
_TEXTS, _LISTS = frozenset(("id", "context", *SAMPLE_TEXT)), frozenset(SAMPLE_LISTS)
_TEXT_OBJECTS = frozenset(("memory", "metadata"))
_EMPTY = {
    **dict.fromkeys(SAMPLE_JSON, dict),
    **dict.fromkeys((*SAMPLE_LISTS, "turns", "history"), list),
}
_ROLES = ("user", "assistant")
_TURN = {"role", "content"}
_STR = {str}
_SCALARS = {str, int, bool}
MANY = 100  # entries of a memory up to which pydantic is faster


def plain_sample(fields: Mapping[str, Any]) -> Sample | None:
    """The sample, if its fields are texts, lists of texts and a large memory of scalars that
    contradict nothing; None if pydantic has to look at them."""
    values = DEFAULTS.copy()
    values["memory"], values["traits"], values["emotion"], values["metadata"] = {}, {}, {}, {}
    for name, value in fields.items():
        kind = type(value)
        if kind is str and name in _TEXTS:
            values[name] = value
        elif (
            kind is list
            and name in _LISTS
            and _STR.issuperset(map(type, value))
            and (name not in SAMPLE_KEYS or _are_names(value))
        ):
            values[name] = tuple(value)
        elif (
            kind is dict
            and name in _TEXT_OBJECTS
            and _STR.issuperset(map(type, value))
            and (name == "metadata" or _is_plain_memory(value))
        ):
            values[name] = value.copy()
        elif kind is list and name == "history" and all(map(is_plain_turn, value)):
            values[name] = tuple(
                [Turn.trusted({"role": t["role"], "content": t["content"]}, _TURN) for t in value]
            )
        elif value or _EMPTY.get(name) is not kind:
            return None
    if not (_is_name(values["id"]) and _is_name(values["query"])):
        return None
    sample = Sample.trusted(values, set(fields))
    has_keys = sample.required_keys or sample.forbidden_keys
    return None if has_keys and key_conflicts(sample) else sample


def _is_plain_memory(memory: Mapping[str, Any]) -> bool:
    is_plain = len(memory) > MANY and _SCALARS.issuperset(map(type, memory.values()))
    return is_plain and _are_names(memory)


def _are_names(texts: Collection[str]) -> bool:
    return "" not in texts and _is_name("".join(texts))


def is_plain_turn(turn: Any) -> bool:
    """True if it is an object of a role and a text, and no more."""
    return (
        type(turn) is dict
        and len(turn) == 2
        and type(turn.get("content")) is str
        and turn.get("role") in _ROLES
    )


def _is_name(text: str) -> bool:
    """True if it is a text that is not empty and that UTF-8 can hold."""
    if text.isascii():
        return text != ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
