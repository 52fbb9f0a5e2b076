"""The metrics: a file <family>/<name>.py holds `METRIC`, <family>.py `METRICS`, several by name. A
name that begins with _ is a shared part. The rules of benchmarks are metrics without a file."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType

from memray_eval.config.sections import MetricOptions
from memray_eval.errors import ConfigError, suggest
from memray_eval.metric import Metric
from memray_eval.metrics._judging import with_any_rubric
from memray_eval.metrics._text_features import coherence_metric, overall
from memray_eval.metrics.catalogue import split_docstring
from memray_eval.metrics.companion import OVERALL, overall_companion
from memray_eval.metrics.criteria import criteria_metric
from memray_eval.metrics.own import load_own_metric

DEFAULTS = MetricOptions()


@cache
def all_metrics() -> dict[str, Metric]:
    """All metrics by name, by family and name. Raises ConfigError if two have one name."""
    from memray_eval.benchmarks.rules import rule_metrics  # imports all benchmarks

    by_name: dict[str, Metric] = {}
    metrics = (*_metrics_of_files(), *rule_metrics())
    for metric in sorted(metrics, key=lambda metric: (metric.family, metric.name)):
        if metric.name in by_name:
            families = f"metrics/{by_name[metric.name].family} and metrics/{metric.family}"
            raise ConfigError(
                f"two metrics are called {metric.name!r}, in {families}; rename one of them"
            )
        by_name[metric.name] = metric
    return by_name


def pick(names: Iterable[str], options: MetricOptions = DEFAULTS) -> tuple[Metric, ...]:
    """The named metrics, in the order given, with these options. Raises ConfigError."""
    available = {own.name: load_own_metric(own, options.metric_timeout_s) for own in options.own}
    available |= all_metrics()
    if options != DEFAULTS:
        available |= _with_options(options)
    chosen: dict[str, Metric] = {}
    for name in names:
        if name not in available:
            raise ConfigError(f"no metric {name!r}; {suggest(name, available)}")
        chosen[name] = available[name]
    if options.on_no_answer == DEFAULTS.on_no_answer and not options.scores_empty:
        return tuple(chosen.values())
    way, empty = options.on_no_answer, options.scores_empty
    return tuple(
        replace(metric, on_no_answer=way, scores_empty=empty) for metric in chosen.values()
    )


def _with_options(options: MetricOptions) -> dict[str, Metric]:
    """The metrics that these options change."""
    changed: dict[str, Metric] = {
        "coherence_score": coherence_metric(options.transitions),
        "criteria": criteria_metric(options.criteria.per),
        "overall_score": overall(options.text_weights, options.transitions),
        OVERALL: overall_companion(options.companion_weights),
    }
    return {
        name: replace(metric, name=name, family=all_metrics()[name].family)
        for name, metric in changed.items()
    }


def _metrics_of_files() -> Iterator[Metric]:
    for file in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not (file.ispkg or "._" in file.name):
            *_, folder, name = file.name.split(".")
            family = name if folder == "metrics" else folder
            for metric in _metrics_of_file(importlib.import_module(file.name), name):
                yield replace(metric, family=family)


def _metrics_of_file(module: ModuleType, name: str) -> Iterator[Metric]:
    """The metric of that name which a file holds, or those of its `METRICS`; none of another."""
    several: dict[str, Metric] = getattr(module, "METRICS", {})
    if hasattr(module, "METRIC"):
        several = {name: with_any_rubric(module.METRIC)}
    for name, metric in several.items():
        metric = replace(metric, name=name, about=metric.about or module.__doc__ or "")
        if metric.formulas:
            yield metric
        else:
            about, formulas = split_docstring(metric.about)
            yield replace(metric, about=about, formulas=formulas)
