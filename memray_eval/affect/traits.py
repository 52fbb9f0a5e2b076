"""Big Five traits of a user: given with the sample, unknown, or judged by a model from what the
user wrote.

No usable English model of the Big Five comes as a package, so nothing is inferred offline. What a
language model reads out of a few messages is weak evidence: its scores correlate with
questionnaires by about 0.29."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from memray_eval.errors import ConfigError
from memray_eval.types import BIG_FIVE, EXISTING, Frozen, Message, Name, Sample, Share

UNKNOWN: Literal["unknown"] = "unknown"
JUDGE: Literal["judge"] = "judge"
TRAIT_BACKENDS = (EXISTING, UNKNOWN, JUDGE)
FLAT = 0.5  # a trait of which nothing is known

# metrics/_shared/judging.py's judge_messages
Frame = Callable[[str, dict[str, str]], tuple[Message, ...]]


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


def _fill_unknown(known: dict[str, float], backend: Literal["given", "unknown", "judge"]) -> Traits:
    return Traits(
        scores={trait: known.get(trait, FLAT) for trait in BIG_FIVE},
        unknown=tuple(trait for trait in BIG_FIVE if trait not in known),
        backend=backend,
    )


def given_traits(sample: Sample) -> Traits:
    """The sample's own traits; those it does not give are unknown."""
    return _fill_unknown(sample.traits, EXISTING if sample.traits else UNKNOWN)


def unknown_traits(sample: Sample) -> Traits:
    """Nothing is known of anyone."""
    return _fill_unknown({}, UNKNOWN)


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


class TraitEstimate(BaseModel):
    """One trait as far as the user's own words show it."""

    score: Annotated[float, Field(ge=0, le=1)]
    confidence: Annotated[float, Field(ge=0, le=1)]
    evidence: str


class BigFiveJudgment(BaseModel):
    """What a user's words show of their Big Five traits."""

    openness: TraitEstimate
    conscientiousness: TraitEstimate
    extraversion: TraitEstimate
    agreeableness: TraitEstimate
    neuroticism: TraitEstimate


RUBRIC = """
Estimate the Big Five traits of the user who wrote QUERY and EARLIER, each by itself, as a score from 0 (very low) over 0.5
(like most people) to 1 (very high).
openness: curious about ideas and new things, against at home in the familiar. conscientiousness: orderly, planning, keeping at
it, against easy-going and careless of plans. extraversion: sociable, lively, talkative, against quiet and reserved.
agreeableness: trusting, warm, giving way, against blunt, critical and competitive. neuroticism: quick to worry and be upset,
against calm and even.
A few messages are weak evidence of a personality. A mood is not a trait: one who is afraid for a good reason is not thereby
neurotic. What a question is about says little; how it is asked says more. Do not go by a guess at age, sex, origin, illness or
occupation.
confidence is how sure the words make you, from 0 (they show nothing: score 0.5) over 0.3 (one passing sign) to 1 (many plain
signs that agree). For a single short message no confidence above 0.5 is earned. In evidence quote the words that you go by, or
say that there are none.
"""  # noqa: E501


def judge_traits_messages(sample: Sample, frame: Frame) -> tuple[Message, ...]:
    """What a judge is asked: the rubric, the query, and the user's own earlier turns (not the
    assistant's), in the frame that every judge call has."""
    earlier = "\n".join(turn.content for turn in sample.history if turn.role == "user") or "(none)"
    return frame(RUBRIC, {"EARLIER": earlier, "QUERY": sample.query})


def from_judgment(judgment: BigFiveJudgment) -> Traits:
    """A judge's estimate as traits: each score is drawn to FLAT as its confidence is wanting (FLAT
    + confidence x (score - FLAT)), so that weak evidence never makes a marked trait; a trait of
    confidence 0 is unknown."""
    estimates: dict[str, TraitEstimate] = {trait: getattr(judgment, trait) for trait in BIG_FIVE}
    drawn = {
        trait: FLAT + one.confidence * (one.score - FLAT)
        for trait, one in estimates.items()
        if one.confidence > 0
    }
    confidence = {trait: one.confidence for trait, one in estimates.items()}
    return _fill_unknown(drawn, JUDGE).model_copy(update={"confidence": confidence})
