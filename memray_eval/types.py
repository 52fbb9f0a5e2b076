"""The values that flow through a run: Sample -> Response -> Score -> Record -> Summary. All frozen."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

GIVEN: Literal["given"] = "given"  # the backend of responses that exist already
BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
EMOTION_SUM_TOLERANCE = 1e-3
DEFAULT_MAX_TOKENS = 256
RULES = "rules"  # who scores where no model judges; its embedding model follows after a "+"
# Who scored in the place of a judge that failed (judging.on_judge_failure), in words.
FALLBACKS: Mapping[str, str] = {
    "string_match": "by string match",
    "zero": "set to zero",
    "default": "set to the default",
}
JURORS = " + "  # between their names in a score's `judge`
RULES_ON_EMPTY = f"{RULES} (empty response)"  # what a judged metric says of an empty response: no judge need be asked

Name = Annotated[StrictStr, Field(min_length=1)]
Temperature = Annotated[float, Field(ge=0.0, le=2.0)]
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


def is_estimate(judge: str) -> bool:
    """Whether a score's judge is the rules of a judged metric: an offline estimate, not a verdict."""
    return judge == RULES or judge.startswith(f"{RULES}+")


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
    """How the model under test is asked to decode. `max_tokens` None: the length that the suite has for the task, else
    DEFAULT_MAX_TOKENS."""

    temperature: Temperature = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    seed: int | None = 0
    stop: tuple[str, ...] = ()


class Candidate(Frozen):
    """The model under test, with its sampling parameters and the prompt variant it is given.

    `backend` is `vllm` (an engine of this run) or `openai`: a server at `base_url` that speaks OpenAI's protocol, with its
    key, if it wants one, in the environment variable `api_key_env`; without base_url OpenAI itself, with OPENAI_API_KEY.
    `given` is for responses that exist already and are only judged. Where a suite cuts long prompts in the middle, it does so
    at `max_prompt_tokens` (default: what the engine's window leaves beside the answer), counted by the model's own tokenizer;
    for a model behind a server that is `tokenizer`, a hub name or a folder, and without one nothing is cut.
    """

    name: Name
    model: Name
    backend: Literal["vllm", "openai", "given"] = "vllm"
    base_url: str | None = None
    api_key_env: str | None = None
    tokenizer: str | None = None
    max_prompt_tokens: Annotated[int, Field(gt=0)] | None = None
    sampling: Sampling = Sampling()
    prompt: str = "default"


class Prompt(Frozen):
    """What a candidate is asked about one sample: `messages` through its chat template, or, where not `is_chat`, their
    contents as plain text. `max_tokens` is the task's own output length and `stop` what ends its answers. A prompt longer
    than the model's window loses its middle where `is_cut`, and is refused otherwise."""

    messages: tuple[Message, ...]
    is_chat: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    is_cut: bool = False

    def sampling(self, candidate: Candidate) -> Sampling:
        """How this prompt is decoded: the candidate's way, with the task's length and stops where it sets none."""
        own = candidate.sampling
        return own.model_copy(
            update={
                "max_tokens": own.max_tokens or self.max_tokens or DEFAULT_MAX_TOKENS,
                "stop": tuple(dict.fromkeys((*own.stop, *self.stop))),
            }
        )


_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


class Spoken(NamedTuple):
    """A model's output, taken apart: its answer, its thinking, and in how many blocks that stood."""

    text: str
    thinking: str = ""
    blocks: int = 0


def split_thinking(output: str) -> Spoken:
    """Takes <think> (or <thinking>) blocks out of an output. A block that is never closed goes to the end; a close without an
    opening belongs to a block that the chat template opened, so all before it is thinking."""
    first_end = _END_OF_THOUGHT.search(output)
    if first_end and not re.search(r"<think(?:ing)?>", output[: first_end.start()], re.IGNORECASE):
        output = f"<think>{output}"
    thoughts = _THOUGHT.findall(output)
    if not thoughts:
        return Spoken(output)
    return Spoken(_THOUGHT.sub("", output).strip(), "\n".join(thought.strip() for thought in thoughts), len(thoughts))


