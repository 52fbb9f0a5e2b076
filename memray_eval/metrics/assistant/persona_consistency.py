"""Persona consistency: is the response shaped to the user's Big Five traits? Source: seed 000,
metric 8.

One rubric score from 1 to 5, given the trait scores (0-1 each, no distribution), the message and
the response. An empty response scores 1."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue, Verified
from memray_eval.metrics._shared.evidence import check_evidence
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import normalise
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score from 1 to 5 how well the response suits the personality of this user. TRAITS gives Big Five scores, each on its own from
0 (low) to 1 (high); one near 0.5 asks for nothing in particular. What marked traits ask for:
openness: high, new ideas and variety; low, familiar and proven ways. conscientiousness: high, structure, plans and detail; low,
few and simple steps. extraversion: high, company and energy; low, quiet things to do alone. agreeableness: high, kindness and
harmony; low, plain and direct words. neuroticism: high, reassurance and small safe steps; low, candour and challenge.
5: clearly tailored to the marked traits. 4: mostly, with small misses. 3: some traits considered, others ignored. 2: mostly
generic, or at odds with a trait now and then. 1: ignores the traits or contradicts them.
Advice that clashes with a trait weighs more than advice that leaves it aside. Naming a trait is no tailoring. Judge the fit to
the traits alone: whether the facts are right is scored elsewhere.
In matched_traits list the traits that the response is shaped to, in mismatched_traits those it works against; only traits that
TRAITS gives, none in both lists. In tailoring_notes say in a sentence or two what decided the score.
"""  # noqa: E501

Trait = Literal["openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"]


class PersonaConsistencyJudgment(BaseModel):
    """How well the response suits the user's traits."""

    persona_consistency_score: int = Field(ge=1, le=5)
    matched_traits: list[Trait] = Field(default_factory=list)
    mismatched_traits: list[Trait] = Field(default_factory=list)
    tailoring_notes: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    lines = "\n".join(f"{trait}: {score:.2f}" for trait, score in sample.traits.items())
    return judge_messages(
        RUBRIC, {"TRAITS": lines, "QUERY": sample.query, "RESPONSE": response.text}
    )


class Poles(NamedTuple):
    """Words that suit a user low in a trait, and words that suit one high in it."""

    low: re.Pattern[str]
    high: re.Pattern[str]


def _poles(low: str, high: str) -> Poles:
    return Poles(re.compile(rf"\b(?:{low})\b"), re.compile(rf"\b(?:{high})\b"))


POLES: dict[Trait, Poles] = {
    "openness": _poles(
        low=r"familiar|tried[- ]and[- ](?:true|tested)|proven|usual|traditional\w*|classic|stick "
        r"(?:to|with)|basics",
        high=r"new (?:ideas?|ways?|things?|activit\w+|recipes?|hobb\w+)|something "
        r"(?:new|different)|novel|explor\w+|"
        r"experiment\w*|creativ\w+|curious|curiosity|variety|discover\w*|imaginat\w+|adventur\w+",
    ),
    "conscientiousness": _poles(
        low=r"simpl[ey]\w*|easy|easily|just one|one (?:small |thing|step)|small(?:er)? "
        r"steps?|start small|quick|flexib\w+|"
        r"no need to|don't have to",
        high=r"plan(?:s|ned|ning)?|schedul\w+|track\w*|log|routines?|structur\w+|checklists?"
        r"|goals?|organi[sz]\w+|step by step|"
        r"systematic\w*|details?|detailed|milestones?",
    ),
    "extraversion": _poles(
        low=r"quiet\w*|alone|solo|solitary|by yourself|on your own|own pace|at "
        r"home|private\w*|journal\w*|peaceful|introver\w+|"
        r"one-on-one",
        high=r"friends?|groups?|class(?:es)?|social\w*|teams?|join\w*|part(?:y|ies)|buddy|buddies"
        r"|clubs?|community|extr[ao]ver\w+|"
        r"outgoing|with others",
    ),
    "agreeableness": _poles(
        low=r"frank\w*|bluntly?|direct|plainly|straight (?:talk|answer|to the point)|bottom "
        r"line|to be honest|honestly|"
        r"compet\w+|your own terms|no-nonsense",
        high=r"kind|kindness|kindly|gentl[ey]|caring|harmon\w+|help(?:ing)? "
        r"others|volunteer\w*|thank\w*|together|loved ones|"
        r"family|support\w*|appreciat\w+|warm\w*",
    ),
    "neuroticism": _poles(
        low=r"challeng\w+|push "
        r"yourself|ambitious|straightforward|confiden\w+|risks?|bold\w*|intense\w*|"
        r"serious\w*|dangerous\w*|urgent\w*",
        high=r"reassur\w+|rest assured|normal|okay|ok|manageable|gentl[ey]|calm\w*|not "
        r"alone|understandabl[ey]|breath\w*|"
        r"relax\w*|(?:no need|don't have|try not|nothing) to worry|don't worry|one (?:step|day) "
        r"at a time|soothing|safe\w*",
    ),
}
LOW, HIGH = 0.35, 0.65  # a trait between them is not marked


def rules(sample: Sample, response: Response, vectors: Vectors) -> PersonaConsistencyJudgment:
    """2 + 3 (matched - mismatched) / marked, rounded half up, within 1 to 5; 3 where no trait is
    marked (LOW or less, HIGH or more). A marked trait is matched when the response has more
    different words of its pole than of the opposite one, mismatched when it has fewer, and left
    aside when it has as many."""
    text = normalise(response.text)
    marked = [
        trait for trait in POLES if trait in sample.traits and not LOW < sample.traits[trait] < HIGH
    ]
    leaning = {}  # different words of the pole that suits the user, less those of the other one
    for trait in marked:
        low, high = (len(set(pole.findall(text))) for pole in POLES[trait])
        leaning[trait] = high - low if sample.traits[trait] >= HIGH else low - high
    matched = [trait for trait in marked if leaning[trait] > 0]
    mismatched = [trait for trait in marked if leaning[trait] < 0]
    score = int(2 + 3 * (len(matched) - len(mismatched)) / len(marked) + 0.5) if marked else 3
    return PersonaConsistencyJudgment(
        persona_consistency_score=max(1, min(5, score)),
        matched_traits=matched,
        mismatched_traits=mismatched,
        tailoring_notes=f"of {len(marked)} marked traits {len(matched)} are matched and "
        f"{len(mismatched)} worked against",
    )


def verify(judgment: PersonaConsistencyJudgment, sample: Sample, response: Response) -> Verified:
    """Traits that the sample does not give are unverified: a judge cannot know them."""
    traits = [(trait,) for trait in (*judgment.matched_traits, *judgment.mismatched_traits)]
    return check_evidence(
        judgment, traits, sample.traits.__contains__, source="the sample's traits"
    )


def measure(
    judgment: PersonaConsistencyJudgment, sample: Sample, response: Response
) -> MetricValue:
    return MetricValue(value=judgment.persona_consistency_score)


METRIC = JudgedMetric(
    title="PERSONA CONSISTENCY",
    value_label="Persona Consistency",
    scale=(1, 5),
    integer_scale=True,
    requires=("query", "traits"),
    judgment=PersonaConsistencyJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    verify=verify,
    on_empty=lambda sample: PersonaConsistencyJudgment(
        persona_consistency_score=1, tailoring_notes="empty response"
    ),
    preferred_judge="anthropic/claude-opus-4-5",
)
