"""Big Five traits of a user: given with the sample, unknown, or judged by a model from what the
user wrote.

No usable English model of the Big Five comes as a package, so nothing is inferred offline. What a
language model reads out of a few messages is weak evidence: its scores correlate with
questionnaires by about 0.29."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from memray_eval.errors import ConfigError
from memray_eval.types import BIG_FIVE, EXISTING, Frozen, Name, Sample, Share

UNKNOWN: Literal["unknown"] = "unknown"
JUDGE: Literal["judge"] = "judge"
TRAIT_BACKENDS = (EXISTING, UNKNOWN, JUDGE)
FLAT = 0.5  # a trait of which nothing is known


class Traits(Frozen):
    """Big Five scores in 0-1, each of the five present; those in `unknown` are FLAT because nothing
    is known of them. `confidence` is the judge's, where one was asked. `backend` is what the scores
    come from."""

    scores: dict[Name, Share]
    unknown: tuple[Name, ...] = ()
    confidence: dict[Name, Share] = Field(default_factory=dict)
    backend: Literal["given", "unknown", "judge"]

    @model_validator(mode="after")
    def _big_five(self) -> Traits:
        if set(self.scores) != set(BIG_FIVE) or not set(self.unknown) <= set(BIG_FIVE):
            raise ValueError(f"traits must be {', '.join(BIG_FIVE)}")
        return self

    @property
    def known(self) -> dict[str, float]:
        """The scores that say something: what may be put before a model or a metric."""
        return {trait: score for trait, score in self.scores.items() if trait not in self.unknown}


def fill_unknown(known: dict[str, float], backend: Literal["given", "unknown", "judge"]) -> Traits:
    """The traits of which these are known."""
    return Traits(
        scores={trait: known.get(trait, FLAT) for trait in BIG_FIVE},
        unknown=tuple(trait for trait in BIG_FIVE if trait not in known),
        backend=backend,
    )


def given_traits(sample: Sample) -> Traits:
    """The sample's own traits; those it does not give are unknown."""
    return fill_unknown(sample.traits, EXISTING if sample.traits else UNKNOWN)


def unknown_traits(sample: Sample) -> Traits:
    """Nothing is known of anyone."""
    return fill_unknown({}, UNKNOWN)


def build_traits(name: str) -> Callable[[Sample], Traits]:
    """The offline backend of a name. Raises ConfigError that lists the known ones."""
    if name == EXISTING:
        return given_traits
    if name == UNKNOWN:
        return unknown_traits
    raise ConfigError(
        f"no Big Five backend {name!r} that runs without a judge; there are: "
        f"{', '.join(TRAIT_BACKENDS)}"
    )
