"""Every metric, found by its file: metrics/<family>/<name>.py holds `METRIC`. Modules beside the families are shared parts."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from memray_eval.errors import ConfigError
from memray_eval.metric import Metric
from memray_eval.metrics.text_quality import overall

OVERALL_SCORE = "overall_score"


@cache
def all_metrics() -> dict[str, Metric]:
    """All metrics by name, in the order of family and file name."""
    return {metric.name: metric for metric in _found()}


def pick(names: Iterable[str], text_weights: Mapping[str, float] | None = None) -> tuple[Metric, ...]:
    """The named metrics, in the order given; overall_score with `text_weights` where there are any. Raises ConfigError that
    lists the known ones, or says what is wrong with the weights."""
    known = dict(all_metrics())
    if text_weights:
        weighted = overall(text_weights)
        known[OVERALL_SCORE] = replace(weighted, name=OVERALL_SCORE, family=known[OVERALL_SCORE].family)
    chosen: dict[str, Metric] = {}
    for name in names:
        if name not in known:
            raise ConfigError(f"no metric {name!r}; there are: {', '.join(known)}")
        chosen[name] = known[name]
    return tuple(chosen.values())


def _found() -> Iterator[Metric]:
    for family in pkgutil.iter_modules(__path__):
        if not family.ispkg:
            continue
        package = importlib.import_module(f"{__name__}.{family.name}")
        for file in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{file.name}")
            yield replace(module.METRIC, name=file.name, family=family.name)
