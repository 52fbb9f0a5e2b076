"""RunConfig: a whole run, as a job's YAML says it. Only config/, cli/, submission/ and
execution/prepare.py know it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from memray_eval.config.named_code import WORDS, name_code
from memray_eval.config.pools import check_pools
from memray_eval.config.problems import describe, nearest
from memray_eval.config.sections import (
    EMBEDDED,
    ENGINE_FIELDS,
    STRUCTURED_FIELDS,
    AffectConfig,
    Assumptions,
    Budget,
    ClusterConfig,
    ColumnSource,
    Count,
    EmbeddingConfig,
    EngineConfig,
    JudgeRequest,
    JudgingConfig,
    Jury,
    MetricOptions,
    NamedServer,
    OnNoAnswer,
    PairsConfig,
    Provider,
    RubricMetric,
    ServerConfig,
    Sinks,
    SuiteTemplate,
    WordList,
    check_extra,
)
from memray_eval.types import EXISTING, Arm, Candidate, Frozen, Name, Sample, Sampling, Temperature

DEFAULT_OUT = (
    "results"  # in the working directory, unless the job or the command line says otherwise
)


# A column's name alone stands for a column that is taken as it is
Column = Annotated[
    ColumnSource,
    BeforeValidator(lambda given: {"from": given} if isinstance(given, str) else given),
]
# What a judge may be called that is no model of a server
_NO_SERVERS = (*get_args(Provider), *WORDS)
_SERVER_NAME = re.compile(r"[A-Za-z][\w-]*")
# What a row may hold beside a sample: who answered what
MAPPED_FIELDS = {*Sample.model_fields, "response", "candidate", "model", "error"} - {"suite"}


class RunConfig(Frozen):
    """One run: which samples, asked of which candidates, scored by which metrics, where. What each
    key means is in keys.yaml.

    Code of one's own is named `path/to/file.py:NAME` or `package.module:NAME`; a judge or a
    candidate's model that is `my_judge.py:FUNCTION` makes a server called my_judge. Of `servers`, a
    list stands for a pool. A value of `rubrics` with a "/" or a "." is a file's path. Without
    `estimates`, rules may score the metrics for which they were not found to be blind. Relative
    paths are resolved by `load_config`."""

    suite: str | SuiteTemplate = "memory"
    dataset: str
    reader: str | None = None
    columns: dict[str, Column] = Field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    templates: str | None = None
    errata: str | None = None
    limit: Count | None = None
    limit_order: Literal["spread", "first"] = "spread"
    skip_invalid: bool = False
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    metrics: tuple[str | RubricMetric, ...] = ()
    include: tuple[str, ...] = ()
    judge: Jury | dict[str, Jury] = "auto"
    rubrics: dict[str, str] = Field(default_factory=dict)
    estimates: dict[str, bool] = Field(default_factory=dict)
    text_weights: dict[str, float] = Field(default_factory=dict)
    transitions: WordList = "strict"
    emotion_words: WordList = "strict"
    on_no_answer: OnNoAnswer = "exclude"
    affect: AffectConfig = AffectConfig()
    engine: EngineConfig = EngineConfig()
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
    server: ServerConfig = ServerConfig()
    servers: dict[str, NamedServer] = Field(default_factory=dict)
    embedding: EmbeddingConfig = EmbeddingConfig()
    judging: JudgingConfig = JudgingConfig()
    cluster: ClusterConfig = ClusterConfig()
    assumptions: Assumptions = Assumptions()
    executor: Literal["auto", "local", "ray"] = "auto"
    rows_per_block: Count | None = None
    tolerance: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)] = 0.05
    on_error: Literal["record", "fail"] = "record"
    budget: Budget = Budget()
    stop_at: str | None = None
    calibration: tuple[str, ...] = ()
    sinks: Sinks = ()
    pairs: PairsConfig | None = None
    out: str = DEFAULT_OUT

    @property
    def metric_options(self) -> MetricOptions:
        """Without what is found when the job is resolved: its own metrics, and what its suite
        says."""
        names = MetricOptions.model_fields.keys() & RunConfig.model_fields.keys()
        return MetricOptions(**{name: getattr(self, name) for name in names})

    @property
    def judge_request(self) -> JudgeRequest:
        models = tuple(candidate.model for candidate in self.candidates)
        asked = {name: getattr(self, name) for name in ("judge", "rubrics", "estimates", "judging")}
        return JudgeRequest(**asked, models=models)

    def engine_of(self, model: str) -> EngineConfig:
        """The engine settings for a model: `engine` with what `engines` changes for it."""
        return EngineConfig.model_validate(self.engine.model_dump() | self.engines.get(model, {}))

    @model_validator(mode="before")
    @classmethod
    def _use_named_servers(cls, data: Any) -> Any:
        """Makes servers of the code that judges and candidates name; hands the servers to the
        judging section, and their addresses to candidates and embeddings that name them."""
        if not isinstance(data, dict):
            return data
        if isinstance(given := data.get("servers"), dict):  # a list is a pool
            data = data | {
                "servers": {
                    name: {"pool": one} if isinstance(one, list | tuple) else one
                    for name, one in given.items()
                }
            }
        data = name_code(data)
        servers = data.get("servers")
        if not isinstance(servers, dict) or not servers:
            return data
        judging = data.get("judging") or {}
        if isinstance(judging, JudgingConfig):
            judging = judging.model_dump()
        if isinstance(judging, dict):
            data = data | {"judging": judging | {"servers": servers}}
        candidates = data.get("candidates")
        if isinstance(candidates, list | tuple):
            asked = [_on_server(one, servers) for one in candidates]
            data = data | {"candidates": asked}
        embedding = data.get("embedding")
        server = _server_of(embedding, servers) if isinstance(embedding, dict) else None
        if server is not None:
            _refuse_judges_only("embedding", embedding["model"], server)
        if server is not None and (server.get("url") or server.get("provider")):
            address = {key: server.get(key) for key in ("url", "api_key_env")}
            address = {"base_url": address.pop("url"), **address}
            model = f"openai/{embedding['model'].partition('/')[2]}"
            data = data | {"embedding": {**embedding, **address, "model": model}}
        return data

    @field_validator("servers")
    @classmethod
    def _check_server_names(cls, servers: dict[str, NamedServer]) -> dict[str, NamedServer]:
        for name in servers:
            if not _SERVER_NAME.fullmatch(name) or name in _NO_SERVERS:
                raise ValueError(
                    f"a server cannot be called {name!r}: write letters, digits, dashes and "
                    f"underscores, and none of {', '.join(_NO_SERVERS)}"
                )
        check_pools(servers)
        return servers

    @model_validator(mode="after")
    def _check_columns(self) -> RunConfig:
        for name in self.columns:
            if name not in MAPPED_FIELDS:
                hint = nearest(name, MAPPED_FIELDS)
                raise ValueError(
                    f"columns: no field {name!r}"
                    + (f"; did you mean {hint!r}?" if hint else "")
                    + f" There are: {', '.join(sorted(MAPPED_FIELDS))}"
                )
        return self

    @model_validator(mode="after")
    def _check_engines(self) -> RunConfig:
        models = {candidate.model for candidate in self.candidates if candidate.backend == "vllm"}
        for model, changed in self.engines.items():
            if model not in models:
                raise ValueError(
                    f"engines: no vLLM candidate has the model {model!r}; there are: "
                    f"{', '.join(sorted(models))}"
                )
            if "device" in changed:
                raise ValueError(
                    f"engines: {model}.device: all engines of a run have one device; set "
                    "engine.device"
                )
            try:
                self.engine_of(model)
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
        if (
            EXISTING in {candidate.backend for candidate in self.candidates}
            and len(self.candidates) > 1
        ):
            raise ValueError(
                "candidates: responses that exist already (backend given) are judged alone; use "
                "`evaluate`"
            )
        for candidate in self.candidates:
            _check_candidate_extra(candidate)
            if (
                candidate.backend == "openai"
                and candidate.model == EMBEDDED
                and candidate.base_url is None
            ):
                raise ValueError(
                    f"candidates: {candidate.name!r} asks a server for the embedded model; name "
                    "the server's model and base_url"
                )
        return self


def _check_candidate_extra(candidate: Candidate) -> None:
    """Raises ValueError for a further parameter that the run fills in, or that vLLM has not."""
    where = f"candidates: {candidate.name}: extra"
    check_extra(where, candidate.extra)
    if known := sorted({*Sampling.model_fields, "max_completion_tokens"} & candidate.extra.keys()):
        raise ValueError(f"{where}: {known[0]} has its own key under sampling; set that")
    told = candidate.extra.get("chat_template_kwargs", {})
    structured = candidate.extra.get("structured_outputs", {})
    for name, value in (("chat_template_kwargs", told), ("structured_outputs", structured)):
        if not isinstance(value, dict):
            raise ValueError(f"{where}: {name} is a mapping, not {value!r}")
    if candidate.backend != "vllm":
        return
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


def _server_of(section: Mapping[str, Any], servers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The named server whose model, as NAME/MODEL, a section has."""
    name, _, model = str(section.get("model", "")).partition("/")
    server = servers.get(name) if model else None
    if isinstance(server, NamedServer):
        return server.model_dump()
    return server if isinstance(server, dict) else None


