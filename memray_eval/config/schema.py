"""RunConfig: a run as in a job's YAML, for config/, cli/, submission/ and execution/runs.py."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from memray_eval.config.problems import describe
from memray_eval.config.sections import (
    EMBEDDED,
    ENGINE_FIELDS,
    JUDGE_CPUS,
    JUDGE_KWARGS,
    STRUCTURED_FIELDS,
    AffectConfig,
    Assumptions,
    Budget,
    ClusterConfig,
    ColumnSource,
    Count,
    CriteriaOptions,
    EmbeddingConfig,
    EngineConfig,
    JudgeRequest,
    JudgingConfig,
    Jury,
    MetricOptions,
    NamedServer,
    OnNoAnswer,
    PairsConfig,
    Positive,
    Provider,
    RubricMetric,
    ServerConfig,
    SimulatedUserConfig,
    Sinks,
    SuiteTemplate,
    Weights,
    WordList,
    check_extra,
)
from memray_eval.config.servers import WORDS, ServerNames, read_baseline
from memray_eval.errors import nearest
from memray_eval.types import (
    EXISTING,
    Arm,
    Candidate,
    Frozen,
    Memory,
    Name,
    Sample,
    Sampling,
    Store,
    Temperature,
)
from memray_eval.types.samples import CRITERIA, EXAMPLE_TAGS

DEFAULT_OUT = "results"  # in the working directory
# A column's name alone is a column that is taken as it is
Column = Annotated[
    ColumnSource,
    BeforeValidator(lambda value: {"from": value} if isinstance(value, str) else value),
]
# A list was a pool of servers: it is refused as one
_POOL = BeforeValidator(lambda value: {"pool": value} if isinstance(value, list) else value)
_BASELINE = BeforeValidator(read_baseline)
CHOOSE = "choose"  # of the context of a validation
# Judges that are not models of a server
_NO_SERVERS = (*get_args(Provider), *WORDS)
_SERVER_NAME = re.compile(r"[A-Za-z][\w-]*")
# Fields of a row beside a sample's: the answer and its model
_IN_ROWS = (*"response candidate model error epoch".split(), CRITERIA, EXAMPLE_TAGS)
MAPPED_FIELDS = {*Sample.model_fields, *_IN_ROWS} - {"suite"}


class RunConfig(Frozen):
    """One run: which samples, asked of which candidates, scored by which metrics, where. Relative
    paths are resolved by `load_config`.

    `judge: auto` takes each metric's preferred judge if its key is set, else the first fallback
    with a key, else rules, which few metrics have (`list metrics`): the others are then not
    applicable. A judge or a candidate's model that is `my_judge.py:FUNCTION` makes a server called
    my_judge. The samples of a `limit` are part of a larger limit's. A suite of a published
    benchmark scores a plainly empty prediction by its own rule, whatever `on_no_answer` says.
    `executor: auto` is local if no engine is to be started, no cluster is named and there are at
    most 2,000 units."""

    suite: str | SuiteTemplate = "memory"
    """The benchmark that says how samples are read and asked (`list suites`), `my_suite.py:NAME`,
    or a template."""
    dataset: str
    """The samples, or responses that exist already; a file, a folder, a cloud URL or hf://NAME."""
    reader: str | None = None
    """`my_reader.py:FUNCTION`: a function of the dataset's path to its rows, as mappings."""
    encoding: str | None = None
    """The encoding of the dataset's text, such as cp1252; by default UTF-8, or UTF-16 if a byte
    order mark says so."""
    samples: str | None = None
    """The dataset whose samples the responses in `dataset` answer, by their ids."""
    columns: dict[str, Column] = Field(default_factory=dict)
    """The columns of your own data by field, as FIELD COLUMN or FIELD {from, parse}; fields left
    out are guessed by common names, and the guess is printed."""
    tasks: tuple[str, ...] = ()
    """Some of a suite's tasks; by default all."""
    ids: str | None = None
    """A file with one id per line: only these samples are taken."""
    templates: str | None = None
    """A folder or file with the benchmark's own prompt templates, in place of our wording."""
    errata: str | None = None
    """A file of questions whose published answer is wrong; figures without them are added."""
    limit: Count | None = None
    """The number of samples, spread over tasks and scenarios, the same ones each time."""
    skip_invalid: bool = False
    """Skips and lists invalid samples instead of refusing the dataset."""
    candidates: Annotated[tuple[Annotated[Candidate, _BASELINE], ...], Field(min_length=1)]
    epochs: Count = 1
    """Answers of each candidate to a sample, by seeds from `sampling.seed` on."""
    metrics: tuple[str | RubricMetric, ...] = ()
    """Names of metrics, `my_metrics.py:NAME`, `package.module:NAME`, or rubrics; by default those
    of the suite."""
    include: tuple[str, ...] = ()
    """Files with metrics that may then be named alone."""
    judge: Jury | dict[str, Jury] = "auto"
    """The judge: `rules` (offline estimates), `auto`, `embedded`, PROVIDER/MODEL,
    `my_judge.py:FUNCTION`, a list for a jury, or a mapping from metric (or metric/task)."""
    rubrics: dict[str, str] = Field(default_factory=dict)
    """For a judged metric, or metric/task, the name of one of its rubrics or the path of your
    own."""
    criteria: CriteriaOptions = CriteriaOptions()
    """How the metric `criteria` judges the samples' own criteria."""
    text_weights: Weights = Field(default_factory=dict)
    """The weights of overall_score by the text family's scores, which sum to 1; or by task, such as
    `{poem: {lexical_diversity: 1}}`."""
    companion_weights: Weights = Field(default_factory=dict)
    """The weights of overall_quality by the companion's six dimensions, likewise, or by
    scenario."""
    transitions: WordList = "strict"
    """The transition words that coherence_score counts: the source's few or our wider list."""
    on_no_answer: OnNoAnswer = "zero"
    """The score of a response without an answer: `zero` (the lowest score), `exclude` (nothing;
    below 95 % answered nothing is decided), or `score` (what the metric makes of an empty text)."""
    metric_timeout_s: Positive = 60.0
    """The longest that a metric of your own may work on one response."""
    affect: AffectConfig = AffectConfig()
    """Finds the user's emotion and traits if a sample lacks them."""
    simulated_user: SimulatedUserConfig | None = None
    """The model that plays the users of simulated sessions."""
    engine: EngineConfig = EngineConfig()
    """Settings of vLLM for the candidates' models."""
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Other settings of a candidate's or embedded judge's model, by name; all but the device."""
    server: ServerConfig = ServerConfig()
    """Settings of requests to candidates behind servers."""
    servers: dict[str, Annotated[NamedServer, _POOL]] = Field(default_factory=dict)
    """By a name of yours, an OpenAI-compatible server whose models are judges, candidates and
    embeddings as NAME/MODEL."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """The model of metrics by vectors."""
    judging: JudgingConfig = JudgingConfig()
    """Settings of judge calls."""
    cluster: ClusterConfig = ClusterConfig()
    """The Ray cluster of the job."""
    assumptions: Assumptions = Assumptions()
    """Assumptions of `estimate`."""
    executor: Literal["auto", "local", "ray"] = "auto"
    """The executor: `local` (this process, without Ray), `ray`, or `auto`: local for at most 2,000
    units that need no engine."""
    rows_per_block: Count | None = None
    """Rows that travel together; by default an engine's batch, more for large datasets."""
    tolerance: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)] = 0.05
    """The units that may fail before the exit code is 1: a share (0.05) or a number (20)."""
    on_error: Literal["record", "fail"] = "record"
    """`fail` stops the run at the first failed unit, resumably; `record` goes on."""
    budget: Budget = Budget()
    """The limit of spending on judges; the run stops before it is exceeded, resumably."""
    sinks: Sinks = ()
    """Sinks that get the scores once the run's folder has them; a kind alone is a sink without
    further keys."""
    pairs: PairsConfig | None = None
    """The comparison of a pairwise run; `memray-eval pairwise` writes it."""
    name: Annotated[str, Field(max_length=200)] = ""
    """The run's title, in lists and on its page."""
    out: str = DEFAULT_OUT
    """The folder or cloud URL for run folders."""

    @property
    def metric_options(self) -> MetricOptions:
        """The metrics' options, without its own metrics and its suite's options."""
        names = MetricOptions.model_fields.keys() & RunConfig.model_fields.keys()
        return MetricOptions(**{name: getattr(self, name) for name in names})

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the metrics that it names."""
        return tuple(of if isinstance(of, str) else of.name for of in self.metrics)

    @property
    def judge_request(self) -> JudgeRequest:
        models = tuple(candidate.model for candidate in self.candidates)
        keys = {name: getattr(self, name) for name in ("judge", "rubrics", "judging")}
        return JudgeRequest(**keys, models=models)

    def engine_of(self, model: str) -> EngineConfig:
        """The engine settings for a model: `engine` with what `engines` changes for it."""
        return EngineConfig.model_validate(self.engine.model_dump() | self.engines.get(model, {}))

    def judge_engine(self, model: str) -> EngineConfig:
        """The engine settings for a judge's model: one small engine beside the candidates', with
        what `engines` changes for it."""
        changed = self.engines.get(model, {})
        shared = self.engine.model_dump(include={"device", "dtype", "max_model_len"})
        is_one = {changed.get("tensor_parallel", 1), changed.get("pipeline_parallel", 1)} == {1}
        small = {"kv_cache_gib": 1.0, "cpus": JUDGE_CPUS if is_one else 1.0}
        kwargs = JUDGE_KWARGS | changed.get("engine_kwargs", {})
        return EngineConfig.model_validate(shared | small | changed | {"engine_kwargs": kwargs})

    @model_validator(mode="after")
    def _resolve_names(self, info: ValidationInfo) -> Self:
        """Makes servers of the addresses and the code that models are named by, and hands them to
        the judging section, and their addresses to candidates and embeddings. The context of the
        validation may `choose` the model of a bare address."""
        names = ServerNames(self.servers, (info.context or {}).get(CHOOSE, str))
        affect, user = self.affect, self.simulated_user
        judging = {"fallbacks": names.judges(self.judging.fallbacks), "servers": names.servers}
        resolved: dict[str, Any] = {
            "judge": names.judges(self.judge),
            "affect": affect.model_copy(update={"judge": names.judges(affect.judge)}),
            "simulated_user": user and user.model_copy(update={"model": names.judges(user.model)}),
            "embedding": names.embedding(self.embedding),
            "candidates": tuple(names.candidate(of, str(self.suite)) for of in self.candidates),
            "judging": self.judging.model_copy(update=judging),
            "servers": names.servers,
        }
        changed = {key: value for key, value in resolved.items() if value != getattr(self, key)}
        return self.model_copy(update=changed) if changed else self

    @field_validator("servers")
    @classmethod
    def _check_server_names(cls, servers: dict[str, NamedServer]) -> dict[str, NamedServer]:
        for name in servers:
            if not _SERVER_NAME.fullmatch(name) or name in _NO_SERVERS:
                raise ValueError(
                    f"a server cannot be called {name!r}: write letters, digits, dashes and "
                    f"underscores, and none of {', '.join(_NO_SERVERS)}"
                )
        return servers

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str | None) -> str | None:
        try:
            codecs.getincrementaldecoder(encoding or "utf-8")
            "".encode(encoding or "utf-8")  # an encoding of text
        except LookupError:
            raise ValueError(f"no encoding {encoding!r}; write one such as cp1252") from None
        return encoding

    @model_validator(mode="after")
    def _goes_together(self) -> RunConfig:
        is_existing = self.candidates[0].backend == EXISTING
        if self.samples is not None and not is_existing:
            raise ValueError(
                "samples: only responses that exist are joined to them; name the samples to answer "
                "in `dataset`"
            )
        for name in self.columns:
            if name not in MAPPED_FIELDS:
                hint = nearest(name, MAPPED_FIELDS)
                raise ValueError(
                    f"columns: no field {name!r}"
                    + (f"; did you mean {hint!r}?" if hint else ".")
                    + f" There are: {', '.join(sorted(MAPPED_FIELDS))}"
                )
        model = self.embedding.model
        if model != "local" and not model.startswith(("local:", "openai/")):
            raise ValueError(
                f"embedding: no embedding model {model!r}; write local, local:PATH or openai/MODEL"
            )
        if self.epochs > 1 and is_existing:
            raise ValueError("epochs: rows of responses that exist have theirs in a column `epoch`")
        return self

    @model_validator(mode="after")
    def _check_engines(self) -> RunConfig:
        for model, changed in self.engines.items():
            if "device" in changed:
                raise ValueError(
                    f"engines: {model}.device: all engines of a run have one device; set "
                    "engine.device"
                )
            try:
                _ = self.engine_of(model), self.judge_engine(model)
            except ValidationError as error:
                raise ValueError(
                    "; ".join(f"engines: {model}.{line}" for line in describe(error, EngineConfig))
                ) from None
        return self

    @model_validator(mode="after")
    def _check_candidates(self) -> RunConfig:
        names = [candidate.name for candidate in self.candidates]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"candidates: two have the name {twice[0]!r}; give each its own")
        backends = [candidate.backend for candidate in self.candidates]
        if EXISTING in backends and len(backends) > 1:
            raise ValueError(
                "candidates: responses that exist already (backend given) are judged alone; use "
                "`evaluate`"
            )
        for number, candidate in enumerate(self.candidates):
            if misfit := candidate.misfit():
                raise ValueError(f"candidates.{number}: {misfit}")
            _check_candidate_extra(candidate)
            if candidate.backend == "vllm" and candidate.base_url is not None:
                raise ValueError(
                    f"candidates: {candidate.name!r} has a base_url, which an engine of vLLM does "
                    "not ask; write backend: openai, or leave it out"
                )
            asks_openai = candidate.backend == "openai" and candidate.base_url is None
            if asks_openai and candidate.model == EMBEDDED:
                raise ValueError(
                    f"candidates: {candidate.name!r} asks a server for the embedded model; name "
                    "the server's model and base_url"
                )
        return self


def _check_candidate_extra(candidate: Candidate) -> None:
    """Raises ValueError for a further parameter that the run fills in, or that vLLM has not."""
    where = f"candidates: {candidate.name}: extra"
    check_extra(where, candidate.extra)
    if own := sorted({*Sampling.model_fields, "max_completion_tokens"} & candidate.extra.keys()):
        raise ValueError(f"{where}: {own[0]} has its own key under sampling; set that")
    for name in ("chat_template_kwargs", "structured_outputs"):
        if not isinstance(value := candidate.extra.get(name, {}), dict):
            raise ValueError(f"{where}: {name} is a mapping, not {value!r}")
    if candidate.backend != "vllm":
        return
    structured = candidate.extra.get("structured_outputs", {})
    for what, names, fields in (
        ("SamplingParams", candidate.extra, ENGINE_FIELDS),
        ("StructuredOutputsParams", structured, STRUCTURED_FIELDS),
    ):
        for name in names:
            if name not in fields:
                hint = nearest(name, fields)
                raise ValueError(
                    f"{where}: vLLM's {what} has no {name!r}"
                    + (f"; did you mean {hint!r}?" if hint else f"; it has {', '.join(fields)}")
                )


_SINGLE = {
    "temperatures": "sampling.temperature",
    "prompts": "prompt",
    "contexts": "context",
    "memories": "memory",
}


class CandidateEntry(Candidate):
    """A candidate as a job's YAML may give it: several `temperatures`, `prompts`, `contexts` or
    `memories` make several, "<name>-t<temperature>-<prompt>-<context>", which share the rest and
    their engine."""

    temperatures: Annotated[tuple[Temperature, ...], Field(min_length=1)] | None = None
    """One candidate for each of these temperatures."""
    prompts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """One candidate for each of these prompts."""
    contexts: Annotated[tuple[Arm, ...], Field(min_length=1)] | None = None
    """One candidate for each of these contexts."""
    memories: Annotated[tuple[Store, ...], Field(min_length=1)] | None = None
    """One candidate for each of these stores, beside those of `contexts`."""

    @model_validator(mode="after")
    def _check_given_once(self) -> CandidateEntry:
        set_fields = {f"sampling.{name}" for name in self.sampling.model_fields_set}
        set_fields |= self.model_fields_set
        for several, single in _SINGLE.items():
            if getattr(self, several) and single in set_fields:
                raise ValueError(f"{several} and {single} are both given; keep one of them")
        if self.contexts and self.retrieved is not None and "retrieved" not in self.contexts:
            raise ValueError("retrieved: goes with retrieved among the contexts")
        return self

    def expand(self) -> Iterator[Candidate]:
        """Yields the candidates of the entry, temperature by temperature; one without lists."""
        plain = Candidate(**{field: getattr(self, field) for field in Candidate.model_fields})
        arms: tuple[Arm | Memory | None, ...] = (*(self.contexts or ()), *(self.memories or ()))
        for temperature, prompt, arm in product(
            self.temperatures or (None,), self.prompts or (None,), arms or (None,)
        ):
            name, changed = self.name, dict[str, Any]()
            if temperature is not None:
                name += f"-t{temperature}"
                changed["sampling"] = self.sampling.model_copy(update={"temperature": temperature})
            if prompt is not None:
                file = Path(prompt).name  # a prompt may be a file: its name without the suffix
                name += f"-{file.removesuffix('.txt').removesuffix('.md')}"
                changed["prompt"] = prompt
            if isinstance(arm, Memory):
                name += f"-{arm.label}"
                changed |= {"memory": arm, "context": None, "retrieved": None}
            elif arm is not None:
                name += f"-{arm}"
                changed["context"] = arm
                changed["retrieved"] = self.retrieved if arm == "retrieved" else None
            yield plain.model_copy(update={**changed, "name": name})


class JobFile(RunConfig):
    """A job's YAML: a RunConfig whose candidates may each expand to several."""

    candidates: Annotated[tuple[Annotated[CandidateEntry, _BASELINE], ...], Field(min_length=1)]
    """The models under test; several temperatures or prompts in one entry make as many
    candidates."""

    def expand(self) -> RunConfig:
        """The run that it describes. Raises ValidationError if two candidates get the same name."""
        candidates = tuple(candidate for entry in self.candidates for candidate in entry.expand())
        fields = {name: value for name, value in self if name in self.model_fields_set}
        return RunConfig.model_validate(fields | {"candidates": candidates})
