"""The weights of an overall score, as a job gives them: of all samples, or by task."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TypeAlias

from memray_eval.config.sections import Weights
from memray_eval.errors import ConfigError, suggest

TOLERANCE = 1e-6
ByTask: TypeAlias = Mapping[str, Mapping[str, float]]  # "" for every task without its own


def weights_by_task(weights: Weights, default: Mapping[str, float], what: str) -> ByTask:
    """The weights of each task that has its own, and under "" those of all others: as given, else
    the `default`. Raises ConfigError."""
    of_all = {name: share for name, share in weights.items() if not isinstance(share, Mapping)}
    by_task = {task: shares for task, shares in weights.items() if isinstance(shares, Mapping)}
    checked = {task: check_weights(shares, default, what) for task, shares in by_task.items()}
    return {"": check_weights(of_all or default, default, what), **checked}


def check_weights(
    weights: Mapping[str, float], scores: Collection[str], what: str
) -> dict[str, float]:
    """Weights in the order of `scores`; a score that is not named weighs nothing. Raises
    ConfigError for an unknown name, a weight that is negative or no finite number, and weights
    that don't sum to 1."""
    for name, weight in weights.items():
        if name not in scores:
            raise ConfigError(f"{what}: no score {name!r}; {suggest(name, scores)}")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight < math.inf:
            raise ConfigError(f"{what}: {name} is {weight!r}; a weight is a number from 0 to 1")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > TOLERANCE:
        raise ConfigError(
            f"{what}: they sum to {total:.7g}, not 1; a score that is left out weighs 0"
        )
    return {name: float(weights[name]) for name in scores if name in weights}


def describe_weights(weights: Mapping[str, float]) -> str:
    """Weights in words, as the name of who scored has them."""
    return f"weights {' '.join(f'{name}={share:g}' for name, share in weights.items())}"