def _on_server(candidate: Any, servers: Mapping[str, Any]) -> Any:
    """A candidate with what its named server says; any other as it is."""
    if not isinstance(candidate, dict) or (server := _server_of(candidate, servers)) is None:
        return candidate
    _refuse_judges_only("candidates", candidate["model"], server)
    if server.get("code") is not None:
        return {**candidate, "backend": "code"}
    said = {key: server[key] for key in ("api_key_env", "stream") if key in server}
    model = candidate["model"].partition("/")[2]
    return {**candidate, **said, "backend": "openai", "base_url": server.get("url"), "model": model}


def _refuse_judges_only(section: str, model: str, server: Mapping[str, Any]) -> None:
    """Raises ValueError for a model of a pool, or of a provider with a protocol of its own: those
    judge, and nothing else."""
    name = model.partition("/")[0]
    if isinstance(members := server.get("pool"), list | tuple):
        raise ValueError(
            f"{section}: {model!r} is asked of a pool, and pools only judge; name one of its "
            f"servers: {', '.join(map(str, members))}"
        )
    if server.get("provider") not in (None, "openai"):
        raise ValueError(
            f"{section}: {model!r}: the server {name} is an account of {server['provider']}, whose "
            "models only judge; name an OpenAI-compatible server"
        )


class CandidateEntry(Candidate):
    """A candidate as a job's YAML may give it: with several `temperatures`, `prompts` or `contexts`
    it stands for as many candidates, named "<name>-t<temperature>-<prompt>-<context>". Everything
    else they share, their engine too."""

    temperatures: Annotated[tuple[Temperature, ...], Field(min_length=1)] | None = None
    prompts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    contexts: Annotated[tuple[Arm, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_given_once(self) -> CandidateEntry:
        if self.temperatures and "temperature" in self.sampling.model_fields_set:
            raise ValueError(
                "temperatures and sampling.temperature are both given; keep one of them"
            )
        if self.prompts and "prompt" in self.model_fields_set:
            raise ValueError("prompts and prompt are both given; keep one of them")
        if self.contexts and "context" in self.model_fields_set:
            raise ValueError("contexts and context are both given; keep one of them")
        if self.contexts and self.retrieved is not None and "retrieved" not in self.contexts:
            raise ValueError("retrieved: goes with retrieved among the contexts")
        return self

    def expand(self) -> Iterator[Candidate]:
        """The candidates that it stands for, temperature by temperature; one if it names no
        lists."""
        plain = Candidate(**{field: getattr(self, field) for field in Candidate.model_fields})
        for temperature, prompt, context in product(
            self.temperatures or (None,), self.prompts or (None,), self.contexts or (None,)
        ):
            name, changed = self.name, dict[str, Any]()
            if temperature is not None:
                name += f"-t{temperature}"
                changed["sampling"] = self.sampling.model_copy(update={"temperature": temperature})
            if prompt is not None:
                file = Path(prompt).name  # a prompt may be a file: its name without the suffix
                name += f"-{file.removesuffix('.txt').removesuffix('.md')}"
                changed["prompt"] = prompt
            if context is not None:
                name += f"-{context}"
                changed["context"] = context
                changed["retrieved"] = self.retrieved if context == "retrieved" else None
            yield plain.model_copy(update={**changed, "name": name})


class JobFile(RunConfig):
    """What a job's YAML may hold: a RunConfig whose candidates may each stand for several."""

    candidates: Annotated[tuple[CandidateEntry, ...], Field(min_length=1)]

    def expand(self) -> RunConfig:
        """The run that it describes. Raises ValidationError if two candidates get the same name."""
        candidates = tuple(candidate for entry in self.candidates for candidate in entry.expand())
        fields = {
            field: getattr(self, field)
            for field in RunConfig.model_fields
            if field in self.model_fields_set
        }
        return RunConfig.model_validate(fields | {"candidates": candidates})
