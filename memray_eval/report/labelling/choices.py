"""The answers that a rater may give: a few values of a metric's scale, each with a key."""

from __future__ import annotations

from collections.abc import Collection

from memray_eval.metrics._shared.pairs import FIRST, VALUES
from memray_eval.types import Frozen

MOST_KEYS = 10
_STEPS = 5  # of a scale that is not whole numbers
_KEYS = "1234567890"


class Choice(Frozen):
    """An answer: the key that gives it, its value on the metric's scale, and how it is shown."""

    key: str
    value: float
    label: str


def choices_for(
    scale: tuple[float, float],
    is_integer: bool,
    seen: Collection[float],
    parts: Collection[str] = (),
) -> tuple[Choice, ...]:
    """The choices of a metric: which answer of a pair is better; no and yes, where a judge `seen`
    said nothing else than the ends of 0 to 1; every whole number of a scale of up to ten; else five
    even steps. The lowest value has the lowest key, except that 0 has its own."""
    low, high = scale
    if FIRST in parts:
        names = {"first": "the first", "tie": "neither", "second": "the second"}
        return tuple(
            Choice(key=_KEYS[number], value=value, label=names[name])
            for number, (name, value) in enumerate(VALUES.items())
        )
    if scale == (0, 1) and seen and set(seen) <= {0.0, 1.0}:
        return (Choice(key="0", value=0, label="no"), Choice(key="1", value=1, label="yes"))
    if is_integer and high - low < MOST_KEYS:
        values = range(int(low), int(high) + 1)
        own = low >= 0 and high <= 9  # 3 is the key of 3
        return tuple(
            Choice(key=str(value) if own else _KEYS[number], value=value, label=str(value))
            for number, value in enumerate(values)
        )
    width = (high - low) / (_STEPS - 1)
    return tuple(
        Choice(key=_KEYS[number], value=low + number * width, label=f"{low + number * width:g}")
        for number in range(_STEPS)
    )
