"""A config read once: samples, candidates, metrics and judges of a run, as a RunSpec."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from types import MappingProxyType

from memray_eval.affect.enriching import JUDGE, TRAIT_BACKENDS
from memray_eval.affect.labels import OFF, TRANSFORMERS, normalised_weights
from memray_eval.affect.speech_client import choose_synthesis
from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.conversations import read_errata
from memray_eval.benchmarks.own import SuiteSource, find_suite
from memray_eval.config.environment import server_key
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import MetricOptions
from memray_eval.datasets.reading import SampleReader, read_by, read_ids
from memray_eval.errors import ConfigError, nearest
from memray_eval.execution.run_plan import ReadSpec, RunSpec
from memray_eval.execution.stages.affect import AFFECT
from memray_eval.execution.stages.session import USER
from memray_eval.extensions import OwnSource, find_source
from memray_eval.judges.prices import load_table
from memray_eval.judges.router import JudgeAssignment, Roster, assign_judges
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.metrics import pick
from memray_eval.metrics.own import find_own_metrics
from memray_eval.ports import no_adaptation
from memray_eval.stores.memories import check_identity
from memray_eval.stores.port import find_sources
from memray_eval.types import EXISTING, Candidate

LISTED_TASKS = 40  # of a suite with more, the nearest one is named
# Backends of affect that once were there; decisions.md has the figures
WITHDRAWN = {
    name: "is withdrawn, worse than a uniform guess on our own queries"
    for name in ("lexicon", "classifier")
} | {
    "prosody": "is withdrawn, no better than chance",
    "local": "is withdrawn, synthetic speech of that voice carries no emotion",
    "openai": "is withdrawn, OpenAI ends its audio model",
}


def resolve(
    config: RunConfig,
    generate_only: bool = False,
    *,
    kept: Mapping[str, Sequence[str]] = MappingProxyType({}),
    today: date | None = None,
) -> RunSpec:
    """The run that a config describes, as made `today`; with `generate_only` without metrics. A
    resumed run has `kept` its judges. Raises ConfigError for unknown names and missing keys."""
    _check_affect_values(config)
    servers = {
        name: server.model_copy(update={"source": find_source(server.code)})
        for name, server in config.servers.items()
        if server.code is not None
    }
    judging = config.judging.model_copy(update={"servers": {**config.judging.servers, **servers}})
    sources = {name: server.source for name, server in servers.items()}
    sources |= find_sources(config.candidates)
    source = _suite_of(config)
    suite, names, metrics, options = _choose_metrics(config, source, generate_only)
    table, day = load_table(judging.models), today or date.today()
    stand_ins = [Roster(judging, table, day).stand_in(name) for name in judging.fallbacks]
    judging = judging.model_copy(update={"fallbacks": tuple(judge for judge, _ in stand_ins)})
    roster = Roster(judging, table, day)
    request = config.judge_request.model_copy(update={"judging": judging})
    server = config.server.model_copy(update={"code": sources})
    spec = RunSpec(
        config=config.model_copy(update={"judging": judging, "server": server}),
        suite=suite,
        suite_source=source,
        read=resolve_reading(config),
        metrics=metrics,
        named_metrics=names if config.metrics else (),
        metric_options=options,
        judges=assign_judges(metrics, request, table, suite.tasks, day, kept),
        affect_judges=_affect_judges(config, roster),
        user_judges=_user_judges(config, roster),
        fallback_successions=tuple(gone for _, successions in stand_ins for gone in successions),
        judge_table=table,
        errata={} if config.errata is None else read_errata(config.errata),
    )
    judge = spec.embedded_judge  # raises ConfigError if two are named
    _check_engines(spec)
    _check_functions(config.candidates, sources)
    for candidate in config.candidates:
        check_identity(candidate)
    at_judge, at_embed = spec.by_stage()
    is_asked = spec.calls_judges or bool(at_embed)
    # Responses that exist already are scored by code and rules alone
    read = replace(spec.read, scores_at_once=bool(spec.has_responses and at_judge and not is_asked))
    return replace(spec, read=read, judge_engine=config.judge_engine(judge) if judge else None)


def _check_engines(spec: RunSpec) -> None:
    """Raises ConfigError for engine settings of a model that is on no engine."""
    models = {
        candidate.model for candidate in spec.config.candidates if candidate.backend == "vllm"
    }
    models |= {spec.embedded_judge} if spec.embedded_judge is not None else set()
    if unknown := sorted(spec.config.engines.keys() - models):
        raise ConfigError(
            f"engines: no vLLM candidate or judge has the model {unknown[0]!r}; there are: "
            f"{', '.join(sorted(models)) or 'none'}"
        )


def _choose_metrics(
    config: RunConfig, source: SuiteSource, generate_only: bool
) -> tuple[Suite, tuple[str, ...], tuple[Metric, ...], MetricOptions]:
    """The suite, the names of a run's metrics, and those that it computes, with their options. If
    the user has a benchmark's own prompts, its judged metrics use them unless the job says
    otherwise."""
    names, own = find_own_metrics(config.metrics or source.metrics, config.include, source.code)
    suite = source.load()
    if config.errata is not None and not suite.has_arms:
        raise ConfigError(f"errata: suite {suite.name!r} takes none; leave the key out")
    if not suite.metrics:  # a template's have names once they are found
        suite = replace(suite, metrics=names)
    if config.metrics:  # the first that the user names leads
        suite = replace(suite, headline=names[0])
    update: dict[str, object] = {"own": own, "scores_empty": suite.scores_empty}
    options = config.metric_options.model_copy(update=update)
    official = suite.judge_rubrics
    metrics = tuple(
        replace(metric, rubrics={"official": official[metric.name], **metric.rubrics})
        if isinstance(metric, JudgedMetric) and metric.name in official
        else metric
        for metric in (() if generate_only else pick(names, options))
    )
    return suite, names, metrics, options


def _check_functions(
    candidates: Sequence[Candidate], sources: Mapping[str, OwnSource | None]
) -> None:
    """Raises ConfigError if a code candidate does not name a function of its server."""
    for model in (candidate.model for candidate in candidates if candidate.backend == "code"):
        server, _, function = model.partition("/")
        source = sources.get(server)
        if source is None:
            raise ConfigError(
                f"candidates: no code answers as {model!r}; write the model as "
                "my_model.py:FUNCTION, or as NAME/FUNCTION with "
                "servers: {NAME: {code: my_model.py}}"
            )
        if not callable(source.get(function)):
            raise ConfigError(f"candidates: {function} of {source.place} is no function")


def resolve_reading(config: RunConfig) -> ReadSpec:
    """The samples that a config reads; its own reader's rows are written below `out`. Raises
    ConfigError for an unknown suite or task, or broken templates, DataError if the reader fails."""
    source = _suite_of(config)
    suite = source.load()
    has_responses = config.candidates[0].backend == EXISTING
    adapts_nothing = suite.adapt is no_adaptation
    dataset = config.dataset
    if config.reader is not None:
        dataset = read_by(config.reader, dataset, config.out)
    reader = SampleReader(
        suite=suite.name,
        # A user's suite is found again by its source, on any worker
        adapt=suite.adapt if source.own is None or adapts_nothing else source.adapt,
        tasks=frozenset(config.tasks),
        known_tasks=suite.tasks,
        ids=frozenset() if config.ids is None else read_ids(config.ids),
        has_responses=has_responses,
        candidate=config.candidates[0].name if has_responses else EXISTING,
        by_context=suite.has_contexts and not has_responses,
        encoding=config.encoding or "",
        files=None if has_responses else suite.files,
    )
    columns, samples = config.columns, None
    if config.samples is not None:
        of_samples = replace(reader, has_responses=False, files=suite.files)
        mapped = {name: columns[name] for name in columns if name not in ("response", "id")}
        samples = ReadSpec(config=config, dataset=config.samples, reader=of_samples, columns=mapped)
        columns = {name: columns[name] for name in columns.keys() - mapped.keys()}
    return ReadSpec(config=config, dataset=dataset, reader=reader, columns=columns, samples=samples)


def _suite_of(config: RunConfig) -> SuiteSource:
    source = find_suite(config.suite, config.templates)
    tasks = source.load().tasks
    weights = ("text_weights", "companion_weights") if tasks else ()
    named = {
        key: [task for task, own in getattr(config, key).items() if isinstance(own, Mapping)]
        for key in weights
    }
    named["tasks"] = list(config.tasks)
    for key, names in named.items():
        if unknown := sorted(set(names) - set(tasks)):
            hint = nearest(unknown[0], tasks) if len(tasks) > LISTED_TASKS else None
            advice = f"there are: {', '.join(tasks) or 'it has none'}"
            if hint is not None:
                advice = f"did you mean {hint!r}? It has {len(tasks)}"
            raise ConfigError(f"{key}: suite {source.name!r} has no task {unknown[0]!r}; {advice}")
    return source


def _affect_judges(config: RunConfig, roster: Roster) -> dict[str, JudgeAssignment]:
    """The judge that reads emotion or traits, if any. Raises ConfigError if it cannot be asked."""
    affect = config.affect
    adds_affect = affect.enabled and config.candidates[0].backend != EXISTING
    if not adds_affect or JUDGE not in (affect.emotion, affect.traits):
        return {}
    if affect.judge is None:
        raise ConfigError(
            "affect.judge: `judge` reads emotion or traits; name it, such as openai/gpt-4o-mini or "
            "embedded"
        )
    assigned = _assign(AFFECT, affect.judge, "reads emotion or traits", roster)
    roster.account(assigned.judge).check()
    return {AFFECT: assigned}


def _user_judges(config: RunConfig, roster: Roster) -> dict[str, JudgeAssignment]:
    """The model that plays simulated users, if any. Raises ConfigError for a name of no model; its
    key is checked once the scan has found such users (checks.py)."""
    user = config.simulated_user
    if user is None or config.candidates[0].backend == EXISTING:
        return {}
    try:
        return {USER: _assign(USER, user.model, "plays simulated users", roster)}
    except ConfigError as error:
        raise ConfigError(f"simulated_user.model: {error}") from None


def _assign(key: str, model: str, why: str, roster: Roster) -> JudgeAssignment:
    """The assignment of a model that does not score."""
    judge, gone = roster.stand_in(model)
    heirs = {judge: roster.heirs_of(judge)}
    return JudgeAssignment(metric=key, judge=judge, why=why, successions=gone, heirs=heirs)


def _check_affect_values(config: RunConfig) -> None:
    """Raises ConfigError for weights and backends that do not exist, also if affect is off."""
    affect = config.affect
    if affect.enabled or affect.speech_weight or affect.text_weight:
        normalised_weights(affect.speech_weight, affect.text_weight)
    for key, name, backends in (
        ("emotion", affect.emotion, (JUDGE, f"{TRANSFORMERS}MODEL", OFF)),
        ("speech", affect.speech, (f"{TRANSFORMERS}MODEL", "uniform")),
        ("tts", affect.tts, ("auto", "openai", OFF)),
        ("traits", affect.traits, TRAIT_BACKENDS),
    ):
        is_model = name.startswith(TRANSFORMERS) and name != TRANSFORMERS
        if name not in backends and not (is_model and f"{TRANSFORMERS}MODEL" in backends):
            reason = WITHDRAWN.get(name, "is no backend")
            raise ConfigError(f"affect.{key}: {name!r} {reason}; there are: {', '.join(backends)}")


def check_affect(spec: RunSpec) -> None:
    """Raises ConfigError for a key that speech needs and that is not set."""
    affect = spec.config.affect
    if not spec.adds_affect:
        return
    synthesis = choose_synthesis(affect.tts, affect.base_url)
    if affect.hears and synthesis == "openai":
        server_key(affect.base_url, affect.api_key_env, "affect (speech by openai)")
