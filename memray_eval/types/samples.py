"""Sample, one question with all that metrics need to judge its answer, and the chat before it.
Pair, two answers to one question, as a sample's metadata carries them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from memray_eval.types.base import Frozen, Name, Share

BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")

EMOTION_SUM_TOLERANCE = 1e-3

EXPECTS = "expects"  # the key of what code can tell of an answer: text_processing/expectations.py
PAIR = "pair"  # the key of a sample's metadata that holds two answers to one question
PAIRS = "pairs"  # the suite of a run over pairs

# Metadata keys that group samples; the first that a run has is used.
CLUSTER_KEYS = (
    "user",
    "user_id",
    "context",
    "context_id",
    "document",
    "document_id",
    "conversation",
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


class Sample(Frozen):
    """One question to the model under test, with all that a metric may need to judge its answer.
    `memory` maps a key to a fact about the user: `required_keys` must be used, `forbidden_keys`
    must not, `neutral_keys` may. `traits` are Big Five scores in 0-1;
    `emotion` is a distribution summing to 1."""

    id: Name
    suite: str = ""
    task: StrictStr = ""
    query: Name
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

    @model_validator(mode="after")
    def _keys_agree(self) -> Sample:
        if conflicts := key_conflicts(self):
            text = "; ".join(f"{field}: {what}" for field, what in conflicts.items())
            raise PydanticCustomError("conflict", "{text}", {"text": text, "fields": conflicts})
        return self


def key_conflicts(sample: Sample) -> dict[str, str]:
    """Finds contradictions between a sample's own fields: field name -> what is wrong."""
    conflicts: dict[str, str] = {}
    required, forbidden, neutral = (
        set(sample.required_keys),
        set(sample.forbidden_keys),
        set(sample.neutral_keys),
    )
    for field, keys in (
        ("required_keys", sample.required_keys),
        ("forbidden_keys", sample.forbidden_keys),
    ):
        if len(keys) != len(set(keys)):
            conflicts[field] = (
                f"lists a key twice: {sorted({key for key in keys if keys.count(key) > 1})}"
            )
    if both := sorted(required & forbidden):
        conflicts["forbidden_keys"] = f"both required and forbidden: {both}; keep each in one list"
    if both := sorted(neutral & (required | forbidden)):
        conflicts["neutral_keys"] = (
            f"neutral and also required or forbidden: {both}; keep each in one list"
        )
    if absent := sorted(required - set(sample.memory)):
        conflicts["required_keys"] = (
            f"required but absent from memory: {absent}; add them to memory or drop them here"
        )
    if unknown := sorted(set(sample.traits) - set(BIG_FIVE)):
        conflicts["traits"] = f"not Big Five traits: {unknown}; there are: {', '.join(BIG_FIVE)}"
    total = math.fsum(sample.emotion.values())
    if sample.emotion and abs(total - 1.0) > EMOTION_SUM_TOLERANCE:
        conflicts["emotion"] = f"probabilities sum to {total:.4f}, not 1"
    return conflicts


class Unanswered(Frozen):
    """A candidate that gave no answer to the question of a pair, and why."""

    candidate: str
    kind: Literal["empty", "error"]
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
    """The pair that a sample carries, None where it carries none. Raises ValueError for one that
    lacks something."""
    pair = sample.metadata.get(PAIR)
    return None if pair is None else Pair.model_validate(pair)
