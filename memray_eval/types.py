"""The values that flow through a run: Sample -> Response -> Score -> Record -> Summary. All frozen."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

GIVEN: Literal["given"] = "given"  # the backend of responses that exist already
BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
EMOTION_SUM_TOLERANCE = 1e-3

Name = Annotated[StrictStr, Field(min_length=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Scalar = StrictStr | StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
MemoryValue = Scalar | tuple[Scalar, ...]
Status = Literal["scored", "abstained", "not_applicable", "error"]


class Frozen(BaseModel):
    """Immutable, and a field it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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

    `memory` maps a key to what is known of the user. `required_keys` must be used, `forbidden_keys` must not (they may be
    absent from memory), `neutral_keys` may. `traits` are Big Five scores in 0-1; `emotion` is a distribution summing to 1.
    """

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
        if found := key_conflicts(self):
            text = "; ".join(f"{field}: {what}" for field, what in found.items())
            raise PydanticCustomError("conflict", "{text}", {"text": text, "fields": found})
        return self


def key_conflicts(sample: Sample) -> dict[str, str]:
    """What contradicts between a sample's own fields: field name -> what is wrong. Empty when all is well."""
    found: dict[str, str] = {}
    required, forbidden, neutral = set(sample.required_keys), set(sample.forbidden_keys), set(sample.neutral_keys)
    for field, keys in (("required_keys", sample.required_keys), ("forbidden_keys", sample.forbidden_keys)):
        if len(keys) != len(set(keys)):
            found[field] = f"lists a key twice: {sorted({key for key in keys if keys.count(key) > 1})}"
    if both := sorted(required & forbidden):
        found["forbidden_keys"] = f"both required and forbidden: {both}; keep each in one list"
    if both := sorted(neutral & (required | forbidden)):
        found["neutral_keys"] = f"neutral and also required or forbidden: {both}; keep each in one list"
    if absent := sorted(required - set(sample.memory)):
        found["required_keys"] = f"required but absent from memory: {absent}; add them to memory or drop them here"
    if unknown := sorted(set(sample.traits) - set(BIG_FIVE)):
        found["traits"] = f"not Big Five traits: {unknown}; there are: {', '.join(BIG_FIVE)}"
    total = math.fsum(sample.emotion.values())
    if sample.emotion and abs(total - 1.0) > EMOTION_SUM_TOLERANCE:
        found["emotion"] = f"probabilities sum to {total:.4f}, not 1"
    return found


class Sampling(Frozen):
    """How the model under test is asked to decode."""

    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] = 256
    repetition_penalty: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    seed: int | None = 0
    stop: tuple[str, ...] = ()


class Candidate(Frozen):
    """The model under test, with its sampling parameters and the prompt variant it is given.

    `backend` is `vllm` (an engine of this run) or `openai`: a server at `base_url` that speaks OpenAI's protocol, with its
    key, if it wants one, in the environment variable `api_key_env`; without base_url OpenAI itself, with OPENAI_API_KEY.
    `given` is for responses that exist already and are only judged.
    """

    name: Name
    model: Name
    backend: Literal["vllm", "openai", "given"] = "vllm"
    base_url: str | None = None
    api_key_env: str | None = None
    sampling: Sampling = Sampling()
    prompt: str = "default"


class Response(Frozen):
    """What the model answered. Tokens are the model's own; times are in seconds, None where they were not measured."""

    text: str = ""
    error: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_s: float | None = None
    duration_s: float | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class Usage(Frozen):
    """Tokens that one judge call cost, over all its attempts."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens
        )


class Score(Frozen):
    """The outcome of one metric on one record. `value` is None unless `status` is `scored`: a failure is never a zero.

    `parts` are the counts that aggregates sum (tp, fp, fn, claims, ...); `judgment` is the whole verdict as JSON; `judge`
    names who gave it.
    """

    metric: str
    status: Status
    value: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    judgment: str | None = None
    judge: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False
    error: str | None = None

    @model_validator(mode="after")
    def _value_if_scored(self) -> Score:
        if (self.value is not None) != (self.status == "scored"):
            raise ValueError(f"a score with status {self.status!r} cannot have value {self.value!r}")
        return self


class Record(Frozen):
    """One unit of a run: a sample (without its context after generation) asked of a candidate, and what came of it."""

    unit_id: str
    sample: Sample
    candidate: Candidate
    response: Response | None = None
    scores: tuple[Score, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether its generation or any of its metrics ended in an error."""
        broken = self.response is not None and self.response.error is not None
        return broken or any(score.status == "error" for score in self.scores)


def unit_id(sample_id: str, candidate: Candidate, suite: str) -> str:
    """A stable key of (sample, candidate, suite): 16 hex digits, the same in every process and run."""
    identity = json.dumps([sample_id, candidate.model_dump(mode="json"), suite], sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


Form = Literal["score", "count", "average", "percent", "of_scale", "step", "bar"]


class Line(Frozen):
    """One line of a metric's section: a label, where its figure stands in the MetricSummary, and how to print it: four
    decimals, a whole number, two decimals, a share as percent, 4.12/5.00, 4/5, or a count with its share and a bar."""

    label: str
    field: str
    form: Form = "score"
    note: str = ""


class Block(Frozen):
    """A group of lines under a heading."""

    heading: str = ""
    lines: tuple[Line, ...] = ()


class MetricSummary(Frozen):
    """One metric over all units of one candidate.

    `n` counts units; `coverage` = scored / (n - not applicable), None when nothing applied. Figures are None, never 0.0,
    where nothing was scored. `std` is the population's (numpy's default), `stderr` = sample std / sqrt(n_scored).
    """

    metric: str
    candidate: str
    title: str
    scale: tuple[float, float]
    judges: dict[str, int] = Field(default_factory=dict)
    n: int
    n_scored: int
    n_abstained: int
    n_not_applicable: int
    n_failed: int
    coverage: float | None
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None
    stderr: float | None = None
    distribution: dict[str, int] = Field(default_factory=dict)
    micro: dict[str, float | None] = Field(default_factory=dict)
    macro: dict[str, float | None] = Field(default_factory=dict)
    extras: dict[str, float | None] = Field(default_factory=dict)
    layout: tuple[Block, ...] = ()


class GenerationSummary(Frozen):
    """The generation stage for one candidate. Tokens per second are output tokens over the stage's wall time."""

    candidate: str
    model: str
    n: int
    n_failed: int
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float | None
    ttft_s_mean: float | None
    ttft_s_p95: float | None
    duration_s_mean: float | None
    finish_reasons: dict[str, int]


class Summary(Frozen):
    """All aggregates of a run, as written to summary.json. Times in seconds; stage times overlap in a streamed run."""

    run_id: str
    suite: str
    n_samples: int
    n_invalid: int
    n_units: int
    n_failed_units: int
    generation_s: float | None
    evaluation_s: float | None
    total_s: float
    candidates: tuple[GenerationSummary, ...]
    metrics: tuple[MetricSummary, ...]
    notes: tuple[str, ...] = ()


def dumps(value: Mapping[str, Any] | list[Any]) -> str:
    """Compact JSON for a free-form column: sorted keys, Unicode kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
