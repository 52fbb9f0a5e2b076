"""A sample's own criteria, `criteria: [{criterion, points, tags}, ...]` as HealthBench has them,
and the score that verdicts on them make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memray_eval.types.samples import CRITERIA, EXAMPLE_TAGS

MOST_POINTS = 1e9


class RubricCriterion(NamedTuple):
    """A criterion; a response that meets it gets its `points`, which may be negative."""

    text: str
    points: float
    tags: tuple[str, ...] = ()


def has_criteria(metadata: Mapping[str, Any]) -> bool:
    """Whether metadata has criteria to be read, not just a field of that name."""
    value = metadata.get(CRITERIA)
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def read_criteria(metadata: Mapping[str, Any]) -> tuple[RubricCriterion, ...]:
    """The criteria in metadata, none if there are none. Raises ValueError that names the entry."""
    value = metadata.get(CRITERIA)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"{CRITERIA}: must be a list of objects with criterion and points, not "
            f"{type(value).__name__}"
        )
    return tuple(_read(item, f"{CRITERIA}.{number}") for number, item in enumerate(value, 1))


def _read(item: Any, where: str) -> RubricCriterion:
    if not isinstance(item, Mapping):
        raise ValueError(f"{where}: must be an object with criterion and points, not {item!r:.60}")
    text, points = item.get("criterion"), item.get("points")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where}: criterion is {text!r:.60}; write what a response is to meet")
    is_number = isinstance(points, int | float) and not isinstance(points, bool)
    if points is None or not is_number or not abs(points) < MOST_POINTS:
        shown = "missing" if points is None else f"{points!r:.60}"
        raise ValueError(f"{where}: points is {shown}; write a number such as 5, or -5 for a fault")
    return RubricCriterion(text, float(points), _read_tags(item.get("tags"), f"{where}: tags"))


def read_example_tags(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags of a sample as a whole. Raises ValueError for what is no list of texts."""
    return _read_tags(metadata.get(EXAMPLE_TAGS), EXAMPLE_TAGS)


def _read_tags(tags: Any, where: str) -> tuple[str, ...]:
    tags = [] if tags is None else [tags] if isinstance(tags, str) else tags
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError(f"{where}: must be a list of texts, not {tags!r:.60}")
    return tuple(dict.fromkeys(tags))


def points_share(graded: Sequence[tuple[RubricCriterion, bool]]) -> float | None:
    """The points of the criteria met / the sum of all positive points: at most 1, and below 0 if
    those of faults weigh more. None without positive points (calculate_score in healthbench_eval.py
    of openai/simple-evals)."""
    possible = math.fsum(criterion.points for criterion, _ in graded if criterion.points > 0)
    achieved = math.fsum(criterion.points for criterion, is_met in graded if is_met)
    return achieved / possible if possible else None


def shares_by_tag(graded: Sequence[tuple[RubricCriterion, bool]]) -> dict[str, float]:
    """By tag of a criterion, the share over the criteria with it; a tag without positive points
    has none."""
    tags = dict.fromkeys(tag for criterion, _ in graded for tag in criterion.tags)
    shares = {tag: points_share([pair for pair in graded if tag in pair[0].tags]) for tag in tags}
    return {tag: share for tag, share in shares.items() if share is not None}
