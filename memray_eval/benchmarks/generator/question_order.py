"""One sample to make, and its name."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from memray_eval.benchmarks.generator.seeded_random import seeded_generator

UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


class QuestionOrder(NamedTuple):
    """One sample to make: `length` in tokens, `depth` in percent or None, `number` within its
    cell."""

    seed: int
    task: str
    language: str
    length: int
    depth: int | None
    number: int

    @property
    def id(self) -> str:
        depth = () if self.depth is None else (f"d{self.depth}",)
        return "-".join(
            (self.task, self.language, length_label(self.length), *depth, str(self.number))
        )

    def rng(self) -> Random:
        """The sample's own generator: it is the same sample whatever else is generated with it."""
        depth = "" if self.depth is None else self.depth
        return seeded_generator(
            self.seed, self.task, self.language, self.length, depth, self.number
        )


def length_label(length: int) -> str:
    for unit in ("m", "k"):
        if length % UNITS[unit] == 0:
            return f"{length // UNITS[unit]}{unit.upper() if unit == 'm' else unit}"
    return str(length)
