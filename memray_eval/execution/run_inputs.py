"""A run's suite and how its dataset is read, from its config."""

from __future__ import annotations

from memray_eval.benchmarks import Suite, get_suite
from memray_eval.config.schema import RunConfig
from memray_eval.datasets.reading import SampleReader
from memray_eval.errors import ConfigError
from memray_eval.types import EXISTING


def suite_of(config: RunConfig) -> Suite:
    """The suite, with the user's templates. Raises ConfigError for an unknown suite or task, or
    broken templates."""
    suite = get_suite(config.suite, config.templates)
    if unknown := sorted(set(config.tasks) - set(suite.tasks)):
        known = ", ".join(suite.tasks) or "it has none"
        raise ConfigError(
            f"tasks: suite {config.suite!r} has no task {unknown[0]!r}; there are: {known}"
        )
    return suite


def reading_of(config: RunConfig) -> SampleReader:
    suite = suite_of(config)
    return SampleReader(
        suite=suite.name,
        adapt=suite.adapt,
        tasks=frozenset(config.tasks),
        known_tasks=suite.tasks,
        has_responses=config.candidates[0].backend == EXISTING,
        by_context=suite.has_contexts and config.candidates[0].backend != EXISTING,
    )
