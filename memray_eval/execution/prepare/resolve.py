"""A config read once: what a run asks, of whom, and who scores it, as a RunSpec."""

from __future__ import annotations

import importlib.util
from functools import partial

from memray_eval.affect.fusion import normalised_weights
from memray_eval.affect.speech import SPEECH_BACKENDS
from memray_eval.affect.text import TEXT_BACKENDS
from memray_eval.affect.text_to_speech import choose_synthesis
from memray_eval.affect.traits import JUDGE, TRAIT_BACKENDS
from memray_eval.benchmarks import Suite, get_suite
from memray_eval.config.environment import server_key
from memray_eval.config.schema import RunConfig
from memray_eval.datasets.reading import SampleReader
from memray_eval.errors import ConfigError
from memray_eval.execution.affect_stage import AFFECT
from memray_eval.execution.run_plan import JobNeeds, ReadSpec, RunSpec
from memray_eval.judges.router import JudgeAssignment, assign_judges, check_judge, load_table
from memray_eval.metrics import pick
from memray_eval.metrics.own import find_own_metrics
from memray_eval.types import EXISTING


def resolve(config: RunConfig, generate_only: bool = False) -> RunSpec:
    """The run that a config describes; with `generate_only` it has no metrics. Raises ConfigError
    for a suite, task, template, metric, judge or rubric that there is not, and for a judge's key
    that is missing."""
    suite = _suite_of(config)
    named, own = find_own_metrics(config.metrics, config.include)
    options = config.metric_options.model_copy(update={"own": own})
    metrics = () if generate_only else pick(named or suite.metrics, options)
    table = load_table(config.judging.models)
    spec = RunSpec(
        suite=suite,
        read=resolve_reading(config),
        candidates=config.candidates,
        metrics=metrics,
        named_metrics=named,
        metric_options=options,
        judges=assign_judges(metrics, config.judge_request, table, suite.tasks),
        affect_judges=_affect_judges(config),
        judge_table=table,
        engine=config.engine,
        engines={model: config.engine_of(model) for model in config.engines},
        server=config.server,
        embedding=config.embedding,
        judging=config.judging,
        affect=config.affect,
        cluster=config.cluster,
        assumptions=config.assumptions,
        budget=config.budget,
        tolerance=config.tolerance,
        stops_on_failure=config.on_error == "fail",
        templates=config.templates,
        executor=config.executor,
    )
    _ = spec.embedded_judge  # raises ConfigError where two are named: there is one server
    return spec


def needs_of(config: RunConfig) -> JobNeeds:
    """What `doctor` looks at for a job."""
    return JobNeeds(
        dataset=config.dataset,
        cluster=config.cluster,
        has_vllm=any(candidate.backend == "vllm" for candidate in config.candidates),
        embeds_locally=not config.embedding.model.startswith("openai/"),
        resolve=partial(resolve, config),
    )


def resolve_reading(config: RunConfig) -> ReadSpec:
    """Which samples a config reads. Raises ConfigError for an unknown suite or task, or broken
    templates."""
    suite = _suite_of(config)
    has_responses = config.candidates[0].backend == EXISTING
    return ReadSpec(
        dataset=config.dataset,
        reader=SampleReader(
            suite=suite.name,
            adapt=suite.adapt,
            tasks=frozenset(config.tasks),
            known_tasks=suite.tasks,
            has_responses=has_responses,
            by_context=suite.has_contexts and not has_responses,
        ),
        columns=config.columns,
        batch_size=config.engine.batch_size,
        rows_per_block=config.rows_per_block,
        limit=config.limit,
        limit_order=config.limit_order,
        skip_invalid=config.skip_invalid,
        engines=max(
            config.engine_of(candidate.model).replicas if candidate.backend == "vllm" else 1
            for candidate in config.candidates
        ),
    )


def _suite_of(config: RunConfig) -> Suite:
    suite = get_suite(config.suite, config.templates)
    if unknown := sorted(set(config.tasks) - set(suite.tasks)):
        known = ", ".join(suite.tasks) or "it has none"
        raise ConfigError(
            f"tasks: suite {config.suite!r} has no task {unknown[0]!r}; there are: {known}"
        )
    return suite


def _affect_judges(config: RunConfig) -> dict[str, JudgeAssignment]:
    """The judge that reads emotion or traits, where one does. Raises ConfigError: none is named, or
    it cannot be asked."""
    affect = config.affect
    adds_affect = affect.enabled and config.candidates[0].backend != EXISTING
    if not adds_affect or JUDGE not in (affect.emotion, affect.traits):
        return {}
    if affect.judge is None:
        raise ConfigError(
            "affect.judge: `judge` reads emotion or traits; name it, such as openai/gpt-4o-mini or "
            "embedded"
        )
    check_judge(affect.judge, config.judging)
    return {
        AFFECT: JudgeAssignment(metric=AFFECT, judge=affect.judge, why="reads emotion or traits")
    }


def check_affect(spec: RunSpec) -> None:
    """Raises ConfigError for weights, backends, keys or packages that would fail every sample."""
    affect = spec.affect
    if not spec.adds_affect:
        return
    normalised_weights(affect.speech_weight, affect.text_weight)
    for key, name, known in (
        ("emotion", affect.emotion, (*TEXT_BACKENDS, JUDGE)),
        ("speech", affect.speech, SPEECH_BACKENDS),
        ("traits", affect.traits, TRAIT_BACKENDS),
    ):
        if name not in known and not (
            name.startswith("transformers:") and "transformers:MODEL" in known
        ):
            raise ConfigError(f"affect.{key}: no backend {name!r}; there are: {', '.join(known)}")
    synthesis = choose_synthesis(affect.tts, affect.base_url)
    if affect.hears and (synthesis == "openai" or affect.speech == "openai"):
        server_key(affect.base_url, affect.api_key_env, "affect (speech by openai)")
    if affect.hears and synthesis == "local" and importlib.util.find_spec("hibari") is None:
        raise ConfigError(
            "affect.tts: local needs the package hibari-tts, which is not installed; choose openai "
            "or off"
        )