class Response(Frozen):
    """What the model answered. Tokens are the model's own; times are in seconds, None where they were not measured.

    `thinking` is what stood between <think> marks, which `text` no longer holds, in `thinking_blocks` blocks.
    `prompt_form` says whether it was asked through its chat template (`chat`) or with plain text (`plain`);
    `truncated_tokens` were cut out of the prompt's middle; `cached_tokens` of the prompt came from the engine's prefix cache.
    """

    text: str = ""
    thinking: str = ""
    thinking_blocks: int = 0
    error: str | None = None
    prompt_form: str | None = None
    truncated_tokens: int | None = None
    cached_tokens: int | None = None
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
    names who gave it. `calls` counts the judge calls that were answered, and so paid, for it: every juror, repeat and asking
    again; None in records of older versions.
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
    calls: int | None = None
    error: str | None = None

    @property
    def is_estimate(self) -> bool:
        """Whether its value is an offline estimate."""
        return self.status == "scored" and is_estimate(self.judge)

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
    asked = candidate.model_dump(mode="json")
    asked["sampling"]["max_tokens"] = candidate.sampling.max_tokens or DEFAULT_MAX_TOKENS
    for later in ("tokenizer", "max_prompt_tokens"):  # fields that units of older runs did not have
        if asked[later] is None:
            del asked[later]
    identity = json.dumps([sample_id, asked, suite], sort_keys=True, ensure_ascii=False)
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
    Of the scored, `n_estimated` are offline estimates and `n_fallbacks` are what a rule gave because the judge failed; both
    follow from `judges`. `worth` says what the estimates are worth, where there are any, and `reason` why the metric is not
    applicable where the rules cannot tell.
    """

    metric: str
    candidate: str
    title: str
    scale: tuple[float, float]
    judges: dict[str, int] = Field(default_factory=dict)
    n: int
    n_scored: int
    n_estimated: int = 0
    n_fallbacks: int = 0
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
    worth: str = ""
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _count_by_rules(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        judges = data.get("judges") or {}
        estimated = sum(count for judge, count in judges.items() if is_estimate(judge))
        replaced = sum(count for judge, count in judges.items() if judge in FALLBACKS)
        return {**data, "n_estimated": estimated, "n_fallbacks": replaced}


class GenerationSummary(Frozen):
    """The generation stage for one candidate. Tokens per second are output tokens over the stage's wall time.

    `cached_tokens` of the prompts came from the engine's prefix cache; `cache_hit_rate` is their share of the prompt tokens of
    the units where that was measured. Both are None where it never was. `truncated` units lost the middle of their prompt,
    `thinking` units answered with thinking blocks, and `prompt_forms` counts units by how they were asked (chat, plain). Of
    `uncounted` answers the server did not tell the tokens, or not as numbers that can be: the sums are without them.
    """

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
    cached_tokens: int | None = None
    cache_hit_rate: float | None = None
    truncated: int = 0
    thinking: int = 0
    prompt_forms: dict[str, int] = Field(default_factory=dict)
    uncounted: int = 0


class TaskMetric(Frozen):
    """One metric over the units of one task. `n` counts units with an outcome, those it does not apply to among them.

    `mean` and `stderr` (sample std / sqrt n_scored) are in the metric's own scale, None where too little was scored. `coverage`
    = scored / applicable and `error_rate` = n_failed / applicable, None when nothing applied. `calls` were made to a judge
    model and paid, one each for a juror, a repeat and an asking again; `cached` scores needed none. `fallbacks` are scores that
    a rule gave because the judge failed, `estimates` those that rules gave because no judge was asked, and `fixed` those of
    them that would have been the same for any answer. `latency_s_mean` is over the calls, None where there were none.
    """

    metric: str
    n: int
    n_scored: int
    n_failed: int
    mean: float | None
    stderr: float | None
    coverage: float | None
    error_rate: float | None
    calls: int
    cached: int
    fallbacks: int
    estimates: int = 0
    cost_usd: float
    input_tokens: int
    output_tokens: int
    latency_s_mean: float | None
    fixed: int = 0


class Agreement(Frozen):
    """How far the judge's verdict and the rule (its score 0.5 or more) agree, over the `n` units that have both.

    `only_judge` and `only_rule` count the disagreements: correct for one, not for the other. `share` of the units agree.
    `kappa` is Cohen's, None where it is not defined: both find every unit correct, or both none, so that chance alone would
    agree as well; `share` is 1.0 then.
    """

    n: int
    both: int
    neither: int
    only_judge: int
    only_rule: int
    share: float
    kappa: float | None


class TaskSummary(Frozen):
    """One task of one candidate, `n` units; of one `bucket` of its samples, or of all of them where that is None. The task is
    empty for samples that name none. `agreement` is None where judge and rule were not both computed."""

    candidate: str
    task: str
    bucket: str | None
    n: int
    metrics: tuple[TaskMetric, ...]
    agreement: Agreement | None = None


class MacroSummary(Frozen):
    """All tasks of one candidate. `means` maps a metric to the mean of its task means, each task counting once whatever its
    size, in the metric's own scale (LongBench prints it times 100); `n_tasks` says over how many tasks, those without any
    score left out. `agreement` is over all units."""

    candidate: str
    n: int
    means: dict[str, float | None]
    n_tasks: dict[str, int]
    agreement: Agreement | None = None


class HeatMap(Frozen):
    """The mean of one metric by the length (tokens) and depth (percent) that a candidate's samples name in their metadata.

    `values` and `n` hold a row a depth and a figure a length; `n` counts scored units, and a value is None where it is 0.
    Samples that have a length and no depth are in `without_depth` and `n_without_depth`, a figure a length, empty where there
    are none. Where there are more than a grid shows, a length stands for those up to it and above half of it
    (`lengths_binned`), and depths are rounded to 5 percent (`depths_binned`). Of all scored units `estimates` are offline
    estimates, and `fallbacks` are what a rule gave because the judge failed.
    """

    candidate: str
    metric: str
    scale: tuple[float, float]
    lengths: tuple[float, ...]
    depths: tuple[float, ...]
    values: tuple[tuple[float | None, ...], ...]
    n: tuple[tuple[int, ...], ...]
    without_depth: tuple[float | None, ...] = ()
    n_without_depth: tuple[int, ...] = ()
    lengths_binned: bool = False
    depths_binned: bool = False
    estimates: int = 0
    fallbacks: int = 0


VERDICT_METRIC = "semantic_correctness"  # the judge's verdict that reports set against
RULE_METRIC = "rule_score"  # the suite's own rule
DISAGREEMENTS = "disagreements.jsonl"  # in the run folder: the units that the two disagree on


class Performance(Frozen):
    """Speed beside quality of one candidate, on one task or (task None) on all its `n` units; failed answers count in `n` only.

    Times are the responses' own, waiting for the engine included: they overlap in a run, so their sum is more than its wall
    time. `tokens_per_s` = output tokens / duration, both summed over the answers that have both. `quality` is the mean of the
    run's headline metric with its scale laid over 0-100, `quality_stderr` = sample std / sqrt(n_scored) of the same. None
    where too little was measured. Of the `n_scored`, `estimates` are offline estimates and `fallbacks` are what a rule gave
    because the judge failed.
    """

    candidate: str
    task: str | None
    n: int
    duration_s_total: float | None
    duration_s_mean: float | None
    output_tokens: int
    tokens_per_s: float | None
    ttft_s_mean: float | None
    ttft_s_p95: float | None
    n_scored: int
    quality: float | None
    quality_stderr: float | None
    estimates: int = 0
    fallbacks: int = 0


class QualityPair(Frozen):
    """Candidate `b` against `a` on the `n` prompts that both have a quality on. `difference` is the mean of b - a in points of
    0-100, `low` and `high` its interval at `level`; None where too few prompts, or none that differ, give one.

    `is_shown`: the difference is told from 0. Where it is not, about `more` prompts like these would show one of this size;
    None where no number can be named.
    """

    a: str
    b: str
    n: int
    level: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    is_shown: bool = False
    more: int | None = None


class Recommendation(Frozen):
    """What speed and quality say of a run's candidates, by the `rule` given in words, and by `pairs`: what their qualities
    differ by on the prompts that two have in common.

    Several are `fastest` or `best` only where their figures are equal; `as_good` are those that are not shown to differ from
    the best. `pareto`: no other is as fast and as good, and better in one. `use` is None where nothing speaks for one of them;
    `left_out` lack a figure.
    """

    fastest: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    as_good: tuple[str, ...] = ()
    pareto: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    use: str | None = None
    reason: str
    rule: str
    pairs: tuple[QualityPair, ...] = ()


class Sweep(Frozen):
    """One metric against temperature: candidates that differ in nothing else, by rising temperature. Means and standard errors
    are in the metric's own scale, over the `n` scored units, None where too few were; of these `estimates` are offline
    estimates, and `fallbacks` are what a rule gave because the judge failed."""

    metric: str
    model: str
    prompt: str
    candidates: tuple[str, ...]
    temperatures: tuple[float, ...]
    means: tuple[float | None, ...]
    stderrs: tuple[float | None, ...]
    n: tuple[int, ...]
    estimates: tuple[int, ...] = ()
    fallbacks: tuple[int, ...] = ()


class Cause(Frozen):
    """Why `n_units` units failed, as far as they have it in common, and the whole text of one of them. A unit whose metrics
    failed for several causes counts in each."""

    cause: str
    n_units: int
    example: str
    unit_id: str


class Summary(Frozen):
    """All aggregates of a run, as written to summary.json. Times in seconds; stage times overlap in a streamed run.

    `tasks` and `macro` are there where samples name their tasks or a rule was compared with the judge, `heat_maps` where they
    name length and depth. `n_disagreements` units are listed in the file DISAGREEMENTS; None where nothing was compared.
    `causes` of failed units stand most frequent first.
    `headline` names the metric that stands for quality. `performance` is there where a run has several candidates, or its
    suite is about both; `recommendation` where there are several, `sweeps` where some differ in temperature alone.
    """

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
    tasks: tuple[TaskSummary, ...] = ()
    macro: tuple[MacroSummary, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    n_disagreements: int | None = None
    headline: str = ""
    performance: tuple[Performance, ...] = ()
    recommendation: Recommendation | None = None
    sweeps: tuple[Sweep, ...] = ()
    notes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()


def dumps(value: Mapping[str, Any] | list[Any]) -> str:
    """Compact JSON for a free-form column: sorted keys, Unicode kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
