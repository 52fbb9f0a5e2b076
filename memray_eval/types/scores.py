"""Score, the outcome of one metric on a response; Record, a unit with all its outcomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from memray_eval.types.base import Frozen
from memray_eval.types.responses import DEFAULT_MAX_TOKENS, Candidate, Response, Usage
from memray_eval.types.samples import Sample, turn_ids

RULES = "rules"  # the judge if no model judges; its embedding model follows after a "+"

# Who scored in the place of a judge that failed (judging.on_judge_failure), in words.
FALLBACKS: Mapping[str, str] = {
    "string_match": "by string match",
    "zero": "set to zero",
    "default": "set to the default",
}

_BETWEEN_JURORS = " + "  # in a score's `judge`, which is stored

# the judge of an empty response: no model is asked
RULES_ON_EMPTY = f"{RULES} (empty response)"
# the judge of a response without an answer, under `on_no_answer: zero`
RULES_ON_NO_ANSWER = f"{RULES} (no answer)"
WITHOUT_CALL = frozenset({RULES_ON_EMPTY, RULES_ON_NO_ANSWER})

Status = Literal["scored", "abstained", "not_applicable", "error", "no_answer"]


def join_jurors(names: Iterable[str]) -> str:
    """The stored form of the names of a jury's judges, or of their models."""
    return _BETWEEN_JURORS.join(names)


def split_jurors(judge: str) -> list[str]:
    """The names that `join_jurors` put together."""
    return judge.split(_BETWEEN_JURORS)


def is_estimate(judge: str) -> bool:
    """True if a score's judge is rules: an estimate, no verdict."""
    return judge == RULES or judge.startswith((f"{RULES}+", "questions/"))  # in older records


class Score(Frozen):
    """The outcome of one metric on one record. `value` is None unless `status` is `scored`: a
    failure is never a zero. `parts` are the counts that aggregates sum (tp, fp, claims, ...);
    `judgment` is the whole verdict as JSON; `judge` names who gave it, `served_model` the model by
    its server's name. `calls` counts paid judge calls: jurors, repeats and retries; None in older
    records. `saved_usd` is what the provider's prompt cache took off `cost_usd`; a `cached` verdict
    cost nothing."""

    metric: str
    status: Status
    value: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    judgment: str | None = None
    judge: str = ""
    served_model: str | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False
    calls: int | None = None
    error: str | None = None

    @property
    def is_estimate(self) -> bool:
        """True if its value is an offline estimate."""
        return self.status == "scored" and is_estimate(self.judge)

    @model_validator(mode="after")
    def _value_if_scored(self) -> Score:
        if (self.value is not None) != (self.status == "scored"):
            raise ValueError(
                f"a score with status {self.status!r} cannot have value {self.value!r}"
            )
        return self


class ComputedScore(NamedTuple):
    """A score that code computed, with all that is not as in every other of its kind: cheap metrics
    make hundreds of thousands a second. `value` is finite, and `parts` are floats by name."""

    metric: str
    value: float
    judge: str
    parts: Mapping[str, float] = MappingProxyType({})

    def to_score(self) -> Score:
        return Score(
            metric=self.metric,
            status="scored",
            value=self.value,
            parts=dict(self.parts),
            judge=self.judge,
        )


class Record(Frozen):
    """One unit of a run: a sample (without its context after generation) asked of a candidate for
    the `epoch`-th time, and what came of it."""

    unit_id: str
    sample: Sample
    candidate: Candidate
    response: Response | None = None
    scores: tuple[Score, ...] = ()
    epoch: Annotated[int, Field(ge=1)] = 1

    def with_scores(self, scores: Iterable[Score]) -> Record:
        """The record with these scores behind its own."""
        return self.model_copy(update={"scores": (*self.scores, *scores)})

    @property
    def is_failed(self) -> bool:
        """True if its generation or any of its metrics ended in an error."""
        broken = self.response is not None and self.response.error is not None
        return broken or any(score.status == "error" for score in self.scores)


def unit_id(sample_id: str, candidate: Candidate, suite: str, epoch: int = 1) -> str:
    """A key of (sample, candidate, suite, epoch): 16 hex digits, the same in every process."""
    again = f", {epoch}" if epoch > 1 else ""  # units of one epoch have the ids of older runs
    sample = json.dumps(sample_id, ensure_ascii=False)
    identity = f"[{sample}, {_identity_of(candidate, suite)}{again}]"
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


def unit_ids(sample: Sample, candidate: Candidate, epoch: int = 1) -> list[str]:
    """The units of a sample, a candidate and an epoch: one, or one for each turn of a session."""
    return [unit_id(name, candidate, sample.suite, epoch) for name in turn_ids(sample)]


@lru_cache(256)
def _identity_of(candidate: Candidate, suite: str) -> str:
    """The part of an identity that units of a candidate and a suite share, as JSON."""
    request = candidate.model_dump(mode="json")
    if candidate.sampling.max_tokens == "auto":
        request["sampling"]["max_tokens"] = DEFAULT_MAX_TOKENS
    del request["stream"]  # how the answer comes does not change what is asked
    if not request["extra"]:
        del request["extra"]
    # fields that units of older runs did not have
    for later in (
        *("tokenizer", "max_prompt_tokens", "context", "retrieved", "retry_max_tokens"),
        *("lora", "user", "session", "headers", "memory"),
    ):
        if request[later] in (None, {}):
            del request[later]
    if candidate.memory is not None:
        request["memory"]["store"] = candidate.memory.name
    return json.dumps([request, suite], sort_keys=True, ensure_ascii=False)[1:-1]
